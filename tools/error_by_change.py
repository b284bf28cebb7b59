"""Where removals are wrong: the error in the true region, parted by how much the shortcut changes a pixel.

python tools/error_by_change.py face-smile [METHOD]
"""

import sys
from itertools import pairwise

from fastdime.bundles import load_bundle
from fastdime.counterfactuals.explainer import Explainer
from fastdime.experiments.truth import counterfactuals, pairs
from fastdime.metrics.truth import pixel_difference

SUBJECTS = 128
ENDS = (0.0, 0.025, 0.05, 0.1, 0.2, 1.0)  # of the change of a pixel, on the [0, 1] scale


def main(name: str, method: str = "fastdime") -> None:
    drawn = pairs(name, SUBJECTS, "remove")
    made, _ = counterfactuals(Explainer.from_bundle(load_bundle(name), method), drawn)
    change, error = pixel_difference(drawn.x, drawn.truth), pixel_difference(made, drawn.truth)
    one = drawn.region.double()
    print("| change of a pixel | pixels | change | error | error ratio |\n|---|---|---|---|---|")
    for low, high in pairwise(ENDS):
        here = drawn.region & (change > low) & (change <= high)
        shares = [float(what[here].sum() / what[drawn.region].sum()) for what in (one, change, error)]
        ratio = float(error[here].sum() / change[here].sum())
        print(f"| {low} to {high} |", *(f"{share:.0%} |" for share in shares), f"{ratio:.2f} |")


if __name__ == "__main__":
    main(*(sys.argv[1:] or sys.exit(__doc__)))
