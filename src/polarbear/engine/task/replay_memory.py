"""What a learner keeps of earlier tasks: rows, the labels it saw with them, what it stored."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polarbear.base.arrays import Bools, Floats, Ints, frozen
from polarbear.base.errors import DataError
from polarbear.benchmark.stream import Task
from polarbear.engine.task.labels import Labels

Select = Callable[[int, Ints, int], Ints]
"""``select(column, rows, count)`` gives the rows of a class to keep, the dearest first."""

Store = Callable[[Ints, Bools], Mapping[str, NDArray[Any]]]
"""``store(rows, targets)`` gives what is kept with images, by name: arrays (n, …)."""

ANY_CLASS = -1  # the column of a list that holds images of all classes: a reservoir


@dataclass(frozen=True, eq=False)
class ClassList:
    """Stored images of one class: ``rows`` (n,) and their labels in the task they came in.

    ``labels`` (n, new) has the columns ``first`` to ``first + new``: a task shows no others.
    ``stored`` is what the method keeps with the images, by name: (n, …).
    """

    column: int
    rows: Ints
    first: int
    labels: Bools
    stored: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def cut(self, count: int) -> "ClassList":
        """Return the first ``count`` images."""
        stored = {name: array[:count] for name, array in self.stored.items()}
        return ClassList(self.column, self.rows[:count], self.first, self.labels[:count], stored)


@dataclass(frozen=True, eq=False)
class ReplayMemory:
    """One list of stored images a class, in the order of arrival.

    Rows number the training file, so pixels are never copied. The same row can be in two lists,
    with the labels of two tasks: once as a bear, once as a polar bear. A reservoir is one list for
    all classes; ``offered`` images were offered to it in the tasks before.

    >>> from polarbear.named.registry import load
    >>> task = load("iirc-shapes")[0]
    >>> memory = ReplayMemory().add(task, lambda column, rows, count: rows[:count], per_class=20)
    >>> len(memory), memory.targets(seen=len(task.seen) + 5).sum(axis=1).tolist() == [1] * 20 * 6
    (120, True)
    """

    lists: tuple[ClassList, ...] = ()
    offered: int = 0

    def __len__(self) -> int:
        """Count the stored images."""
        return len(self.rows)

    def add(
        self,
        task: Task,
        select: Select,
        per_class: int | None = None,
        total: int | None = None,
        store: Store | None = None,
    ) -> "ReplayMemory":
        """Return a memory that also holds images of a task's classes, and what ``store`` gives.

        ``per_class`` limits every list; ``total`` replaces it by an equal share for each seen
        class, rounded up, and cuts older lists from their end. Without a limit all is kept.
        """
        count = _share(per_class, total, len(task.seen))
        _refuse_known_classes(self, task)
        columns = range(task.new.start, task.new.stop)
        new = ReplayMemory(tuple(_choose(task, column, select, count) for column in columns))
        if store is not None:
            new = new._with_stored(store(new.rows, new.targets(len(task.seen))))
        old = self.lists if count is None else tuple(one.cut(count) for one in self.lists)
        return ReplayMemory(old + new.lists)

    @cached_property
    def rows(self) -> Ints:
        """Row of each stored image in the training file: (m,)."""
        return frozen(_join([one.rows for one in self.lists], np.intp))

    @cached_property
    def classes(self) -> Ints:
        """Column of the class in whose list each stored image is: (m,)."""
        columns = np.array([one.column for one in self.lists], dtype=np.intp)
        return frozen(np.repeat(columns, self._counts))

    def targets(self, seen: int) -> Bools:
        """Return the labels each image was stored with, False for later classes: (m, seen).

        ``seen`` is the number of classes seen by now.
        """
        return self.labels(seen).targets

    def labels(self, seen: int) -> Labels:
        """Return the same without a matrix."""
        last = max((one.first + one.labels.shape[1] for one in self.lists), default=0)
        if seen < last:
            raise DataError(f"seen={seen}: this memory has labels of {last} classes already")
        parts = [Labels(np.zeros((0, seen), dtype=bool), np.empty(0, dtype=np.intp))]
        for one in self.lists:
            own = Labels.of_targets(one.labels)
            table = np.zeros((len(own.table), seen), dtype=bool)
            table[:, one.first : one.first + one.labels.shape[1]] = own.table
            parts.append(Labels(table, own.kind))
        return Labels.joined(parts)

    @cached_property
    def stored(self) -> Mapping[str, NDArray[Any]]:
        """What the method keeps with the images, by name: (m, …).

        Images without it have zeros; shorter rows, as of logits when there were fewer classes,
        have zeros at their end.
        """
        names = dict.fromkeys(name for one in self.lists for name in one.stored)
        return {name: frozen(_joined_rows(self.lists, name)) for name in names}

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return plain arrays for a checkpoint."""
        return {
            "columns": np.array([one.column for one in self.lists], dtype=np.int64),
            "firsts": np.array([one.first for one in self.lists], dtype=np.int64),
            "widths": np.array([one.labels.shape[1] for one in self.lists], dtype=np.int64),
            "counts": self._counts.astype(np.int64),
            "rows": self.rows.astype(np.int64),
            "labels": _join([one.labels.ravel() for one in self.lists], np.bool_),
            **({"offered": np.array(self.offered, dtype=np.int64)} if self.offered else {}),
            **{f"{_STORED}{name}": array for name, array in self.stored.items()},
        }

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "ReplayMemory":
        """Build from the arrays of :meth:`to_arrays`."""
        missing = _ARRAYS - arrays.keys()
        if missing:
            raise DataError(f"a stored memory lacks the arrays {', '.join(sorted(missing))}")
        counts, widths = arrays["counts"], arrays["widths"]
        held = (len(arrays["rows"]), len(arrays["labels"]))
        if held != (counts.sum(), (counts * widths).sum()):
            raise DataError(
                f"a stored memory should have {counts.sum()} rows and {(counts * widths).sum()} "
                f"labels but has {held[0]} and {held[1]}: the file is damaged"
            )
        rows = np.split(arrays["rows"].astype(np.intp), np.cumsum(counts)[:-1])
        labels = np.split(arrays["labels"].astype(bool), np.cumsum(counts * widths)[:-1])
        places = zip(arrays["columns"].tolist(), arrays["firsts"].tolist(), strict=True)
        lists = tuple(
            ClassList(column, frozen(r), first, frozen(block.reshape(len(r), width)))
            for (column, first), r, block, width in zip(
                places, rows, labels, widths.tolist(), strict=False
            )
        )
        stored = {k[len(_STORED) :]: a for k, a in arrays.items() if k.startswith(_STORED)}
        return cls(lists, int(arrays.get("offered", 0)))._with_stored(stored)

    def _with_stored(self, stored: Mapping[str, NDArray[Any]]) -> "ReplayMemory":
        """Return the same images with arrays (m, …) kept beside them."""
        for name, array in stored.items():
            if len(array) != len(self):
                raise DataError(
                    f"{len(array)} rows of {name!r} are stored with {len(self)} images: each needs "
                    "one, so the file is damaged"
                )
        ends = np.cumsum(self._counts)
        lists = tuple(
            replace(
                one, stored={k: frozen(a[end - len(one.rows) : end]) for k, a in stored.items()}
            )
            for one, end in zip(self.lists, ends.tolist(), strict=True)
        )
        return ReplayMemory(lists, self.offered)

    @property
    def _counts(self) -> Ints:
        return np.array([len(one.rows) for one in self.lists], dtype=np.intp)


