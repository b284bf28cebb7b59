"""Draw docs/images/turbo-failures.png: the first failures of turbo on each phantom, by the oracles.

python tools/turbo_failures.py docs/images/turbo-failures.png
"""

import sys

import torch

from fastdime.bundles import load_bundle, shipped
from fastdime.counterfactuals.explainer import Explainer
from fastdime.experiments.truth import DIRECTIONS, Judges, counterfactuals, pairs, yes
from fastdime.sheets import Row, draw_sheet, shown, signed, write_sheet

SUBJECTS, SEED, EACH = 48, 33_000, 1
TITLES = ("image", "turbo", "difference", "exact")


def main(place: str) -> None:
    rows = []
    for name in shipped():
        bundle = load_bundle(name)
        judges = Judges.of(bundle)
        explainer = Explainer.from_bundle(bundle, "turbo")
        for direction in DIRECTIONS:
            drawn = pairs(name, SUBJECTS, direction, SEED)
            made, _ = counterfactuals(explainer, drawn)
            # Removals fail if any part is left, additions if the object is not whole.
            judge = judges.shortcut if direction == "remove" else judges.complete
            failed = ((yes(judge, made) > 0.5) != (drawn.target == 1)).nonzero()[:, 0].tolist()
            for row in failed[:EACH]:
                x, x_cf, truth = (images[row] for images in (drawn.x, made, drawn.truth))
                images = [shown(image.numpy()) for image in (x, x_cf, truth)]
                images.insert(2, signed((x_cf - x).mean(0).numpy()))
                caption = f"{name}, {direction}: one of {len(failed)} failures in {SUBJECTS}"
                rows.append(Row(images, caption))
    print(write_sheet(place, draw_sheet(TITLES, rows)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1])
