"""A benchmark as a sequence of tasks: row numbers and label matrices, no pixels."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike

from polarbear.base.arrays import Bools, Ints, frozen, kept
from polarbear.base.errors import DataError, ScheduleError, unknown_name
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.labels import leaf_numbers, refuse_bad_leaves
from polarbear.benchmark.schedule import Schedule
from polarbear.benchmark.source import FileName, Images, Source
from polarbear.benchmark.split import LeafRows, SplitRule, class_rows, group_by_leaf


@dataclass(frozen=True, eq=False, repr=False)
class View:
    """Some rows of a file with their labels.

    ``rows`` (n,) numbers the training or the test file from 0, ascending. ``targets`` (n, s) says
    which of ``classes``, the seen classes in their order of arrival, each image carries.
    ``leaf`` (n,) is each image's leaf as a number of the hierarchy: the truth behind the labels,
    for scores and pictures, never for training.
    """

    file: FileName
    rows: Ints
    leaf: Ints
    label_table: Bools
    classes: tuple[str, ...]

    def __repr__(self) -> str:
        """Return the file and the numbers of images and classes."""
        return f"View({self.file} file: {len(self):,} images, {len(self.classes)} classes)"

    def __len__(self) -> int:
        """Count the images."""
        return len(self.rows)

    @cached_property
    def targets(self) -> Bools:
        """Label matrix: (n, s)."""
        return frozen(self.label_table[self.leaf])

    def having(self, column: int) -> Bools:
        """Return which images carry the label of a column: (n,)."""
        # By way of the leaves: a label matrix of ImageNet's images would be large.
        found: Bools = self.label_table[:, column][self.leaf]
        return found

    @property
    def label_counts(self) -> Ints:
        """Images with each label: (s,)."""
        return np.bincount(self.leaf, minlength=len(self.label_table)) @ self.label_table


@dataclass(frozen=True, eq=False, repr=False)
class Task:
    """One step of a stream: the classes that arrive and what a learner may see of them.

    ``train`` and ``valid`` carry incomplete information: only labels of this task's ``classes``,
    which are the last columns (``new``) of the ``seen`` classes.
    """

    index: int
    classes: tuple[str, ...]
    seen: tuple[str, ...]
    train: View
    valid: View

    def __repr__(self) -> str:
        """Return what arrives: classes, as far as they fit, and images."""
        shown = ", ".join(self.classes[:3]) + (", …" if len(self.classes) > 3 else "")
        classes = f"{len(self.classes)} new of {len(self.seen)} classes ({shown})"
        images = f"{len(self.train):,} training and {len(self.valid):,} validation images"
        return f"Task({self.index}: {classes}, {images})"

    @property
    def new(self) -> slice:
        """Columns of this task's classes."""
        return slice(len(self.seen) - len(self.classes), len(self.seen))


