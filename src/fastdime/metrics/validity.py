"""Whether the classifier changed its mind: one number an image, from probabilities or classes."""

import numpy as np
from jaxtyping import Float64

from fastdime.errors import InputError, expected
from fastdime.metrics.numbers import NAN, Numbers, Values, as_numbers, check_equal_length

SLACK = 1e-6  # by which rounding may carry a probability out of [0, 1]


def flipped(p_after: Values) -> Float64[np.ndarray, " b"]:
    """Return 1 where the target is more probable than not on the counterfactual, else 0; the mean is FR.

    With three classes and more, the target can win with less than one half: use `flipped_to` there.

    Args:
        p_after: probability of the target class on each counterfactual.

    >>> flipped([0.9, 0.5])
    array([1., 0.])
    """
    return (_probabilities("p_after", p_after) > 0.5).astype(np.float64)


def flipped_to(predicted: Values, target: Values) -> Float64[np.ndarray, " b"]:
    """Return 1 where the class of the counterfactual is the target, else 0; the mean is FR.

    >>> flipped_to([2, 0], [2, 1])
    array([1., 0.])
    """
    classes, wanted = as_numbers("predicted", predicted), as_numbers("target", target)
    check_equal_length("predicted and target", classes, wanted)
    return np.equal(classes, wanted).astype(np.float64)


def bounded_kl(p_after: Values) -> Float64[np.ndarray, " b"]:
    """Return 1 - p(target | counterfactual), which the papers call bounded KL; the mean is BKL.

    >>> bounded_kl([1.0, 0.25])
    array([0.  , 0.75])
    """
    return 1 - _probabilities("p_after", p_after)


def confidence_change(p_before: Values, p_after: Values) -> Float64[np.ndarray, " b"]:
    """Return f(x) - f(x_cf), as the paper has it: positive where the counterfactual scores lower.

    The mean is MD. Both sides are probabilities of the same class.

    >>> confidence_change([0.75, 0.5], [0.25, 0.75])
    array([ 0.5 , -0.25])
    """
    before, after = _probabilities("p_before", p_before), _probabilities("p_after", p_after)
    check_equal_length("p_before and p_after", before, after)
    return before - after


def absolute_confidence_change(p_before: Values, p_after: Values) -> Float64[np.ndarray, " b"]:
    """Return |f(x) - f(x_cf)|; the mean is MAD.

    >>> absolute_confidence_change([0.75, 0.5], [0.25, 0.75])
    array([0.5 , 0.25])
    """
    change: Numbers = np.abs(confidence_change(p_before, p_after))
    return change


def auroc(labels: Values, scores: Values) -> float:
    """Return the area under the ROC curve; NaN where only one class is there, or none.

    Args:
        labels: 1 or 0.

    >>> auroc([0, 0, 1, 1], [0.1, 0.4, 0.35, 0.8])
    0.75
    """
    truth, given = as_numbers("labels", labels), as_numbers("scores", scores)
    check_equal_length("labels and scores", truth, given)
    if not np.isin(truth, (0, 1)).all():
        other = truth[~np.isin(truth, (0, 1))][0]
        raise InputError(expected("labels", "1 or 0", other, "drop images without label"))
    if len(np.unique(truth)) < 2:
        return NAN
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(truth, given))


def _probabilities(what: str, values: Values) -> Numbers:
    numbers = as_numbers(what, values)
    if len(numbers) and (numbers.min() < -SLACK or numbers.max() > 1 + SLACK):
        got = f"[{numbers.min():.3g}, {numbers.max():.3g}]"
        raise InputError(expected(what, "probabilities in [0, 1]", got, "take the sigmoid of logits"))
    return numbers
