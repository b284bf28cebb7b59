"use strict";
(() => {
  const words = new Intl.Collator(undefined, { numeric: true, sensitivity: "base" });

  // Numbers by size, texts by letters; what is blank comes last either way.
  const compare = (a, b, down) => {
    if (a === "" || b === "") return (a === "") - (b === "");
    const numbers = !Number.isNaN(Number(a)) && !Number.isNaN(Number(b));
    const order = numbers ? Number(a) - Number(b) : words.compare(a, b);
    return down ? -order : order;
  };

  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => row.cells[column].dataset.key;
      const rows = [...table.tBodies[0].rows].sort((a, b) => compare(key(a), key(b), down));
      table.tBodies[0].append(...rows);
    }));
  }

  const tools = document.getElementById("tools");
  if (tools) {
    const lists = [...document.querySelectorAll(".cards")].map((list) => [list, [...list.children]]);
    const total = lists.reduce((sum, [, cards]) => sum + cards.length, 0);
    const value = (name) => (tools.elements[name] ? tools.elements[name].value : "");
    const holds = (text, part) => text.toLowerCase().includes(part.trim().toLowerCase());

    const update = () => {
      const [, sign, field] = /^([+-]?)(.*)$/.exec(value("sort"));
      let shown = 0;
      for (const [list, cards] of lists) {
        const order = [...cards];
        if (field) order.sort((a, b) => compare(a.dataset[field], b.dataset[field], sign === "-"));
        list.append(...order);
        for (const card of cards) {
          const fits = holds(card.dataset.id, value("wanted_id")) && holds(card.dataset.group, value("wanted_group")) &&
            (value("direction") === "" || card.dataset.direction === value("direction"));
          card.hidden = !fits;
          shown += fits;
        }
      }
      document.documentElement.style.setProperty("--picture", `${value("size")}px`);
      document.getElementById("count").textContent = `${shown} of ${total} images below are shown`;
    };
    if (window.innerWidth < 500) tools.elements.size.value = "96";
    tools.addEventListener("input", update);
    tools.addEventListener("submit", (event) => event.preventDefault());
    update();
  }

  // Paper has nothing to click on.
  window.addEventListener("beforeprint", () => {
    for (const part of document.querySelectorAll("details")) part.open = true;
  });
})();