@dataclass(frozen=True, eq=False, repr=False)
class Stream(Sequence[Task]):
    """Tasks in their order, worked out from leaf labels, a hierarchy and a schedule.

    ``train_leaf`` and ``test_leaf`` are (n,) class numbers of the hierarchy, -1 for a row that
    belongs to no class of it. Usually made by :func:`polarbear.load` or :meth:`Stream.build`.

    >>> h = Hierarchy.from_children({"bear": ["polar bear", "brown bear"]})
    >>> s = Schedule.of([["bear"], ["polar bear", "brown bear"]])
    >>> stream = Stream.build(h, s, ["polar bear"] * 20 + ["brown bear"] * 20, ["polar bear"])
    >>> stream[0].train.rows.tolist(), stream[1].train.targets.shape
    ([4, 5, 6, 7, 8, 9, 24, 25, 26, 27, 28, 29], (24, 3))
    >>> stream.test(after=1).targets.astype(int).tolist()
    [[1, 1, 0]]
    >>> stream
    Stream(custom: 2 tasks, 3 classes, 40 training and 1 test images)
    >>> stream[1]
    Task(1: 2 new of 3 classes (polar bear, brown bear), 24 training and 2 validation images)
    >>> stream.test(after=1)
    View(test file: 1 images, 3 classes)
    """

    hierarchy: Hierarchy
    schedule: Schedule
    train_leaf: Ints
    test_leaf: Ints
    rule: SplitRule = field(default_factory=SplitRule)
    source: Source | None = None
    name: str = "custom"
    order: int | None = None
    file_order: Ints | None = None

    def __repr__(self) -> str:
        """Return the name, the order and the numbers of tasks, classes and images."""
        name = self.name if self.order is None else f"{self.name}, order {self.order}"
        images = f"{len(self.train_leaf):,} training and {len(self.test_leaf):,} test images"
        return f"Stream({name}: {len(self)} tasks, {len(self.classes)} classes, {images})"

    def __post_init__(self) -> None:
        """Refuse a schedule or leaves that do not fit the hierarchy."""
        for name in self.schedule.classes:
            self.hierarchy.index(name)
        for name in ("train_leaf", "test_leaf"):
            refuse_bad_leaves(name, getattr(self, name), self.hierarchy)
            object.__setattr__(self, name, kept(getattr(self, name)))
        if self.file_order is not None:
            rows = np.sort(self.file_order, kind="stable")
            if not np.array_equal(rows, np.arange(len(self.train_leaf))):
                raise DataError("file_order must name every training row once")
            object.__setattr__(self, "file_order", kept(np.asarray(self.file_order)))

    @classmethod
    def build(
        cls,
        hierarchy: Hierarchy,
        schedule: Schedule,
        leaf_train: ArrayLike,
        leaf_test: ArrayLike,
        *,
        rule: SplitRule | None = None,
        ignore: Sequence[str] = (),
        **more: Any,
    ) -> "Stream":
        """Build from leaf names (or hierarchy numbers), one a row.

        Rows of the classes in ``ignore`` are left out; any other unknown name is an error.
        """
        train = leaf_numbers(hierarchy, leaf_train, ignore)
        test = leaf_numbers(hierarchy, leaf_test, ignore)
        return cls(hierarchy, schedule, train, test, rule or SplitRule(), **more)

    @classmethod
    def from_source(
        cls,
        source: Source,
        hierarchy: Hierarchy,
        schedule: Schedule,
        *,
        rule: SplitRule | None = None,
        ignore: Sequence[str] = (),
        **more: Any,
    ) -> "Stream":
        """Build from a data source, whose leaves must be the hierarchy's."""
        number = leaf_numbers(hierarchy, source.leaves, ignore)
        more = {"source": source, "file_order": source.file_order} | more
        return cls(
            hierarchy,
            schedule,
            frozen(number[source.train_leaf]),
            frozen(number[source.test_leaf]),
            rule or SplitRule(),
            **more,
        )

    @property
    def classes(self) -> tuple[str, ...]:
        """Every class of the stream in its order of arrival."""
        return self.schedule.classes

    def __len__(self) -> int:
        """Count the tasks."""
        return len(self.schedule)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> list[Task]: ...
    def __getitem__(self, index: int | slice) -> Task | list[Task]:
        """Return a task (or a list of tasks for a slice)."""
        if isinstance(index, slice):
            return [self[i] for i in range(len(self))[index]]
        try:
            index = range(len(self))[index]
        except IndexError:
            raise IndexError(f"no task {index}: tasks are 0 to {len(self) - 1}") from None
        classes, seen = self.schedule.tasks[index], self.schedule.seen(index)
        complete = self._label_table(index)
        table = np.zeros_like(complete)
        table[:, -len(classes) :] = complete[:, -len(classes) :]
        train, valid = (
            self._view("train", self._task_rows[split][index], frozen(table), seen)
            for split in ("train", "valid")
        )
        return Task(index, classes, seen, train, valid)

    def train(self, after: int, task: int | None = None) -> View:
        """Return training rows of tasks 0..after (or of one) with complete labels.

        What joint and incremental joint training see; every other learner gets ``stream[i].train``.
        """
        return self._complete("train", after, task)

    def valid(self, after: int, task: int | None = None) -> View:
        """Return in-task validation rows of tasks 0..after (or of one) with complete labels."""
        return self._complete("valid", after, task)

    def post_valid(self, after: int, task: int | None = None) -> View:
        """Return post-task validation rows of tasks 0..after (or of one) with complete labels."""
        return self._complete("post_valid", after, task)

    def test(self, after: int, task: int | None = None) -> View:
        """Return test rows of tasks 0..after (or of one), labelled among the seen classes."""
        return self._complete("test", after, task)

    def images(self, file: FileName) -> Images:
        """Return the pixels of the training or the test file: ``images("train")[rows]``."""
        if file not in ("train", "test"):
            raise unknown_name("file", file, ("train", "test"))
        if self.source is None:
            raise DataError(
                f"{self.name} was built from labels alone, so it has no images: "
                "load it with root=… or build it from a Source"
            )
        return self.source.images(file)

    def _complete(self, split: str, after: int, task: int | None) -> View:
        if not 0 <= after < len(self):
            raise ScheduleError(f"after={after}: tasks are 0 to {len(self) - 1}")
        if task is not None and not 0 <= task <= after:
            raise ScheduleError(f"task={task}: after task {after}, tasks 0 to {after} have come")
        tasks = range(after + 1) if task is None else range(task, task + 1)
        file: FileName = "test" if split == "test" else "train"
        if split in ("train", "valid"):
            rows = _union([self._task_rows[split][i] for i in tasks])
        else:
            wanted = np.any(self._leaf_in_task[list(tasks)], axis=0)
            rows = np.arange(len(self.test_leaf)) if split == "test" else self._post_rows
            rows = rows[wanted[self._leaf(file)[rows]]]
        return self._view(file, rows, self._label_table(after), self.schedule.seen(after))

    def _view(self, file: FileName, rows: Ints, table: Bools, seen: tuple[str, ...]) -> View:
        return View(file, frozen(rows), frozen(self._leaf(file)[rows]), table, seen)

    def _leaf(self, file: FileName) -> Ints:
        return self.train_leaf if file == "train" else self.test_leaf

    def _label_table(self, after: int) -> Bools:
        """Labels an image of each class carries among the seen: (c, s)."""
        return self._arrival_closure[:, : len(self.schedule.seen(after))]

    @cached_property
    def _arrival_closure(self) -> Bools:
        """The hierarchy's closure with columns in order of arrival: (c, s)."""
        arrival = [self.hierarchy.index(name) for name in self.classes]
        # Indexing columns leaves them in column order, in which gathering rows is 5 times slower.
        return frozen(np.ascontiguousarray(self.hierarchy.closure[:, arrival]))

    @cached_property
    def _grouped(self) -> LeafRows:
        return group_by_leaf(self.train_leaf, self.hierarchy, self.rule, self.file_order)

    @cached_property
    def _task_rows(self) -> dict[str, list[Ints]]:
        """Split → the rows of each task."""
        rows = partial(class_rows, grouped=self._grouped, rule=self.rule)
        return {
            split: [
                _union([part for name in task for part in rows(name, split)])
                for task in self.schedule.tasks
            ]
            for split in ("train", "valid")
        }

    @cached_property
    def _leaf_in_task(self) -> Bools:
        """Whether an image of each class belongs to each task: (t, c + 1); the last is no class."""
        first = np.cumsum([0, *map(len, self.schedule.tasks[:-1])])
        belongs = np.logical_or.reduceat(self._arrival_closure, first, axis=1).T
        return np.pad(belongs, ((0, 0), (0, 1)))

    @cached_property
    def _post_rows(self) -> Ints:
        begin, size = self._grouped.parts["post_valid"]
        first = self._grouped.start[:-1] + begin
        return _union([self._grouped.rows[a : a + n] for a, n in zip(first, size, strict=True)])


def _union(parts: list[Ints]) -> Ints:
    # Parts are mostly ascending, and a stable sort merges runs: 10 times faster on ImageNet.
    rows = np.sort(np.concatenate(parts), kind="stable") if parts else np.empty(0, np.intp)
    return rows[np.concatenate([[True], rows[1:] != rows[:-1]])] if rows.size else rows
