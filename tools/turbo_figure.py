"""Draw docs/images/turbo.png: the stages of turbo on one removal and one addition.

python tools/turbo_figure.py docs/images/turbo.png
"""

import sys

import torch

from fastdime.bundles import load_bundle
from fastdime.counterfactuals.explainer import Explainer
from fastdime.experiments.truth import DIRECTIONS, pairs
from fastdime.sheets import Row, draw_sheet, shown, signed, write_sheet

SUBJECT, SEED = 4, 33_000
TITLES = ("image", "located", "mask", "covered / begun", "turbo", "exact")


def main(place: str) -> None:
    explainer = Explainer.from_bundle(load_bundle("chest-pacemaker"), "turbo")
    rows = []
    for direction in DIRECTIONS:
        drawn = pairs("chest-pacemaker", SUBJECT + 1, direction, SEED)
        x, truth = drawn.x[SUBJECT:], drawn.truth[SUBJECT:]
        made = explainer(x, drawn.target, ids=[str(SUBJECT)], record=[0, 1, 2])
        located, drafted, _ = made.trajectory
        difference = signed((located.x0_hat - x)[0].mean(0).numpy())
        mask = shown((2 * drafted.mask[0].float() - 1).numpy())
        images = [shown(image[0].numpy()) for image in (x, drafted.x0_hat, made.x_cf, truth)]
        calls = int(made.denoiser_calls)
        caption = f"{direction}: {calls} denoiser calls, {int(made.gradient_calls)} gradients"
        rows.append(Row([images[0], difference, mask, *images[1:]], caption))
    print(write_sheet(place, draw_sheet(TITLES, rows)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1])
