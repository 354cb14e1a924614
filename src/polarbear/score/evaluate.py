"""From predictions to the table of scores: R_j, R_jk, per level, and the paper's questions."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import index

import numpy as np

from polarbear.base.arrays import Bools, Floats, Ints, frozen
from polarbear.base.errors import PredictionError, unknown_name
from polarbear.benchmark.stream import Stream, View
from polarbear.score import metrics
from polarbear.score.metrics import METRICS, Ratio, as_labels
from polarbear.score.table import BY_TASK, ScoreTable, mean

SPLITS = ("test", "post_valid")
LEVELS = ("", "/superclass", "/subclass")
RATIOS = ("label_ratio", "implication", "sibling_error", "late_recall")
SCORE_NAMES = (*(name + level for level in LEVELS for name in METRICS), *RATIOS)

NUMBERS = (bool, int, float, np.generic)

#: Cells of a matrix worked on at a time: 1 MiB stays in the processor's cache.
CHUNK = 2**20


@dataclass(frozen=True, eq=False)
class Relations:
    """How the classes seen after a task lie to each other and to the images.

    ``parent`` (s,) is the column of each class's superclass among the seen, -1 for none.
    ``levels`` marks the columns that count at each level: (s,) each. Subclasses are the leaves,
    with a superclass or without. By an image's leaf, ``siblings`` (c, s) marks its wrong
    siblings: seen classes it does not carry below a class it does, arrived or not. ``late``
    (c, s) marks its seen superclasses whose next class down to the leaf came in a later task.

    >>> from polarbear.benchmark.hierarchy import Hierarchy
    >>> from polarbear.benchmark.schedule import Schedule
    >>> h = Hierarchy.from_children({"bear": ["polar bear", "brown bear"]})
    >>> s = Schedule.of([["bear"], ["polar bear", "brown bear"]])
    >>> relations = Relations.of(Stream.build(h, s, ["polar bear"], ["polar bear"]), after=1)
    >>> relations.parent.tolist(), relations.siblings[h.index("polar bear")].tolist()
    ([-1, 0, 0], [False, False, True])
    """

    parent: Ints
    levels: Mapping[str, Bools]
    siblings: Bools
    late: Bools

    @classmethod
    def of(cls, stream: Stream, after: int) -> "Relations":
        """Work them out for the classes of tasks 0 to ``after``."""
        hierarchy = stream.hierarchy
        seen = np.array([hierarchy.index(name) for name in stream.schedule.seen(after)])
        column = np.full(len(hierarchy) + 1, -1, dtype=np.intp)
        column[seen] = np.arange(len(seen))
        above = hierarchy.parent_array[seen]
        leaf = hierarchy.is_leaf[seen]
        levels = dict(zip(LEVELS, (np.ones_like(leaf), ~leaf, leaf), strict=True))
        # A class without a superclass has no siblings: -1 would mean the last class.
        siblings = hierarchy.closure[:, above] & ~hierarchy.closure[:, seen] & (above >= 0)
        parent = column[above]
        return cls(parent, levels, siblings, _late_superclasses(stream, seen, parent))


class Evaluator:
    """Scores predictions after each task; each image is looked at once.

    Tasks may come in any order and some may be left out; ``split`` is ``"test"`` or
    ``"post_valid"``.

    >>> from polarbear.benchmark.hierarchy import Hierarchy
    >>> from polarbear.benchmark.schedule import Schedule
    >>> h = Hierarchy.from_children({"bear": ["polar bear", "brown bear"]})
    >>> s = Schedule.of([["bear"], ["polar bear", "brown bear"]])
    >>> evaluator = Evaluator(Stream.build(h, s, ["polar bear"], ["polar bear", "brown bear"]))
    >>> evaluator.add(after=0, predictions=np.array([[1], [1]]))["pw_jaccard"]
    1.0
    >>> evaluator.add(after=1, predictions=np.array([[0, 1, 0], [1, 0, 1]]))["pw_jaccard"]
    0.75
    >>> evaluator.table.r.tolist()
    [1.0, 0.75]
    """

    def __init__(self, stream: Stream, split: str = "test") -> None:
        """Score a stream's test or post-task validation images."""
        if split not in SPLITS:
            raise unknown_name("split", split, SPLITS)
        self.stream = stream
        self.split = split
        self._scores: dict[int, dict[str, float]] = {}
        self._by_task: dict[int, dict[str, Floats]] = {}

    def view(self, after: int) -> View:
        """Give the images to predict after a task, and their labels."""
        view: View = getattr(self.stream, self.split)(after)
        return view

    def add(self, after: int, predictions: object) -> Mapping[str, float]:
        """Score predictions made after a task, keep the scores and give them.

        ``predictions`` (n, s), an array or a list of lists, says which of the seen classes, in
        their order of arrival, each image of :meth:`view` is given; or it goes through batches of
        it, of any sizes, in the order of the rows. Nothing is kept of predictions that do not fit.
        """
        after = index(after)
        if after in self._scores:
            raise PredictionError(
                f"task {after} has its scores already: predictions are added once a task; "
                "a new Evaluator starts afresh"
            )
        view = self.view(after)
        labels = _whole_matrix(predictions, view, self._description(after, view))
        relations = Relations.of(self.stream, after)
        images = _score_images(labels, view, relations)
        by_task = self._task_means(images, view, after)
        scores = _level_means(images, view, relations) | _score_pairs(labels, view, relations)
        self._by_task[after], self._scores[after] = by_task, scores
        return dict(scores)

    @property
    def table(self) -> ScoreTable:
        """The scores of the tasks added so far, NaN for the others."""
        tasks = len(self.stream)
        scores = {name: np.full(tasks, np.nan) for name in SCORE_NAMES}
        by_task = {name: np.full((tasks, tasks), np.nan) for name in BY_TASK}
        for after, row in self._scores.items():
            for name, value in row.items():
                scores[name][after] = value
            for name, values in self._by_task[after].items():
                by_task[name][after, : after + 1] = values
        for array in (*scores.values(), *by_task.values()):
            frozen(array)
        return ScoreTable(self.stream.name, self.stream.order, self.split, scores, by_task)

    def _description(self, after: int, view: View) -> str:
        return (
            f"predictions after task {after} must be {(len(view), len(view.classes))}: one row for "
            f"each of the {len(view)} images of stream.{self.split}(after={after}), in its order, "
            f"and one column for each of the {len(view.classes)} seen classes, in their order of "
            f"arrival from {view.classes[0]!r} to {view.classes[-1]!r}"
        )

    def _task_means(
        self, images: Mapping[str, Floats], view: View, after: int
    ) -> dict[str, Floats]:
        """Give R_jk for every k from the scores of the union's images: (after + 1,) each."""
        sizes = [len(task) for task in self.stream.schedule.tasks[: after + 1]]
        first = np.cumsum([0, *sizes[:-1]])
        # An image is one of task k's where it carries any of task k's classes.
        carries = np.logical_or.reduceat(view.label_table, first, axis=1)[view.leaf]
        return {
            name: np.array([mean(images[name][mine]) for mine in carries.T]) for name in BY_TASK
        }


