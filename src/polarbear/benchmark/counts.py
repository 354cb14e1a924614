"""What a stream holds, counted: the paper's statistics tables for any benchmark."""

from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.leaks import Leak, leaks
from polarbear.benchmark.schedule import Schedule
from polarbear.benchmark.stream import Stream


@dataclass(frozen=True)
class SplitSizes:
    """Images of each split.

    An image that serves a superclass in one task and its subclass in another is seen twice, with
    different labels: it counts twice ``…_with_duplicates`` and once otherwise. Post-task
    validation and test carry complete labels and have no duplicates.
    """

    train_with_duplicates: int
    valid_with_duplicates: int
    train: int
    valid: int
    post_valid: int
    test: int


@dataclass(frozen=True)
class ClassCounts:
    """Classes that arrive: with others below them, below a superclass, and neither."""

    superclasses: int
    subclasses: int
    alone: int
    total: int


@dataclass(frozen=True)
class ClassSize:
    """A class, the task it arrives in and how many images there have its label.

    ``train`` and ``valid`` (in-task validation) are None where the data are needed to tell.
    ``subclasses`` counts the leaves below the class in the hierarchy, 0 for a leaf.
    """

    name: str
    title: str
    superclass: str | None
    subclasses: int
    task: int
    train: int | None = None
    valid: int | None = None


@dataclass(frozen=True)
class TaskSize:
    """A task's classes and images; the counts of images are None where the data are needed.

    ``post_valid`` and ``test`` count every image that carries one of the task's classes.
    """

    index: int
    classes: tuple[str, ...]
    superclasses: int
    seen: int
    train: int | None = None
    valid: int | None = None
    post_valid: int | None = None
    test: int | None = None


@dataclass(frozen=True)
class Statistics:
    """Everything countable; without the data, ``splits`` is None and ``leaks`` is empty."""

    name: str
    order: int | None
    classes: ClassCounts
    splits: SplitSizes | None
    tasks: tuple[TaskSize, ...]
    class_sizes: tuple[ClassSize, ...]
    leaks: tuple[Leak, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the same as dictionaries, ready for JSON."""
        return asdict(self)


def stream_statistics(stream: Stream) -> Statistics:
    """Count a stream's classes and images.

    >>> from polarbear.named.registry import nominal_stream
    >>> counted = stream_statistics(nominal_stream("iirc-cifar"))
    >>> counted.splits.train_with_duplicates, counted.splits.train, counted.classes.total
    (46160, 40000, 115)
    """
    bare = schedule_statistics(
        stream.hierarchy, stream.schedule, name=stream.name, order=stream.order
    )
    tasks, class_sizes = [], []
    for i, task in enumerate(stream):
        size = replace(
            bare.tasks[i],
            train=len(task.train),
            valid=len(task.valid),
            post_valid=len(stream.post_valid(after=i, task=i)),
            test=len(stream.test(after=i, task=i)),
        )
        tasks.append(size)
        train, valid = (view.label_counts.tolist() for view in (task.train, task.valid))
        for k in range(task.new.start, task.new.stop):
            class_sizes.append(replace(bare.class_sizes[k], train=train[k], valid=valid[k]))
    last = len(stream) - 1
    splits = SplitSizes(
        sum(task.train or 0 for task in tasks),
        sum(task.valid or 0 for task in tasks),
        len(stream.train(after=last)),
        len(stream.valid(after=last)),
        len(stream.post_valid(after=last)),
        len(stream.test(after=last)),
    )
    return replace(
        bare,
        splits=splits,
        tasks=tuple(tasks),
        class_sizes=tuple(class_sizes),
        leaks=leaks(stream),
    )


def schedule_statistics(
    hierarchy: Hierarchy, schedule: Schedule, *, name: str = "custom", order: int | None = None
) -> Statistics:
    """Count the classes alone, for a benchmark whose data are not here."""
    # Leaves below a class, which a leaf has none of.
    below = {n: int(hierarchy.leaf_counts[hierarchy.index(n)]) for n in hierarchy.superclasses}
    tasks = tuple(
        TaskSize(i, task, sum(n in below for n in task), len(schedule.seen(i)))
        for i, task in enumerate(schedule.tasks)
    )
    class_sizes = tuple(
        ClassSize(n, hierarchy.title(n), hierarchy.parent(n), below.get(n, 0), schedule.task_of[n])
        for n in schedule.classes
    )
    return Statistics(name, order, count_classes(hierarchy, schedule), None, tasks, class_sizes)


def count_classes(hierarchy: Hierarchy, schedule: Schedule) -> ClassCounts:
    """Count the classes that arrive, by their place in the hierarchy.

    >>> h = Hierarchy.from_children({"bear": ["polar bear", "brown bear"]}, alone=["lamp"])
    >>> count_classes(h, Schedule.of([["bear"], ["polar bear", "lamp"]]))
    ClassCounts(superclasses=1, subclasses=1, alone=1, total=3)
    """
    numbers = [hierarchy.index(name) for name in schedule.classes]
    leaf = hierarchy.is_leaf[numbers]
    below = hierarchy.parent_array[numbers] >= 0
    return ClassCounts(
        int(np.sum(~leaf)), int(np.sum(leaf & below)), int(np.sum(leaf & ~below)), len(numbers)
    )
