"""Checks for whoever brings own data: everything that is odd, all at once, with the remedy.

What cannot be at all (a cycle, a class in two tasks, images of no class) is refused when a
:class:`Hierarchy` or :class:`Stream` is built. Here comes what can be but should be known.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polarbear.base.arrays import Bools
from polarbear.base.errors import DataError, counted
from polarbear.base.findings import CheckError, Finding, error, listed, report, warning
from polarbear.benchmark.counts import stream_statistics
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.schedule import Schedule
from polarbear.benchmark.source import FileName
from polarbear.benchmark.stream import Stream, View

__all__ = ["CheckError", "Finding", "check_hierarchy", "check_stream"]

# ImageNet's leaves differ by less than 2 (732 to 1,300 images); above 10, a mean tells little.
MOST_UNEVEN = 10
LOOKED_AT = 8
FILES: tuple[FileName, ...] = ("train", "test")

_BUG = "That cannot come from your data: please report it"


def check_hierarchy(hierarchy: Hierarchy, *, strict: bool = True) -> tuple[Finding, ...]:
    """Return everything odd about a hierarchy; with ``strict``, errors are raised.

    >>> for finding in check_hierarchy(Hierarchy.from_children({"bear": ["polar bear"]})):
    ...     print(finding.message[:55])
    superclass 'bear' has a single subclass: the two labels
    """
    found = (
        *_few_classes_below(hierarchy),
        *_uneven_depth(hierarchy),
        *_near_names(hierarchy),
    )
    return report("the hierarchy", found, strict=strict)


def check_stream(stream: Stream, *, strict: bool = True) -> tuple[Finding, ...]:
    """Return everything odd about a stream and its hierarchy; with ``strict``, errors are raised.

    Looks at every label and every row number, and at the first images of each file.
    """
    found = (
        *check_hierarchy(stream.hierarchy, strict=False),
        *_arrival(stream.hierarchy, stream.schedule),
        *check_rows(stream),
        *_check_images(stream),
        *_check_labels(stream),
    )
    return report(f"the stream {stream.name!r}", found, strict=strict)


def refuse_nothing_to_learn(stream: Stream) -> None:
    """Refuse a stream with a task or a class that has no training or no test image."""
    found = tuple(finding for finding in check_rows(stream) if finding.level == "error")
    report(f"the stream {stream.name!r}", found, strict=True)


def _few_classes_below(hierarchy: Hierarchy) -> Iterator[Finding]:
    if not hierarchy.superclasses:
        yield warning(
            "no class has another above it: nothing is ever refined, and this is plain "
            "class-incremental learning. To study coarse and fine labels, group classes below "
            "superclasses"
        )
    for name in hierarchy.superclasses:
        if len(hierarchy.children(name)) == 1:
            yield warning(
                f"superclass {name!r} has a single subclass: the two labels stand for the same "
                "images and cannot be told apart. Add subclasses, or leave the superclass out"
            )


def _uneven_depth(hierarchy: Hierarchy) -> Iterator[Finding]:
    leaves = np.flatnonzero(hierarchy.is_leaf & (hierarchy.parent_array >= 0))
    depths = np.unique(hierarchy.depth[leaves])
    if len(depths) > 1:
        levels = " and ".join(str(depth + 1) for depth in depths)
        shallow = (hierarchy.names[i] for i in leaves if hierarchy.depth[i] == depths[0])
        yield warning(
            f"leaves lie on different levels ({levels}): images carry differently many labels, and "
            "one wrong label costs those with few of them more. If that is not meant, see "
            f"{listed(shallow)}"
        )


def _near_names(hierarchy: Hierarchy) -> Iterator[Finding]:
    alike: dict[str, list[str]] = defaultdict(list)
    for name in hierarchy.names:
        alike["".join(c for c in name.casefold() if c not in " _-")].append(name)
    for names in alike.values():
        if len(names) > 1:
            yield error(
                f"{listed(names)} differ only by case, spaces, hyphens or underscores: they are "
                "different classes here, each with a part of the images. If they are the same, "
                "write them the same way; if not, give one a clearer name"
            )


def _arrival(hierarchy: Hierarchy, schedule: Schedule) -> Iterator[Finding]:
    early = schedule.children_too_early(hierarchy)
    together = [pair for pair in early if schedule.task_of[pair[0]] == schedule.task_of[pair[1]]]
    before = [pair for pair in early if pair not in together]
    if together:
        yield warning(
            f"subclasses arrive together with their superclass ({_pairs(together)}): their images "
            "carry both labels at once, so that nothing has to be put together later. The paper "
            "has every superclass in an earlier task; Schedule.draw makes such orders"
        )
    if before:
        yield warning(
            f"subclasses arrive before their superclass ({_pairs(before)}): the learner goes from "
            "fine to coarse, the reverse of the paper's question. Schedule.draw makes orders with "
            "every superclass in an earlier task"
        )
    fine = [name for name in schedule.tasks[0] if hierarchy.is_leaf[hierarchy.index(name)]]
    if fine and hierarchy.superclasses and len(schedule) > 1:
        yield warning(
            f"task 0 has leaves ({listed(fine)}): the paper's has superclasses alone, the coarse "
            "knowledge that later tasks refine"
        )
    missing = [name for name in hierarchy.names if name not in schedule.task_of]
    if missing:
        yield warning(
            f"{counted(len(missing), 'class', 'classes')} of the hierarchy in no task "
            f"({listed(missing)}): images of those below a superclass that arrives still carry its "
            "label, the others are never used. Add them to a task if that is not meant"
        )


def _pairs(pairs: Sequence[tuple[str, str]]) -> str:
    return listed(f"{name} < {up}" for up, name in pairs)


def check_rows(stream: Stream) -> Iterator[Finding]:
    """Find, by counting alone, tasks and classes without images, and very uneven classes."""
    sizes = stream_statistics(stream)
    for task in sizes.tasks:
        empty = [name for name in ("train", "test") if not getattr(task, name)]
        if empty:
            yield error(
                f"task {task.index} has no {' and no '.join(empty)} images: there is nothing to "
                "learn or to score. Add images of its classes, or leave the task out"
            )
    if bare := [size.name for size in sizes.class_sizes if not size.train]:
        yield error(
            f"no training image has the label {listed(bare)}: the class cannot be learnt. Its "
            "leaves have no images, or so few that their share rounds down to 0; add images, or "
            "change the shares of the SplitRule"
        )
    if blind := [size.name for size in sizes.class_sizes if not size.valid]:
        yield warning(
            f"no in-task validation image has the label {listed(blind)}: choosing an epoch by "
            "validation is blind for it. Add images, or raise SplitRule.valid (new-benchmark "
            "--valid)"
        )
    if bare := _without_images(stream.test(len(stream) - 1)):
        yield error(
            f"no test image has the label {listed(bare)}: whether it was learnt is never asked. "
            "Add test images"
        )
    if blind := _without_images(stream.post_valid(len(stream) - 1)):
        yield warning(
            f"no post-task validation image has the label {listed(blind)}: tuning is blind for "
            "it. Add images, or raise SplitRule.post_valid"
        )
    yield from _uneven_leaves(stream)


def _without_images(view: View) -> list[str]:
    return [name for name, count in zip(view.classes, view.label_counts, strict=True) if not count]


def _uneven_leaves(stream: Stream) -> Iterator[Finding]:
    count = np.bincount(stream.train_leaf[stream.train_leaf >= 0], minlength=len(stream.hierarchy))
    leaves = np.flatnonzero(stream.hierarchy.is_leaf & (count > 0))
    if not leaves.size:
        return
    few, many = leaves[count[leaves].argmin()], leaves[count[leaves].argmax()]
    if count[many] > MOST_UNEVEN * count[few]:
        name = stream.hierarchy.names
        yield warning(
            f"leaves are very uneven: {name[many]!r} has {count[many]:,} training images, "
            f"{name[few]!r} {count[few]:,}. Every image counts alike in R_j, so that the large "
            "classes decide it; even them out, or look at scores of single classes too"
        )


def _check_images(stream: Stream) -> Iterator[Finding]:
    """Find images of a wrong kind or number, by the first of each file."""
    if stream.source is None:
        return
    sizes: set[tuple[int, ...]] = set()
    for split in FILES:
        rows = len(stream.train_leaf if split == "train" else stream.test_leaf)
        images = stream.source.images(split)
        if len(images) != rows:
            yield error(f"the {split} file has {len(images):,} images but {rows:,} leaf labels")
            continue
        try:
            first = np.asarray(images[np.arange(min(rows, LOOKED_AT))])
        except DataError as unreadable:
            yield error(str(unreadable))
            continue
        yield from _pixels(split, first)
        sizes.add(first.shape[1:])
    if len(sizes) > 1:
        shapes = " and ".join(map(str, sorted(sizes)))
        yield error(f"training and test images differ in shape, {shapes}: resize them alike")


def _pixels(split: str, images: NDArray[Any]) -> Iterator[Finding]:
    if images.dtype != np.uint8:
        yield error(
            f"{split} images are {images.dtype}; due is uint8, 0 to 255, as files have them: "
            "learners scale and normalise them on the device. From 0 to 1, give "
            "(images * 255).round().astype('uint8')"
        )
    if images.ndim != 4 or images.shape[-1] != 3:
        hint = "give images.repeat(3, axis=-1) for grey images of shape (n, h, w, 1)"
        if images.ndim == 4 and images.shape[1] == 3:
            hint = "channels come last: give images.transpose(0, 2, 3, 1)"
        elif images.ndim == 3:
            hint = "grey images need three channels: give images[..., None].repeat(3, axis=-1)"
        yield error(
            f"{split} images have the shape (n, {', '.join(map(str, images.shape[1:]))}); due is "
            f"(n, height, width, 3): {hint}"
        )


def _check_labels(stream: Stream) -> Iterator[Finding]:
    """Find labels and rows that break what every stream promises.

    Works the labels out again from the hierarchy, without the tables the stream uses.
    """
    truth = _labels_of_leaves(stream)
    role = np.zeros(len(stream.train_leaf), dtype=np.uint8)
    for task in stream:
        complete = truth[:, : len(task.seen)]
        own = complete.copy()
        own[:, : task.new.start] = False
        for split, view in (("training", task.train), ("validation", task.valid)):
            if not np.array_equal(view.targets, own[view.leaf]):
                yield error(
                    f"task {task.index}'s {split} labels are not those of its own classes alone: "
                    f"a label of another task shows. {_BUG}"
                )
        test, tuning = stream.test(task.index), stream.post_valid(task.index)
        for split, view in (("test", test), ("post-task validation", tuning)):
            if not np.array_equal(view.targets, complete[view.leaf]):
                yield error(
                    f"after task {task.index}, {split} labels are not all labels among the classes "
                    f"seen by then: scores would be wrong. {_BUG}"
                )
        role[task.train.rows] |= 1
        role[task.valid.rows] |= 2
    role[stream.post_valid(len(stream) - 1).rows] |= 4
    shared = int(np.isin(role, (3, 5, 6, 7)).sum())
    if shared:
        yield error(f"{shared:,} images serve both training and a validation split. {_BUG}")


def _labels_of_leaves(stream: Stream) -> Bools:
    column = {name: i for i, name in enumerate(stream.classes)}
    truth = np.zeros((len(stream.hierarchy), len(column)), dtype=bool)
    for leaf in stream.hierarchy.leaves:
        labels = [column[name] for name in stream.hierarchy.labels_of(leaf) if name in column]
        truth[stream.hierarchy.index(leaf), labels] = True
    return truth