def _late_superclasses(stream: Stream, seen: Ints, parent: Ints) -> Bools:
    hierarchy, arrival = stream.hierarchy, stream.schedule.task_of
    task = np.array([arrival[hierarchy.names[number]] for number in seen])
    late = np.zeros((len(hierarchy), len(seen)), dtype=bool)
    for child in np.flatnonzero((parent >= 0) & (task > task[parent])):
        late[:, parent[child]] |= hierarchy.closure[:, seen[child]]
    return late


def _whole_matrix(predictions: object, view: View, wanted: str) -> Bools:
    """Give predictions, whole or in batches, as one matrix: (n, s)."""
    shape = (len(view), len(view.classes))
    if _is_matrix(predictions, wanted):
        whole = as_labels(predictions)
        if whole.shape != shape:
            raise PredictionError(f"{wanted}. What came is {whole.shape}{_hint(whole, shape)}")
        return whole
    if not isinstance(predictions, Iterable):
        raise PredictionError(f"{wanted}. What came is {predictions!r}, no array and no batches")
    return _join(predictions, shape, wanted)


def _is_matrix(predictions: object, wanted: str) -> bool:
    """Tell one matrix, an array or a list of lists of numbers, from batches."""
    if isinstance(predictions, np.ndarray) or hasattr(predictions, "__array__"):
        return True
    if not isinstance(predictions, list | tuple) or not all(map(_is_row, predictions)):
        return False
    widths = {len(row) for row in predictions}
    if len(widths) > 1:
        raise PredictionError(
            f"{wanted}. What came is a list of rows of {min(widths)} to {max(widths)} numbers"
        )
    return bool(predictions)


