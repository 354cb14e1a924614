"""Checks of a stream's rows, images and labels."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polarbear.base.arrays import Bools
from polarbear.base.errors import DataError
from polarbear.base.findings import Finding, error, listed, warning
from polarbear.benchmark.counts import stream_statistics
from polarbear.benchmark.source import FileName
from polarbear.benchmark.stream import Stream, Task, View

# ImageNet's leaves differ by less than 2 (732 to 1,300 images); above 10, a mean tells little.
MOST_UNEVEN = 10
LOOKED_AT = 8
FILES: tuple[FileName, ...] = ("train", "test")

_BUG = "That cannot come from your data: please report it"


def check_rows(stream: Stream) -> Iterator[Finding]:
    """Find tasks and classes without images, and classes with many more than others."""
    counted = stream_statistics(stream)
    for task in counted.tasks:
        empty = [name for name in ("train", "test") if not getattr(task, name)]
        if empty:
            yield error(
                f"task {task.index} has no {' and no '.join(empty)} images: there is nothing to "
                "learn or to score. Add images of its classes, or leave the task out"
            )
    if bare := [size.name for size in counted.class_sizes if not size.train]:
        yield error(
            f"no training image has the label {listed(bare)}: the class cannot be learnt. Its "
            "leaves have no images, or so few that their share rounds down to 0; add images, or "
            "change the shares of the SplitRule"
        )
    if blind := [size.name for size in counted.class_sizes if not size.valid]:
        yield warning(
            f"no in-task validation image has the label {listed(blind)}: choosing an epoch by "
            "validation is blind for it. Add images, or raise SplitRule.valid"
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


def check_images(stream: Stream) -> Iterator[Finding]:
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


def check_labels(stream: Stream) -> Iterator[Finding]:
    """Find labels and rows that break what every stream promises.

    Works the labels out again from the hierarchy, without the tables the stream uses.
    """
    truth = _labels_of_leaves(stream)
    role = np.zeros(len(stream.train_leaf), dtype=np.uint8)
    for task in stream:
        yield from _task_labels(task, truth)
        complete = {"test": stream.test, "post-task validation": stream.post_valid}
        for split, view_after in complete.items():
            view = view_after(task.index)
            if not np.array_equal(view.targets, truth[:, : len(task.seen)][view.leaf]):
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


def _task_labels(task: Task, truth: Bools) -> Iterator[Finding]:
    expected = truth[:, : len(task.seen)].copy()
    expected[:, : task.new.start] = False
    for split, view in (("training", task.train), ("validation", task.valid)):
        if not np.array_equal(view.targets, expected[view.leaf]):
            yield error(
                f"task {task.index}'s {split} labels are not those of its own classes alone: "
                f"a label of another task shows. {_BUG}"
            )
