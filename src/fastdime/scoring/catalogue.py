"""Every metric by name: what it says, and over which pairs it is taken."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from fastdime.errors import InputError, unknown

Subset = Literal["all", "valid", "correct"]


@dataclass(frozen=True)
class Metric:
    """What is known of a metric without computing it.

    Attributes:
        summary: what it says.
        better: which way is better, if there is one.
        subset: pairs that it is taken over: all, those whose counterfactual reaches its target, or those
            whose original is classified correctly.
        published: the pairs in the published programs, if they differ.
        usual: shown when nothing is asked for.
        share: each pair counts or does not.
        absent: why a pair may have no value, where that is worth telling.
    """

    summary: str
    better: Literal["higher", "lower", ""] = ""
    subset: Subset = "valid"
    published: Subset | None = None
    usual: bool = True
    share: bool = False
    absent: str = ""


OTHERWISE = "something else was asked than to switch the shortcut"
METRICS = {
    "fr": Metric("share of counterfactuals that reach their target", "higher", "all", share=True),
    "bkl": Metric("1 - probability of the target class", "lower", "all"),
    "mad": Metric("mean absolute difference of the confidence", "higher", "all"),
    "md": Metric("mean difference of the confidence, original minus counterfactual", "", "all"),
    "md_s1": Metric("md of pairs with the shortcut", "", "all", usual=False),
    "md_s0": Metric("md of pairs without the shortcut", "", "all", usual=False),
    "cout": Metric("how soon the answer turns while changed pixels are pasted", "higher", "valid", "correct"),
    "l1": Metric("mean absolute change of a pixel, scale 0 to 1", "lower", "valid", "all"),
    "l2": Metric("root mean square change of a pixel, scale 0 to 1", "lower", "valid", "all"),
    "ssim": Metric("structural similarity with the original", "higher", "valid", "all"),
    "changed_area": Metric("share of pixels that changed", "lower", "valid", "all"),
    "lpips": Metric("perceptual distance from the original", "lower", "valid", "all", usual=False),
    "fid": Metric("Frechet distance of features", "lower"),
    "sfid": Metric("the same between halves of different subjects", "lower"),
    "kid": Metric("kernel distance of features", "lower"),
    "fs": Metric("cosine of the features of a pair", "higher", "valid", "correct"),
    "fva": Metric(
        "share of pairs that show the same face",
        "higher",
        usual=False,
        share=True,
        absent="no face in the original",
    ),
    "mnac": Metric("attributes that changed", "lower", usual=False),
    "cd": Metric("changes of attributes against their natural correlation", "lower", usual=False),
    "region_error": Metric(
        "error against the exact counterfactual where they differ", "lower", "all", absent=OTHERWISE
    ),
    "region_error_ratio": Metric("the same, over the error of doing nothing", "lower", "all"),
    "outside_change": Metric("change outside of the true region", "lower", "all"),
    "mask_overlap": Metric(
        "mask and true region: intersection over union", "higher", "all", absent="there is no mask"
    ),
    "mask_recall": Metric("share of the true region in the mask", "higher", "all", absent="there is no mask"),
    "measured_flip": Metric("share where the shortcut is measured as wanted", "higher", "all", share=True),
    "measured_residual": Metric(
        "what is left of the measured shortcut: 0 exact, 1 untouched", "lower", "all"
    ),
    "oracle_flip": Metric("share where the oracle sees the shortcut as wanted", "higher", "all", share=True),
    "oracle_residual": Metric("what is left of it in the oracle's log-odds", "lower", "all"),
    "complete_flip": Metric("the same by the oracle for whole objects", "higher", "all", share=True),
    "latent_change": Metric("absolute change of the measured task latent", "lower", "all"),
    "task_change": Metric("absolute change of the task oracle's answer", "lower", "all"),
    "placebo_change": Metric("change inside the placebo", "lower", "all"),
}
TRUTH = tuple(METRICS)[list(METRICS).index("region_error") :]


def chosen(names: Iterable[str] | None, extra: Iterable[str] = ()) -> list[str]:
    """Return the metrics that were asked for, or the usual ones and those that something else calls for."""
    if names is None:
        called = set(extra)
        return [name for name in METRICS if name in called or (METRICS[name].usual and name not in TRUTH)]
    wanted = list(dict.fromkeys(name.strip().lower() for name in names if name.strip()))
    for name in wanted:
        if name not in METRICS:
            raise InputError(unknown("metric", name, METRICS))
    return wanted