_ARRAYS = {"columns", "firsts", "widths", "counts", "rows", "labels"}
_STORED = "stored/"


def random_choice(rows: Ints, count: int, random: np.random.Generator) -> Ints:
    """Return ``count`` of the rows, each equally likely, none twice; all where there are fewer."""
    return random.choice(rows, min(count, len(rows)), replace=False)


def herding(features: NDArray[np.floating[Any]], count: int) -> Ints:
    """Return the ``count`` images whose running mean stays nearest to the mean of all, in order.

    ``features`` (n, d) are scaled to length 1 first; their mean is not scaled again.

    >>> herding(np.array([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]]), 3).tolist()
    [1, 0, 2]
    """
    exact = np.asarray(features, dtype=np.float64)
    unit: Floats = exact / np.maximum(np.linalg.norm(exact, axis=1, keepdims=True), 1e-12)
    if not len(unit):
        return np.empty(0, dtype=np.intp)
    mean = unit.mean(axis=0)
    lengths = np.einsum("nd,nd->n", unit, unit)
    total = np.zeros_like(mean)
    chosen: list[int] = []
    for size in range(1, min(count, len(unit)) + 1):
        # |size·mean − total − f|² without its constant: one matrix–vector product a choice.
        distance = lengths - 2 * (unit @ (size * mean - total))
        distance[chosen] = np.inf
        chosen.append(int(np.argmin(distance)))
        total += unit[chosen[-1]]
    return np.array(chosen, dtype=np.intp)


