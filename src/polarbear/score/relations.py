"""How the classes seen after a task lie to each other, and predictions held against that."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from polarbear.base.arrays import Bools, Ints
from polarbear.benchmark.stream import Stream

#: Which labels count: all, superclasses alone, leaves alone.
LEVELS = ("", "/superclass", "/subclass")


@dataclass(frozen=True, eq=False)
class Compared:
    """Predictions for some images, (n, s), and all that a score of pairs may hold them against.

    ``true`` (n, s) are the labels; ``parent`` (s,), ``siblings`` (n, s) and ``late`` (n, s) are
    those of :class:`Relations`, for these images.
    """

    predicted: Bools
    true: Bools
    parent: Ints
    siblings: Bools
    late: Bools


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


def _late_superclasses(stream: Stream, seen: Ints, parent: Ints) -> Bools:
    hierarchy, arrival = stream.hierarchy, stream.schedule.task_of
    task = np.array([arrival[hierarchy.names[number]] for number in seen])
    late = np.zeros((len(hierarchy), len(seen)), dtype=bool)
    for child in np.flatnonzero((parent >= 0) & (task > task[parent])):
        late[:, parent[child]] |= hierarchy.closure[:, seen[child]]
    return late
