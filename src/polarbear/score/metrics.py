"""Scores of predicted label sets: pure functions on boolean matrices.

A matrix (n, c) says which of c classes each of n images is given: row i is a set of labels.
Predictions come first, targets second. A score of single images, such as :func:`pw_jaccard`, is
(n,) and between 0 and 1; an empty prediction scores 0. A score of pairs of labels, such as
:func:`implication`, is a :class:`Ratio` of two counts, NaN where it does not apply.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polarbear.base.arrays import Bools, Floats, Ints
from polarbear.base.errors import PredictionError


@dataclass(frozen=True)
class Ratio:
    """``count`` cases of ``of``; ratios of parts of the images add up to that of all.

    >>> (Ratio(1, 2) + Ratio(2, 2)).value
    0.75
    >>> Ratio(0, 0).value
    nan
    """

    count: int
    of: int

    @property
    def value(self) -> float:
        """The quotient, NaN where there is no case: then the score does not apply."""
        return self.count / self.of if self.of else float("nan")

    def __add__(self, other: "Ratio") -> "Ratio":
        """Count the cases of both."""
        return Ratio(self.count + other.count, self.of + other.of)


def jaccard(predictions: ArrayLike, targets: ArrayLike) -> Floats:
    """Give |Y ∩ P| / |Y ∪ P| of each image: (n,)."""
    both, named, true = _sizes(predictions, targets)
    return _divide(both, named + true - both)


def pw_jaccard(predictions: ArrayLike, targets: ArrayLike) -> Floats:
    """Give the precision-weighted Jaccard score, Jaccard × |Y ∩ P| / |P|, of each image: (n,).

    The score of the paper. One of two labels named, both and a wrong one, none:

    >>> pw_jaccard([[0, 1, 0], [1, 1, 1], [0, 0, 0]], [[1, 1, 0]] * 3).round(3).tolist()
    [0.5, 0.444, 0.0]
    """
    both, named, true = _sizes(predictions, targets)
    score: Floats = _divide(both, named + true - both) * _divide(both, named)
    return score


def exact_match(predictions: ArrayLike, targets: ArrayLike) -> Floats:
    """Give 1 for each image whose labels are named, all and no other, else 0: (n,)."""
    both, named, true = _sizes(predictions, targets)
    return np.asarray((both == named) & (both == true) & (named > 0), dtype=np.float64)


def precision(predictions: ArrayLike, targets: ArrayLike) -> Floats:
    """Give the true share |Y ∩ P| / |P| of what is named, of each image: (n,)."""
    both, named, _ = _sizes(predictions, targets)
    return _divide(both, named)


def recall(predictions: ArrayLike, targets: ArrayLike) -> Floats:
    """Give the named share |Y ∩ P| / |Y| of what is true, of each image: (n,)."""
    both, _, true = _sizes(predictions, targets)
    return _divide(both, true)


def f1(predictions: ArrayLike, targets: ArrayLike) -> Floats:
    """Give the harmonic mean of precision and recall, 2 |Y ∩ P| / (|Y| + |P|): (n,)."""
    both, named, true = _sizes(predictions, targets)
    return _divide(2 * both, named + true)


#: What :class:`polarbear.Evaluator` works out for all labels and for each level alone.
#: A metric must depend on the two label sets only, not on how many classes nobody names.
METRICS: Mapping[str, Callable[[ArrayLike, ArrayLike], Floats]] = {
    "pw_jaccard": pw_jaccard,
    "jaccard": jaccard,
    "exact_match": exact_match,
    "precision": precision,
    "recall": recall,
    "f1": f1,
}


def label_ratio(predictions: ArrayLike, targets: ArrayLike) -> Ratio:
    """Give named labels ÷ true labels: above 1, too many are named; below, too few.

    >>> label_ratio([[1, 1, 1], [0, 0, 0]], [[1, 1, 0], [1, 1, 0]]).value
    0.75
    """
    predicted, true = _pair(predictions, targets, "targets")
    return Ratio(_total(predicted), _total(true))


def implication(predictions: ArrayLike, parent: ArrayLike) -> Ratio:
    """Give how often a seen superclass is named when its subclass is named.

    The cases are all pairs of an image and a class named on it, right or wrong, whose superclass
    is among the columns. ``parent`` (c,) is the column of each class's superclass, -1 for none.

    >>> implication([[1, 1], [0, 1]], parent=[-1, 0])
    Ratio(count=1, of=2)
    """
    predicted = as_labels(predictions)
    above = _parents(parent, predicted.shape[1])
    image, label = np.divmod(np.flatnonzero(predicted), max(len(above), 1))
    up = above[label]
    image, up = image[up >= 0], up[up >= 0]
    return Ratio(_total(predicted[image, up]), len(up))


def sibling_error(predictions: ArrayLike, siblings: ArrayLike) -> Ratio:
    """Give how often a wrong sibling is named, among images that have one.

    ``siblings`` (n, c) marks each image's wrong siblings: classes it does not carry whose
    superclass it does (:attr:`polarbear.score.evaluate.Relations.siblings` works them out).

    >>> sibling_error([[1, 0, 1], [1, 1, 0]], siblings=[[0, 0, 1], [0, 0, 1]])
    Ratio(count=1, of=2)
    """
    predicted, wrong = _pair(predictions, siblings, "siblings")
    return Ratio(_total(np.any(predicted & wrong, axis=1)), _total(np.any(wrong, axis=1)))


def late_recall(predictions: ArrayLike, late: ArrayLike) -> Ratio:
    """Give how often a superclass is named on images of subclasses learnt later than it.

    ``late`` (n, c) marks, for each image, the superclasses it carries whose subclass on this image
    arrived in a later task (:attr:`polarbear.score.evaluate.Relations.late` works them out).

    >>> late_recall([[1, 0, 1], [0, 1, 0]], late=[[1, 0, 0], [1, 0, 0]])
    Ratio(count=1, of=2)
    """
    predicted, wanted = _pair(predictions, late, "late")
    return Ratio(_total(predicted & wanted), _total(wanted))


def confusion(predictions: ArrayLike, targets: ArrayLike) -> Ints:
    """Count the images with true label i (row) on which label j (column) is named: (c, c).

    For the paper's figure after task j: ``confusion(p, stream.test(after=j).targets)``, whose
    classes are in their order of arrival.

    >>> confusion([[1, 1, 0], [0, 0, 1]], [[1, 1, 0], [1, 0, 1]]).tolist()
    [[1, 1, 1], [1, 1, 0], [0, 0, 1]]
    """
    predicted, true = _pair(predictions, targets, "targets")
    classes = true.shape[1]
    image, label = np.divmod(np.flatnonzero(true), max(classes, 1))
    image = image[np.argsort(label, kind="stable")]
    ends = np.cumsum(np.bincount(label, minlength=classes))
    counts = np.zeros((classes, classes), dtype=np.intp)
    # An image has few true labels, so that adding its row to each costs c times less than Yᵀ P.
    for row, images in enumerate(np.split(image, ends[:-1])):
        counts[row] = predicted[images].sum(axis=0, dtype=np.intp)
    return counts


def confusion_rates(predictions: ArrayLike, targets: ArrayLike) -> Floats:
    """Give the share of the images with true label i on which label j is named: (c, c).

    The row of a class without images is 0.
    """
    true = as_labels(targets, "targets")
    counts = confusion(predictions, true).astype(np.float64)
    images = np.count_nonzero(true, axis=0).astype(np.float64)
    return _divide(counts, np.broadcast_to(images[:, None], counts.shape))


def as_labels(matrix: object, what: str = "predictions") -> Bools:
    """Give a matrix of booleans, or of 0 and 1, as booleans; refuse all else: (n, c)."""
    array = np.asarray(matrix)
    if array.ndim != 2:
        raise PredictionError(
            f"{what} must be a matrix (images, classes); what came has shape {array.shape}"
        )
    if array.dtype == np.bool_:
        return array
    if np.issubdtype(array.dtype, np.floating):
        raise PredictionError(
            f"{what} must be booleans: which labels are named; what came is {array.dtype}. "
            "Threshold the scores first: logits > 0, or probabilities > 0.5"
        )
    if not np.issubdtype(array.dtype, np.integer):
        raise PredictionError(f"{what} must be booleans, or 0 and 1; what came is {array.dtype}")
    return _from_whole_numbers(array, what)


def _from_whole_numbers(array: NDArray[np.integer], what: str) -> Bools:
    labels: Bools = array == 1
    other = array[~labels & (array != 0)]
    if other.size:
        raise PredictionError(
            f"{what} must be booleans, or 0 and 1; what came has {other[0]} in it. Class numbers "
            "or scores are not understood: give one column a class"
        )
    return labels


def _pair(first: ArrayLike, second: ArrayLike, name: str) -> tuple[Bools, Bools]:
    predicted, other = as_labels(first), as_labels(second, name)
    if predicted.shape != other.shape:
        raise PredictionError(
            f"predictions are {predicted.shape} but {name} are {other.shape}: "
            "give both for the same images and classes"
        )
    return predicted, other


def _parents(parent: ArrayLike, classes: int) -> Ints:
    above = np.asarray(parent)
    if above.shape != (classes,):
        raise PredictionError(
            f"parent must be one column number a class, ({classes},); its shape is {above.shape}"
        )
    if not classes:
        return above.astype(np.intp)
    if not np.issubdtype(above.dtype, np.integer) or above.min() < -1 or above.max() >= classes:
        raise PredictionError(
            f"parent must be column numbers from 0 to {classes - 1}, or -1 for none; "
            f"what came is {above.dtype} from {above.min()} to {above.max()}"
        )
    return above.astype(np.intp)


def _sizes(predictions: ArrayLike, targets: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Give |Y ∩ P|, |P| and |Y| of each image."""
    predicted, true = _pair(predictions, targets, "targets")
    return _count(predicted & true), _count(predicted), _count(true)


def _count(labels: Bools) -> Floats:
    # In the smallest type that holds the number of classes: 4 times as fast as count_nonzero.
    counts = labels.view(np.uint8).sum(axis=1, dtype=np.min_scalar_type(labels.shape[1]))
    return np.asarray(counts, dtype=np.float64)


def _total(cases: Bools) -> int:
    return int(np.count_nonzero(cases))


def _divide(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
