"""What counting images tells of a hierarchy, without looking at a picture."""

from dataclasses import dataclass

import numpy as np

from polarbear.benchmark.stream import Stream

KINDS = ("superclasses", "leaves with a superclass", "leaves without")


@dataclass(frozen=True)
class Leak:
    """Classes of one kind: how many, their images on arrival, and how many of these are no news.

    ``train`` and ``valid`` (in-task validation) are the fewest and the most images that such a
    class has, ``repeated`` the share of them that an earlier task has shown, with another label.
    Where kinds differ in size, or images are repeated, the hierarchy can be found by counting.
    """

    kind: str
    classes: int
    train: tuple[int, int]
    valid: tuple[int, int]
    repeated: float


def leaks(stream: Stream) -> tuple[Leak, ...]:
    """Return what can be counted of superclasses, of leaves with one and of leaves without.

    >>> from polarbear.named.registry import nominal_stream
    >>> [(leak.train, leak.repeated) for leak in leaks(nominal_stream("iirc-cifar"))]
    [((640, 1280), 0.0), ((320, 320), 0.25), ((400, 400), 0.0)]
    """
    hierarchy = stream.hierarchy
    above, below = set(hierarchy.superclasses), hierarchy.parent_array >= 0
    counts: dict[str, list[list[int]]] = {kind: [] for kind in KINDS}
    shown = np.zeros(len(stream.train_leaf), dtype=bool)
    for task in stream:
        rows = np.concatenate([task.train.rows, task.valid.rows])
        again = stream.train_leaf[rows[shown[rows]]]
        shown[rows] = True
        table = task.train.label_table[:, task.new]
        images = [
            np.bincount(leaf, minlength=len(table)) @ table
            for leaf in (task.train.leaf, task.valid.leaf, again)
        ]
        for name, *numbers in zip(task.classes, *images, strict=True):
            leaf = KINDS[1] if below[hierarchy.index(name)] else KINDS[2]
            counts[KINDS[0] if name in above else leaf].append(numbers)
    found = []
    for kind, numbers in counts.items():
        if numbers:
            least, most = np.min(numbers, axis=0).tolist(), np.max(numbers, axis=0).tolist()
            train, valid, repeated = np.sum(numbers, axis=0).tolist()
            share = repeated / max(1, train + valid)
            sizes = (least[0], most[0]), (least[1], most[1])
            found.append(Leak(kind, len(numbers), *sizes, share))
    return tuple(found)
