"""Scores of predicted label sets: pure functions on boolean matrices.

A matrix (n, c) says which of c classes each of n images is given: row i is a set of labels.
Predictions come first, targets second. A score of single images, such as :func:`pw_jaccard`, is
(n,) and between 0 and 1; an empty prediction scores 0. A score of pairs of labels, such as
:func:`implication`, is a :class:`Ratio` of two counts, NaN where it does not apply.

To add a score, add its function and, at the end, its entry in the catalogue: the evaluator, the
command line and the report take everything else from there.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from polarbear.base.arrays import Bools, Floats, Ints
from polarbear.score.catalogue import ImageScore, PairScore, Shown, register_score
from polarbear.score.label_matrix import as_labels, label_pair, parent_columns


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
    """Return |Y ∩ P| / |Y ∪ P| of each image: (n,)."""
    both, predicted, true = _sizes(predictions, targets)
    return _divide(both, predicted + true - both)


def pw_jaccard(predictions: ArrayLike, targets: ArrayLike) -> Floats:
    """Return the precision-weighted Jaccard score, Jaccard × |Y ∩ P| / |P|, of each image: (n,).

    The score of the paper. One of two labels predicted, both and a wrong one, none:

    >>> pw_jaccard([[0, 1, 0], [1, 1, 1], [0, 0, 0]], [[1, 1, 0]] * 3).round(3).tolist()
    [0.5, 0.444, 0.0]
    """
    both, predicted, true = _sizes(predictions, targets)
    score: Floats = _divide(both, predicted + true - both) * _divide(both, predicted)
    return score


def exact_match(predictions: ArrayLike, targets: ArrayLike) -> Floats:
    """Return 1 for each image whose labels are predicted, all and no other, else 0: (n,)."""
    both, predicted, true = _sizes(predictions, targets)
    return np.asarray((both == predicted) & (both == true) & (predicted > 0), dtype=np.float64)


def precision(predictions: ArrayLike, targets: ArrayLike) -> Floats:
    """Return the true share |Y ∩ P| / |P| of what is predicted, of each image: (n,)."""
    both, predicted, _ = _sizes(predictions, targets)
    return _divide(both, predicted)


def recall(predictions: ArrayLike, targets: ArrayLike) -> Floats:
    """Return the predicted share |Y ∩ P| / |Y| of what is true, of each image: (n,)."""
    both, _, true = _sizes(predictions, targets)
    return _divide(both, true)


def f1(predictions: ArrayLike, targets: ArrayLike) -> Floats:
    """Return the harmonic mean of precision and recall, 2 |Y ∩ P| / (|Y| + |P|): (n,)."""
    both, predicted, true = _sizes(predictions, targets)
    return _divide(2 * both, predicted + true)


def label_ratio(predictions: ArrayLike, targets: ArrayLike) -> Ratio:
    """Return predicted labels ÷ true labels: above 1, too many are predicted; below, too few.

    >>> label_ratio([[1, 1, 1], [0, 0, 0]], [[1, 1, 0], [1, 1, 0]]).value
    0.75
    """
    predicted, true = label_pair(predictions, targets, "targets")
    return Ratio(_total(predicted), _total(true))


def implication(predictions: ArrayLike, parent: ArrayLike) -> Ratio:
    """Return how often a seen superclass is predicted when its subclass is predicted.

    The cases are all pairs of an image and a class predicted on it, right or wrong, whose
    superclass is among the columns. ``parent`` (c,) is the column of each class's superclass,
    -1 for none.

    >>> implication([[1, 1], [0, 1]], parent=[-1, 0])
    Ratio(count=1, of=2)
    """
    predicted = as_labels(predictions)
    above = parent_columns(parent, predicted.shape[1])
    image, label = np.divmod(np.flatnonzero(predicted), max(len(above), 1))
    up = above[label]
    image, up = image[up >= 0], up[up >= 0]
    return Ratio(_total(predicted[image, up]), len(up))


def sibling_error(predictions: ArrayLike, siblings: ArrayLike) -> Ratio:
    """Return how often a wrong sibling is predicted, among images that have one.

    ``siblings`` (n, c) marks each image's wrong siblings: classes it does not carry whose
    superclass it does (:attr:`polarbear.score.relations.Relations.siblings` works them out).

    >>> sibling_error([[1, 0, 1], [1, 1, 0]], siblings=[[0, 0, 1], [0, 0, 1]])
    Ratio(count=1, of=2)
    """
    predicted, wrong = label_pair(predictions, siblings, "siblings")
    return Ratio(_total(np.any(predicted & wrong, axis=1)), _total(np.any(wrong, axis=1)))


def late_recall(predictions: ArrayLike, late: ArrayLike) -> Ratio:
    """Return how often a superclass is predicted on images of subclasses learnt later than it.

    ``late`` (n, c) marks, for each image, the superclasses it carries whose subclass on this image
    arrived in a later task (:attr:`polarbear.score.relations.Relations.late` works them out).

    >>> late_recall([[1, 0, 1], [0, 1, 0]], late=[[1, 0, 0], [1, 0, 0]])
    Ratio(count=1, of=2)
    """
    predicted, wanted = label_pair(predictions, late, "late")
    return Ratio(_total(predicted & wanted), _total(wanted))


def confusion(predictions: ArrayLike, targets: ArrayLike) -> Ints:
    """Count the images with true label i (row) on which label j (column) is predicted: (c, c).

    For the paper's figure after task j: ``confusion(p, stream.test(after=j).targets)``, whose
    classes are in their order of arrival.

    >>> confusion([[1, 1, 0], [0, 0, 1]], [[1, 1, 0], [1, 0, 1]]).tolist()
    [[1, 1, 1], [1, 1, 0], [0, 0, 1]]
    """
    predicted, true = label_pair(predictions, targets, "targets")
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
    """Return the share of the images with true label i on which label j is predicted: (c, c).

    The row of a class without images is 0.
    """
    true = as_labels(targets, "targets")
    counts = confusion(predictions, true).astype(np.float64)
    images = np.count_nonzero(true, axis=0).astype(np.float64)
    return _divide(counts, np.broadcast_to(images[:, None], counts.shape))


def _sizes(predictions: ArrayLike, targets: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Return |Y ∩ P|, |P| and |Y| of each image."""
    predicted, true = label_pair(predictions, targets, "targets")
    return _count(predicted & true), _count(predicted), _count(true)


