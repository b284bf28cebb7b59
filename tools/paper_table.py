"""Print a table of `fastdime paper run` as Markdown, for docs/results.

python tools/paper_table.py OUT/counterfactuals/table.json row,n,l1,paper_l1
"""

import json
import sys
from pathlib import Path


def main(file: str, names: str) -> None:
    columns = names.split(",")
    lines = [columns, ["---"] * len(columns)]
    lines += [
        [shown(row.get(name)) for name in columns] for row in json.loads(Path(file).read_text())["rows"]
    ]
    print("\n".join("| " + " | ".join(line) + " |" for line in lines))


def shown(value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, float):
        return str(value)
    text = f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


if __name__ == "__main__":
    main(*sys.argv[1:])
