"""Draw docs/images/pareto.png: denoiser calls against the error of the whole image, for all methods.

python tools/speed_plot.py docs/images/pareto.png docs/results/speed-chest-pacemaker.json ...
"""

import json
import sys
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
from matplotlib import pyplot as plt


def main(place: str, *files: str) -> None:
    figure, panels = plt.subplots(1, len(files), figsize=(4.2 * len(files), 3.6), constrained_layout=True)
    for panel, file in zip(panels if len(files) > 1 else [panels], files, strict=True):
        for number, row in enumerate(json.loads(Path(file).read_text())["rows"]):
            ours = row["method"].startswith("turbo")
            at = row["denoiser_calls"], row["full_error_ratio"]
            panel.scatter(*at, color="#d55e00" if ours else "#0072b2", marker="o" if ours else "s")
            beside = (4, 4 if number % 2 else -10)  # above and below in turn, so that fewer labels meet
            panel.annotate(row["method"], at, xytext=beside, textcoords="offset points", fontsize=8)
        panel.axhline(1, color="grey", linewidth=0.8, linestyle=":")
        panel.set(
            xscale="log",
            yscale="log",
            title=Path(file).stem.removeprefix("speed-"),
            xlabel="denoiser calls of an image",
            ylabel="error of the whole image / doing nothing",
        )
        panel.margins(0.35, 0.25)
    figure.savefig(place, dpi=110)
    print(place)


if __name__ == "__main__":
    main(*sys.argv[1:])