def _share(per_class: int | None, total: int | None, seen: int) -> int | None:
    for name, value in (("per_class", per_class), ("total", total)):
        if value is not None and value < 1:
            raise DataError(f"{name}={value}: a memory keeps at least 1 image (None keeps all)")
    return per_class if total is None else math.ceil(total / seen)


def _refuse_known_classes(memory: ReplayMemory, task: Task) -> None:
    known = {one.column for one in memory.lists}
    for column, name in zip(range(task.new.start, task.new.stop), task.classes, strict=True):
        if column in known:
            raise DataError(f"class {name!r} is in memory already: add each task once")


def _choose(task: Task, column: int, select: Select, count: int | None) -> ClassList:
    pool = np.flatnonzero(task.train.having(column))
    rows = task.train.rows[pool]
    if count is not None:
        kept = select(column, rows, min(count, len(rows)))
        pool = pool[_positions(kept, rows)]
    labels = np.ascontiguousarray(task.train.label_table[task.train.leaf[pool], task.new])
    return ClassList(column, frozen(task.train.rows[pool]), task.new.start, frozen(labels))


def _positions(kept: Ints, rows: Ints) -> Ints:
    """Return where each kept row stands among the rows it was chosen from."""
    if len(np.unique(kept)) != len(kept) or not np.isin(kept, rows).all():
        raise DataError("a selection must give rows of the class it was asked for, none twice")
    order = np.argsort(rows)
    return order[np.searchsorted(rows, kept, sorter=order)]


def _join(parts: list[NDArray[Any]], dtype: type[np.generic]) -> NDArray[Any]:
    return np.concatenate(parts) if parts else np.empty(0, dtype=dtype)


def _joined_rows(lists: tuple[ClassList, ...], name: str) -> NDArray[Any]:
    """Return what is stored by a name in each list, one below the other, padded to one shape."""
    parts = [one.stored[name] for one in lists if name in one.stored]
    if len({part.ndim for part in parts}) > 1:
        shapes = ", ".join(str(part.shape[1:]) for part in parts)
        raise DataError(
            f"what is stored as {name!r} has shapes of different lengths ({shapes}): rows may "
            "become longer from task to task, but have as many dimensions"
        )
    shape = np.max([part.shape[1:] for part in parts], axis=0).astype(int).tolist()
    count = sum(len(one.rows) for one in lists)
    joined = np.zeros((count, *shape), dtype=np.result_type(*[part.dtype for part in parts]))
    begin = 0
    for one in lists:
        if name in one.stored:
            part = one.stored[name]
            there = (slice(begin, begin + len(part)), *map(slice, part.shape[1:]))
            joined[there] = part
        begin += len(one.rows)
    return joined
