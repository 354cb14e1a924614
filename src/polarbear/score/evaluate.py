"""From predictions to the table of scores: R_j, R_jk, per level, and the paper's questions."""

from collections.abc import Mapping
from operator import index

import numpy as np

from polarbear.base.arrays import Bools, Floats
from polarbear.base.errors import PredictionError, unknown_name
from polarbear.benchmark.stream import Stream, View
from polarbear.score.catalogue import image_scores, pair_scores
from polarbear.score.decide import Truth
from polarbear.score.label_matrix import whole_matrix
from polarbear.score.metrics import Ratio
from polarbear.score.parents import as_parents, parent_scores
from polarbear.score.record import BY_TASK, ScoreRecord
from polarbear.score.relations import Compared, Relations
from polarbear.score.table import ScoreTable, mean

SPLITS = ("test", "post_valid")

#: Cells of a matrix worked on at a time: 1 MiB stays in the processor's cache.
CHUNK = 2**20


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
    >>> evaluator
    Evaluator(custom, test: 2 of 2 tasks, R_1 = 0.750)
    """

    def __init__(self, stream: Stream, split: str = "test") -> None:
        """Score a stream's test or post-task validation images."""
        if split not in SPLITS:
            raise unknown_name("split", split, SPLITS)
        self.stream = stream
        self.split = split
        self._records: dict[int, ScoreRecord] = {}

    def __repr__(self) -> str:
        """Return what is scored, how many tasks were added, and the last R_j."""
        return repr(self.table).replace("ScoreTable", "Evaluator", 1)

    def view(self, after: int) -> View:
        """Return the images to predict after a task, and their labels."""
        view: View = getattr(self.stream, self.split)(after)
        return view

    def add(self, after: int, predictions: object, parents: object = None) -> Mapping[str, float]:
        """Score predictions made after a task, keep the scores and return them.

        ``predictions`` (n, s), an array or a list of lists, says which of the seen classes, in
        their order of arrival, each image of :meth:`view` is given; or it goes through batches of
        it, of any sizes, in the order of the rows. Nothing is kept of predictions that do not fit.
        ``parents`` (s,) has the column of the class that lies above each, or -1, where a method
        infers that: it is scored, too.
        """
        after = index(after)
        if after in self._records:
            raise PredictionError(
                f"task {after} has its scores already: predictions are added once per task; "
                "a new Evaluator starts afresh"
            )
        view = self.view(after)
        shape = (len(view), len(view.classes))
        wanted = (
            f"predictions after task {after} must be {shape}: one row for each of the {len(view)} "
            f"images of stream.{self.split}(after={after}), in its order, and one column for each "
            f"of the {len(view.classes)} seen classes, in their order of arrival from "
            f"{view.classes[0]!r} to {view.classes[-1]!r}"
        )
        labels = whole_matrix(predictions, shape, wanted)
        relations = Relations.of(self.stream, after)
        images, pairs = _score_chunks(labels, view, relations)
        by_task = self._task_means(images, view, after)
        scores = _level_means(images, view, relations) | pairs
        tree = None
        if parents is not None:
            true = Truth.of(self.stream.hierarchy, view.classes).parents
            scores |= parent_scores(parents, true)
            tree = tuple(as_parents(parents, len(true)).tolist())
        self._records[after] = ScoreRecord(after, self.split, scores, by_task, tree)
        return dict(scores)

    @property
    def table(self) -> ScoreTable:
        """The scores of the tasks added so far, NaN for the others."""
        stream, records = self.stream, self._records.values()
        return ScoreTable.of(stream.name, stream.order, self.split, len(stream), records)

    def record(self, after: int) -> ScoreRecord:
        """Return the scores after a task that was added, as a run folder keeps them."""
        if after not in self._records:
            raise PredictionError(
                f"the evaluator has no scores after task {after}: "
                f"call evaluator.add(after={after}, predictions=…) first"
            )
        return self._records[after]

    def _task_means(
        self, images: Mapping[str, Floats], view: View, after: int
    ) -> dict[str, Floats]:
        """Return R_jk for every k from the scores of the union's images: (after + 1,) each."""
        sizes = [len(task) for task in self.stream.schedule.tasks[: after + 1]]
        first = np.cumsum([0, *sizes[:-1]])
        # An image is one of task k's where it carries any of task k's classes.
        carries = np.logical_or.reduceat(view.label_table, first, axis=1)[view.leaf]
        return {
            name: np.array([mean(images[name][mine]) for mine in carries.T]) for name in BY_TASK
        }


def _score_chunks(
    labels: Bools, view: View, relations: Relations
) -> tuple[dict[str, Floats], dict[str, float]]:
    """Return the scores of images at every level, (n,) each, and those of pairs.

    The counts of pairs add up over the chunks without rounding.
    """
    images = {
        s.name + level: np.empty(len(view)) for level in relations.levels for s in image_scores()
    }
    pairs = {score.name: Ratio(0, 0) for score in pair_scores()}
    step = max(1, CHUNK // labels.shape[1])
    for start in range(0, len(labels), step):
        part = slice(start, start + step)
        leaf, predicted = view.leaf[part], labels[part]
        true = view.label_table[leaf]
        for level, counted in relations.levels.items():
            here = predicted & counted, true & counted
            for image_score in image_scores():
                images[image_score.name + level][part] = image_score.compute(*here)
        siblings, late = relations.siblings[leaf], relations.late[leaf]
        compared = Compared(predicted, true, relations.parent, siblings, late)
        for score in pair_scores():
            pairs[score.name] += score.compute(compared)
    return images, {name: ratio.value for name, ratio in pairs.items()}


def _level_means(
    images: Mapping[str, Floats], view: View, relations: Relations
) -> dict[str, float]:
    """Return each score's mean over the images that carry a label of its level."""
    means: dict[str, float] = {}
    for level, counted in relations.levels.items():
        carries = np.any(view.label_table[:, counted], axis=1)[view.leaf]
        names = (score.name + level for score in image_scores())
        means |= {name: mean(images[name][carries]) for name in names}
    return means
