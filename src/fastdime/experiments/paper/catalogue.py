"""The paper's experiments: what is run, on how many images, and what the paper has for it."""

from collections.abc import Mapping
from types import MappingProxyType

from fastdime.errors import InputError, unknown
from fastdime.experiments.paper import published
from fastdime.experiments.paper.experiment import Experiment
from fastdime.experiments.paper.variants import Below, Pixels, Variant

SIDE, TAU = 224, 160  # pixels and levels that the ablation on CheXpert counts in
FACE, FACE_TAU = 128, 60  # those of the ablations on CelebA
PUBLISHED_CHAIN = {"steps": 200, "tau": FACE_TAU}  # of the table of times
SCALED = (
    "`changed` has what they are here, a dilation being an odd number of pixels of that share of the side"
)


def _plain(*methods: str) -> tuple[Variant, ...]:
    return tuple(Variant(method, method) for method in methods)


def _mask(name: str, dilation: int = 21, tau_w: int = 80, threshold: float = 0.15) -> Variant:
    changes = {"dilation": Pixels(dilation, SIDE), "mask_from": Below(tau_w, TAU), "threshold": threshold}
    return Variant(name, "fastdime", changes)


def _face(name: str, method: str, dilation: int, tau_w: int | None = None) -> Variant:
    changes: dict[str, object] = {"dilation": Pixels(dilation, FACE)}
    return Variant(name, method, changes | ({} if tau_w is None else {"mask_from": Below(tau_w, FACE_TAU)}))


COUNTERFACTUALS = Experiment(
    "counterfactuals",
    "all methods by every metric, on each data set",
    "Tables 1 and 2",
    {
        "small": {"n": 32, "n_dime": 16, "minutes": 30},
        "full": {"n": None, "n_dime": 100},
    },
    published.COUNTERFACTUALS,
    _plain("dime", "ace-l1", "ace-l2", "fastdime", "fastdime-2", "fastdime-2+", "maskdime", "turbo"),
    (
        "MaskDiME and turbo are not in the paper, nor is ACE on medical images",
        "Table 2 of the paper is over images with the shortcut alone: compare its l1 and mad with l1_remove "
        "and mad_remove",
        "the paper's FID, sFID and FS are of other networks than ours: compare methods, not tables",
    ),
)

EFFICIENCY = Experiment(
    "efficiency",
    "complexity, time, memory and network calls, methods in turn on the same images",
    "Table 3",
    {
        "small": {"n": 12, "n_dime": 4, "chain": PUBLISHED_CHAIN, "minutes": 16},
        "full": {"n": 1000, "n_dime": 100, "chain": PUBLISHED_CHAIN},
    },
    published.EFFICIENCY,
    _plain(
        "dime",
        "ace-l1",
        "ace-l2",
        "gmd-nomask",
        "fastdime-nomask",
        "fastdime",
        "fastdime-2",
        "fastdime-2+",
        "maskdime",
        "turbo",
    ),
    (
        "the paper's times and memory are of CelebA on one GPU: compare ratios",
        "methods that the bundle has settings for run one chain, so that tau is the same: on phantoms the "
        f"published one ({FACE_TAU} of 200 levels) once, elsewhere that of the bundle's fastdime",
        "a batch of 5 is 5 times the mean of one image, and the total is that of 1000 images",
    ),
    phantoms=("face-smile", "chest-pacemaker"),
)

SHORTCUTS = Experiment(
    "shortcuts",
    "models trained on planted correlations, and whether FastDiME finds them",
    "Table 4 and its figure",
    {
        "small": {
            "method": "fastdime",
            "seeds": 2,
            "images": (1200, 200, 100),
            "controls": 0,
            "recipe": "small",
            "minutes": 25,
        },
        "full": {
            "method": "fastdime",
            "seeds": 3,
            "images": (None, None, None),
            "controls": 0,
            "rules": {"celeba": "celeba", "chexpert": "medical", "nih": "medical", "isic": "medical"},
        },
    },
    published.SHORTCUTS,
    notes=("md1 is of images with the shortcut, which lose it; md0 of those without, which get it",),
)

