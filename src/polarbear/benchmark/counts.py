"""What a stream holds, counted: the paper's statistics tables for any benchmark."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.schedule import Schedule
from polarbear.benchmark.stream import Stream, Task

Labelled = tuple[int | None, int | None]


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
    train: int | None
    valid: int | None


@dataclass(frozen=True)
class TaskSize:
    """A task's classes and images; the counts of images are None where the data are needed.

    ``post_valid`` and ``test`` count every image that carries one of the task's classes.
    """

    index: int
    classes: tuple[str, ...]
    superclasses: int
    seen: int
    train: int | None
    valid: int | None
    post_valid: int | None
    test: int | None


@dataclass(frozen=True)
class Statistics:
    """Everything countable about a stream; ``splits`` is None where the data are needed."""

    name: str
    order: int | None
    classes: ClassCounts
    splits: SplitSizes | None
    tasks: tuple[TaskSize, ...]
    class_sizes: tuple[ClassSize, ...]

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
    tasks = tuple(_count_task(stream, task) for task in stream)
    labelled = [pair for task in stream for pair in _labelled(task)]
    return Statistics(
        stream.name,
        stream.order,
        count_classes(stream.hierarchy, stream.schedule),
        _count_splits(stream, tasks),
        tasks,
        _class_sizes(stream.hierarchy, stream.schedule, labelled),
    )


def schedule_statistics(
    hierarchy: Hierarchy, schedule: Schedule, *, name: str = "custom", order: int | None = None
) -> Statistics:
    """Count the classes alone, for a benchmark whose data are not here."""
    tasks = tuple(
        TaskSize(
            i,
            task,
            _superclasses(hierarchy, task),
            len(schedule.seen(i)),
            train=None,
            valid=None,
            post_valid=None,
            test=None,
        )
        for i, task in enumerate(schedule.tasks)
    )
    unknown: list[Labelled] = [(None, None)] * len(schedule.classes)
    return Statistics(
        name,
        order,
        count_classes(hierarchy, schedule),
        None,
        tasks,
        _class_sizes(hierarchy, schedule, unknown),
    )


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


def _count_task(stream: Stream, task: Task) -> TaskSize:
    i = task.index
    return TaskSize(
        i,
        task.classes,
        _superclasses(stream.hierarchy, task.classes),
        len(task.seen),
        len(task.train),
        len(task.valid),
        len(stream.post_valid(after=i, task=i)),
        len(stream.test(after=i, task=i)),
    )


def _superclasses(hierarchy: Hierarchy, names: tuple[str, ...]) -> int:
    return sum(not hierarchy.is_leaf[hierarchy.index(name)] for name in names)


def _count_splits(stream: Stream, tasks: tuple[TaskSize, ...]) -> SplitSizes:
    last = len(stream) - 1
    return SplitSizes(
        sum(task.train or 0 for task in tasks),
        sum(task.valid or 0 for task in tasks),
        len(stream.train(after=last)),
        len(stream.valid(after=last)),
        len(stream.post_valid(after=last)),
        len(stream.test(after=last)),
    )


def _labelled(task: Task) -> list[Labelled]:
    """Return the images with the label of each of the task's classes: training, validation."""
    counts = []
    for view in (task.train, task.valid):
        # By way of the leaves: a label matrix of ImageNet's images would be large.
        images = np.bincount(view.leaf, minlength=len(view.label_table))
        counts.append((images @ view.label_table[:, task.new]).tolist())
    return list(zip(*counts, strict=True))


def _class_sizes(
    hierarchy: Hierarchy, schedule: Schedule, labelled: Sequence[Labelled]
) -> tuple[ClassSize, ...]:
    def below(name: str) -> int:
        i = hierarchy.index(name)
        return 0 if hierarchy.is_leaf[i] else int(hierarchy.leaf_counts[i])

    return tuple(
        ClassSize(
            name,
            hierarchy.title(name),
            hierarchy.parent(name),
            below(name),
            schedule.task_of[name],
            *images,
        )
        for name, images in zip(schedule.classes, labelled, strict=True)
    )