def _count(labels: Bools) -> Floats:
    # In the smallest type that holds the number of classes: 4 times as fast as count_nonzero.
    counts = labels.view(np.uint8).sum(axis=1, dtype=np.min_scalar_type(labels.shape[1]))
    return np.asarray(counts, dtype=np.float64)


def _total(cases: Bools) -> int:
    return int(np.count_nonzero(cases))


def _divide(part: Floats, whole: Floats) -> Floats:
    return np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)


# The entries: what each score is called and where it is shown. Scores of single images are worked
# out for all labels ("") and for each level alone; scores of pairs, in the order of their lines in
# ``scores.jsonl``.
for entry in (
    ImageScore(
        "pw_jaccard",
        pw_jaccard,
        "pw-JS",
        "Jaccard score × precision: the paper’s score; wrong labels cost most",
        shown={
            "": Shown(
                column="R_j",
                legend="precision-weighted Jaccard similarity of all images seen so far; super, "
                "sub: among superclasses, among leaves.",
                head="pw-JS",
                question="How well does it label all it has met so far?",
            ),
            "/superclass": Shown(
                column="super",
                head="superclasses",
                question="Does it still predict superclasses, as well as it did?",
            ),
            "/subclass": Shown(column="sub", head="subclasses"),
        },
    ),
    ImageScore(
        "jaccard",
        jaccard,
        "Jaccard",
        "labels both predicted and true ÷ labels predicted or true",
        shown={"": Shown(column="Jaccard", head="Jaccard")},
    ),
    ImageScore(
        "exact_match",
        exact_match,
        "exact match",
        "share of images with all their labels predicted and no other",
        shown={"": Shown(head="exact match")},
    ),
    ImageScore("precision", precision, "precision", "share of the predicted labels that are true"),
    ImageScore("recall", recall, "recall", "share of the true labels that are predicted"),
    ImageScore("f1", f1, "F1", "harmonic mean of precision and recall"),
    PairScore(
        "label_ratio",
        lambda compared: label_ratio(compared.predicted, compared.true),
        "label ratio",
        "predicted labels ÷ true labels: above 1 too many are predicted, below 1 too few",
        better="one",
        shown={
            "": Shown(
                column="labels",
                legend="predicted ÷ true number of labels.",
                head="labels ÷ true",
                question="Does it predict too many labels, or too few?",
            )
        },
    ),
    PairScore(
        "implication",
        lambda compared: implication(compared.predicted, compared.parent),
        "implication",
        "how often the superclass is predicted when its subclass is predicted",
        shown={
            "": Shown(
                column="implic.",
                legend="how often a predicted subclass comes with its superclass.",
                head="implication",
                question="When it predicts a fine label, does it predict the coarse one above it?",
                asked="Does it still predict the superclass?",
                share_of="the subclasses it predicts",
                answer="come with their superclass.",
                panel="implication: predicted subclasses\nthat come with their superclass",
            )
        },
        cases=lambda predicted, parent: _total(predicted[:, parent >= 0]),
    ),
    PairScore(
        "sibling_error",
        lambda compared: sibling_error(compared.predicted, compared.siblings),
        "sibling error",
        "share of images on which a wrong sibling of the true subclass is predicted",
        better="low",
        shown={
            "": Shown(
                column="sibling",
                legend="how often a wrong sibling is predicted (lower is better).",
                head="sibling error",
                question="Does it confuse a subclass with its siblings?",
                asked="Does it predict wrong siblings?",
                share_of="the images",
                answer="get a wrong sibling's label.",
                panel="sibling error: images given\na wrong sibling's label",
            )
        },
    ),
    PairScore(
        "late_recall",
        lambda compared: late_recall(compared.predicted, compared.late),
        "late recall",
        "how often a superclass is predicted on images of subclasses learnt in a later task",
        shown={
            "": Shown(
                column="late",
                legend="how often a superclass is predicted on images of subclasses learnt later.",
                head="late recall",
                question="Does it predict a known superclass on subclasses it learnt later?",
                asked="Does it know an old superclass on new subclasses?",
                share_of="the images of later subclasses",
                answer="get it.",
                panel="late recall: images of later\nsubclasses given their superclass",
            )
        },
    ),
):
    register_score(entry)
