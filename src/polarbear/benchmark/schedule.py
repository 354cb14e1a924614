"""Which classes arrive in which task."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from polarbear.base.errors import ScheduleError
from polarbear.benchmark.hierarchy import Hierarchy


@dataclass(frozen=True)
class Schedule:
    """Tasks, each a tuple of class names; classes are numbered in their order of arrival.

    >>> s = Schedule((("bear",), ("polar bear", "lamp")))
    >>> s.classes
    ('bear', 'polar bear', 'lamp')
    >>> s.joint().tasks
    (('bear', 'polar bear', 'lamp'),)
    """

    tasks: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        """Refuse an empty task and a class that arrives twice."""
        if not self.tasks:
            raise ScheduleError("a schedule needs at least one task; none was given")
        home: dict[str, int] = {}
        for index, task in enumerate(self.tasks):
            if not task:
                raise ScheduleError(f"task {index} has no class: leave the task out")
            for name in _names(task):
                if name in home:
                    raise ScheduleError(
                        f"class {name!r} is in task {home[name]} and again in task {index}: "
                        "a class arrives once"
                    )
                home[name] = index

    @classmethod
    def of(cls, tasks: Iterable[Iterable[str]]) -> "Schedule":
        """Build from any nested lists of class names."""
        return cls(tuple(_names(task) for task in tasks))

    def __len__(self) -> int:
        """Count the tasks."""
        return len(self.tasks)

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """Every class in its order of arrival."""
        return tuple(name for task in self.tasks for name in task)

    @cached_property
    def task_of(self) -> dict[str, int]:
        """Class name → the task it arrives in."""
        return {name: index for index, task in enumerate(self.tasks) for name in task}

    def seen(self, after: int) -> tuple[str, ...]:
        """Return the classes of tasks 0 to ``after``, in their order of arrival."""
        if not 0 <= after < len(self):
            raise ScheduleError(f"after={after}: tasks are 0 to {len(self) - 1}")
        return tuple(name for task in self.tasks[: after + 1] for name in task)

    def joint(self) -> "Schedule":
        """Return the same classes in one task."""
        return Schedule((self.classes,))

    def children_too_early(self, hierarchy: Hierarchy) -> tuple[tuple[str, str], ...]:
        """Return (superclass, subclass) pairs where the superclass is not in an earlier task.

        The published orders have none; a schedule of your own may, and :class:`Stream` follows it.
        """
        return tuple(
            (up, name)
            for name in self.classes
            if (up := hierarchy.parent(name)) in self.task_of
            and self.task_of[up] >= self.task_of[name]
        )

    @classmethod
    def draw(
        cls, hierarchy: Hierarchy, *, seed: int, first: int, size: int, tasks: int | None = None
    ) -> "Schedule":
        """Draw an order by the paper's rules.

        Task 0 has ``first`` superclasses and nothing else; each later task ``size`` classes drawn
        uniformly from those whose superclass came in an earlier task (or that have none).
        ``tasks`` stops early, as IIRC-ImageNet-lite does. The same seed gives the same order.

        >>> h = Hierarchy.from_children({"bear": ["polar bear", "brown bear"]}, alone=["lamp"])
        >>> Schedule.draw(h, seed=0, first=1, size=3).tasks[0]
        ('bear',)
        """
        roots = [n for n in hierarchy.superclasses if hierarchy.parent(n) is None]
        if not 1 <= first <= len(roots):
            raise ScheduleError(
                f"task 0 cannot have {first} superclasses: "
                f"this hierarchy has {len(roots)} to choose from"
            )
        if size < 1 or (tasks is not None and tasks < 1):
            raise ScheduleError("a task needs at least one class, and a schedule one task")
        if seed < 0:
            raise ScheduleError(f"a seed is a whole number from 0, not {seed}")
        random = np.random.default_rng(seed)
        # A superclass drawn near the end can leave too few classes for a full task: draw again.
        for _ in range(1000):
            drawn = _draw_once(hierarchy, roots, random, first, size, tasks)
            if drawn is not None:
                return cls.of(drawn)
        raise ScheduleError(
            f"no order with {first} + {size} a task was found in 1000 tries: with so few classes "
            "beside the superclasses, a smaller size or a larger first task is needed"
        )


def _names(task: Iterable[str]) -> tuple[str, ...]:
    if isinstance(task, str):
        raise ScheduleError(f"a task is a list of classes, not the text {task!r}")
    return tuple(task)


def _draw_once(
    hierarchy: Hierarchy,
    roots: list[str],
    random: np.random.Generator,
    first: int,
    size: int,
    tasks: int | None,
) -> list[list[str]] | None:
    drawn = [_pick(random, roots, first)]
    parent = {name: hierarchy.parent(name) for name in hierarchy.names}
    seen = set(drawn[0])
    while len(seen) < len(hierarchy) and (tasks is None or len(drawn) < tasks):
        above = {None, *seen}
        free = [n for n in hierarchy.names if n not in seen and parent[n] in above]
        if len(free) < min(size, len(hierarchy) - len(seen)):
            return None
        drawn.append(_pick(random, free, size))
        seen.update(drawn[-1])
    return drawn


def _pick(random: np.random.Generator, names: list[str], count: int) -> list[str]:
    chosen = random.permutation(len(names))[:count]
    return [names[i] for i in chosen]