ABLATION_MASK = Experiment(
    "ablation-mask",
    "dilation, first level and threshold of FastDiME's mask",
    "Appendix, ablation on CheXpert",
    {"small": {"n": 32, "n_dime": 16, "minutes": 4}, "full": {"n": None, "n_dime": None}},
    published.ABLATION_MASK,
    (
        _mask("underlined"),
        *(_mask(f"dilation {number}", dilation=number) for number in (5, 11, 31, 55)),
        *(_mask(f"tau_w {number}", tau_w=number) for number in (10, 20, 40, 160)),
        *(_mask(f"threshold {number:g}", threshold=number) for number in (0.05, 0.1, 0.2, 0.3)),
        Variant("without mask", "fastdime-nomask"),
    ),
    (
        f"rows are named by the paper's settings, for images of {SIDE} pixels and tau {TAU}; {SCALED}",
        "underlined is dilation 21, tau_w 80, threshold 0.15; the other rows change one of the three",
    ),
    phantoms=("chest-pacemaker",),
)

ABLATION_METHODS = Experiment(
    "ablation-methods",
    "FastDiME without its mask, with inpainting instead, GMD with the mask, first level and dilation",
    "Appendix, ablations on CelebA",
    {"small": {"n": 32, "n_dime": 16, "minutes": 4}, "full": {"n": 4000, "n_dime": 4000}},
    published.ABLATION_METHODS,
    (
        Variant("without mask", "fastdime-nomask"),
        Variant("without mask + repaint d15", "fastdime-repaint", {"inpaint_dilation": Pixels(15, FACE)}),
        _face("gmd d15 w30", "gmd", 15, 30),
        *(
            _face(f"fastdime d{dilation} w{tau_w}", "fastdime", dilation, tau_w)
            for dilation in (5, 15)
            for tau_w in (30, 45, 60)
        ),
        *(_face(f"fastdime-2 d{dilation}", "fastdime-2", dilation) for dilation in (5, 15)),
        *(_face(f"fastdime-2+ d{dilation}", "fastdime-2+", dilation, 30) for dilation in (5, 15)),
    ),
    (f"d is the paper's dilation and w its tau_w, of {FACE} pixels and tau {FACE_TAU}; {SCALED}",),
    phantoms=("face-smile",),
)

TOY2D = Experiment(
    "toy2d",
    "paths and gradients of DiME, GMD and FastDiME in the plane, with an exact denoiser",
    "Figure of the two-dimensional example",
    {"small": {"runs": 100, "minutes": 1}, "full": {"runs": 100}},
    needs_images=False,
)

TEASER = Experiment(
    "teaser",
    "SmoothGrad, an explanation of the task classifier, and the shortcut removed",
    "Figure 1",
    {"small": {"images": 3, "minutes": 1}, "full": {"images": 8}},
)

PATH = Experiment(
    "path",
    "noisy image, denoised image and mask over time",
    "Appendix, figures of the path and of the mask",
    {"small": {"images": 3, "minutes": 1}, "full": {"images": 8}},
)

GALLERY = Experiment(
    "gallery",
    "methods side by side, additions and removals, difference maps, failures among them",
    "Figures of counterfactuals, main part and appendix",
    {"small": {"images": 3, "minutes": 6}, "full": {"images": 8}},
)

EXPERIMENTS: Mapping[str, Experiment] = MappingProxyType(
    {
        experiment.name: experiment
        for experiment in (
            COUNTERFACTUALS,
            EFFICIENCY,
            SHORTCUTS,
            ABLATION_MASK,
            ABLATION_METHODS,
            TOY2D,
            TEASER,
            PATH,
            GALLERY,
        )
    }
)


def experiment(name: str) -> Experiment:
    """Look an experiment up."""
    if name not in EXPERIMENTS:
        raise InputError(unknown("experiment", name, EXPERIMENTS))
    return EXPERIMENTS[name]