def _is_row(row: object) -> bool:
    # One number tells: a list of rows may be long, and a batch of lists begins with a list.
    return isinstance(row, list | tuple) and bool(row) and isinstance(row[0], NUMBERS)


def _join(batches: Iterable[object], shape: tuple[int, int], wanted: str) -> Bools:
    whole = np.empty(shape, dtype=bool)
    filled = 0
    for number, batch in enumerate(batches):
        labels = as_labels(batch, f"batch {number} of the predictions")
        end = filled + len(labels)
        if labels.shape[1] != shape[1] or end > shape[0]:
            raise PredictionError(
                f"{wanted}. Batch {number}, after {filled} rows, is "
                f"{labels.shape}{_hint(labels, shape)}"
            )
        whole[filled:end] = labels
        filled = end
    if filled != shape[0]:
        raise PredictionError(f"{wanted}. The batches have {filled} rows in all")
    return whole


def _hint(labels: Bools, shape: tuple[int, int]) -> str:
    if labels.shape == shape[::-1]:
        return ": transpose it"
    if labels.shape[1] > shape[1]:
        return f": leave out the columns of future classes, predictions[:, :{shape[1]}]"
    if labels.shape[1] == shape[1] and labels.shape[0] > shape[0]:
        return ": keep the view's rows alone, predictions[view.rows], if these are the whole file's"
    return ""


def _chunks(images: int, classes: int) -> Iterator[slice]:
    step = max(1, CHUNK // classes)
    return (slice(start, start + step) for start in range(0, images, step))


def _score_images(labels: Bools, view: View, relations: Relations) -> dict[str, Floats]:
    """Give every metric at every level of every image: (n,) each."""
    scores = {name + level: np.empty(len(view)) for level in LEVELS for name in METRICS}
    for part in _chunks(*labels.shape):
        targets = view.label_table[view.leaf[part]]
        for level, counted in relations.levels.items():
            named, true = labels[part] & counted, targets & counted
            for name, metric in METRICS.items():
                scores[name + level][part] = metric(named, true)
    return scores


def _score_pairs(labels: Bools, view: View, relations: Relations) -> dict[str, float]:
    """Give the ratios, whose counts add up over the chunks without rounding."""
    total = dict.fromkeys(RATIOS, Ratio(0, 0))
    for part in _chunks(*labels.shape):
        named, leaf = labels[part], view.leaf[part]
        ratios = {
            "label_ratio": metrics.label_ratio(named, view.label_table[leaf]),
            "implication": metrics.implication(named, relations.parent),
            "sibling_error": metrics.sibling_error(named, relations.siblings[leaf]),
            "late_recall": metrics.late_recall(named, relations.late[leaf]),
        }
        total = {name: total[name] + ratio for name, ratio in ratios.items()}
    return {name: ratio.value for name, ratio in total.items()}


def _level_means(
    images: Mapping[str, Floats], view: View, relations: Relations
) -> dict[str, float]:
    """Give each metric's mean over the images that carry a label of its level."""
    means: dict[str, float] = {}
    for level, counted in relations.levels.items():
        carries = np.any(view.label_table[:, counted], axis=1)[view.leaf]
        means |= {name + level: mean(images[name + level][carries]) for name in METRICS}
    return means
