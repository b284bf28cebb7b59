"""What task models answer to counterfactuals of a method, beside what they answer to the exact ones."""

from collections.abc import Sequence
from functools import partial
from itertools import product

from fastdime.bundles import load_bundle
from fastdime.classifiers.load import load_classifier
from fastdime.counterfactuals.explainer import Explainer
from fastdime.experiments.demo import task_models
from fastdime.experiments.truth import DIRECTIONS, Progress, Row, counterfactuals, further, pairs, yes


def responses(
    phantom: str, methods: Sequence[str], n: int = 64, progress: Progress | None = None
) -> list[Row]:
    """Let the task models that come with the package answer, in both directions.

    Returns:
        For each method, direction and model the mean change of its probability, estimated and exact, the mean
        absolute changes, and `error`, the mean distance of the two changes of one image.
    """
    bundle, rows = load_bundle(phantom), list[Row]()
    models = {name: load_classifier(str(folder)) for name, folder in task_models(phantom).items()}
    work = len(methods) * len(DIRECTIONS) * n
    for number, (method, direction) in enumerate(product(methods, DIRECTIONS)):
        drawn = pairs(bundle.name, n, direction)
        show = None if progress is None else partial(further, progress, number * n, work)
        made, _ = counterfactuals(Explainer.from_bundle(bundle, method), drawn, show)
        for name, model in models.items():
            before, after, exact = (yes(model, images) for images in (drawn.x, made, drawn.truth))
            change, wanted = after - before, exact - before
            scores = {
                "mad": change.abs().mean(),
                "mad_true": wanted.abs().mean(),
                "md": change.mean(),
                "md_true": wanted.mean(),
                "error": (change - wanted).abs().mean(),
            }
            told = {"phantom": phantom, "method": method, "direction": direction, "model": name, "n": n}
            rows.append({**told, **{key: round(float(value), 4) for key, value in scores.items()}})
    return rows
