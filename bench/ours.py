"""The cases with polarbear. A case prepares and gives the function to be timed.

The function returns how much it has done, so that the two sides can be compared.
"""

from collections.abc import Callable

import numpy as np

import polarbear
from polarbear.benchmark.labels import leaf_numbers
from polarbear.data.batches import batches, evaluation_batches
from polarbear.data.folders import FolderIndex
from polarbear.named.registry import find
from workload import Workload


def cifar(work: Workload) -> Callable[[], int]:
    """The stream from official files, checked, and the rows of every task."""

    def ready() -> int:
        stream = polarbear.load("iirc-cifar", 0, work.cifar_root)
        return sum(len(task.train) + len(task.valid) for task in stream)

    return ready


def cifar_unchecked(work: Workload) -> Callable[[], int]:
    """The same without checksums, which the authors' package does not look at either."""

    def ready() -> int:
        from polarbear.data.cifar100 import open_cifar100

        benchmark = find("iirc-cifar")
        source = open_cifar100(work.cifar_root, verify=False)
        stream = polarbear.Stream.from_source(source, benchmark.hierarchy(), benchmark.schedule(0))
        return sum(len(task.train) + len(task.valid) for task in stream)

    return ready


def imagenet(work: Workload) -> Callable[[], int]:
    """The index of all files, the stream and the rows of every task."""
    listing = work.imagenet_listing()

    def ready() -> int:
        benchmark = find("iirc-imagenet-full")
        index = {split: FolderIndex.from_listing(files) for split, files in listing.items()}
        leaf = {
            split: leaf_numbers(benchmark.hierarchy(), files.classes, benchmark.ignore)[files.leaf]
            for split, files in index.items()
        }
        stream = polarbear.load(benchmark.name, 0, leaf_train=leaf["train"], leaf_test=leaf["val"])
        return sum(len(task.train) + len(task.valid) for task in stream)

    return ready


def labels(work: Workload) -> Callable[[], int]:
    """Label matrices of all training sets."""
    stream = polarbear.load("iirc-cifar", 0, work.cifar_root)
    list(stream)  # rows are part of the set-up

    def matrices() -> int:
        # Indexing makes a Task anew, so that no matrix is remembered from the run before.
        return sum(np.count_nonzero(task.train.targets) for task in stream)

    return matrices


def epoch(work: Workload) -> Callable[[], int]:
    """Augmented batches of all training sets, once through."""
    stream = polarbear.load("iirc-cifar", 0, work.cifar_root)
    images, tasks = stream.images("train"), list(stream)

    def once() -> int:
        return sum(
            len(x)
            for task in tasks
            for x, _ in batches(task.train, images, seed=0, epoch=0, size=128)
        )

    return once


def evaluation(work: Workload) -> Callable[[], int]:
    """After each task every seen test image and its labels, once."""
    stream = polarbear.load("iirc-cifar", 0, work.cifar_root)

    def all_tasks() -> int:
        images = stream.images("test")[:]  # read once, 31 MB
        return sum(
            np.count_nonzero(y)
            for j in range(work.evaluated_tasks)
            for _, y in evaluation_batches(stream.test(after=j), images, size=128)
        )

    return all_tasks


def scores(work: Workload) -> Callable[[], int]:
    """The same, and every R_j and R_jk of a learner that knows everything, from that one pass."""
    stream = polarbear.load("iirc-cifar", 0, work.cifar_root)

    def all_tasks() -> int:
        evaluator, labels = polarbear.Evaluator(stream), 0
        images = stream.images("test")[:]
        for j in range(work.evaluated_tasks):
            batches = evaluation_batches(stream.test(after=j), images, size=128)
            predicted = [y for _, y in batches]
            evaluator.add(after=j, predictions=predicted)
            labels += sum(np.count_nonzero(y) for y in predicted)
        expected = np.tri(work.evaluated_tasks, dtype=bool)
        found = evaluator.table.r_jk[: len(expected), : len(expected)] == 1
        if not np.array_equal(found, expected):
            raise SystemExit("some R_jk of a perfect learner is missing or not 1")
        return labels

    return all_tasks


CASES = {
    "cifar": cifar,
    "cifar_unchecked": cifar_unchecked,
    "imagenet": imagenet,
    "labels": labels,
    "epoch": epoch,
    "evaluation": evaluation,
    "scores": scores,
}
