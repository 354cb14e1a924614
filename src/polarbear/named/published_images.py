"""How many images the data of a published benchmark have, and what those at hand lack of them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from polarbear.base.arrays import Ints
from polarbear.base.errors import DataError, counted
from polarbear.base.findings import listed
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.stream import Stream

SHOWN = 5

#: A class and how many images it has.
Sized = tuple[str, int]


@dataclass(frozen=True)
class PublishedImages:
    """Images of each leaf: ``fewest`` to ``most`` for training, and ``test``.

    Where leaves differ, ``in_all`` is how many training images ``leaves`` leaves have together;
    the benchmark may leave some of these out.
    """

    fewest: int
    most: int
    test: int
    in_all: int | None = None
    leaves: int = 0

    def lacking(self, stream: Stream) -> str:
        """Say which images of the published ones a stream lacks; empty if none."""
        train, test = _sizes(stream)
        parts = [*_named(train, self.fewest, "training"), *_named(test, self.test, "test")]
        if len(stream.train_leaf) < self._least(stream):
            due = self.in_all or self.fewest * len(train)
            classes = f"{self.leaves or len(train):,} classes"
            parts.insert(0, f"{len(stream.train_leaf):,} training images of {due:,} in {classes}")
        return "; ".join(parts)

    def refuse_more(self, stream: Stream, origin: str) -> None:
        """Refuse a stream with more images than the published ones: they are others."""
        train, test = _sizes(stream)
        many = [(name, n) for name, n in train if n > self.most]
        many += [(name, n) for name, n in test if n > self.test]
        if many:
            at_most = f"{self.most:,} for training and {self.test:,} for test"
            raise DataError(
                f"{origin} has more images than {stream.name}, whose classes have at most "
                f"{at_most}: {_shown(many)}. Remove those that are not its own, or make a "
                "benchmark of your own (polarbear new-benchmark)"
            )

    def _least(self, stream: Stream) -> int:
        """Return how many training images there must be at least."""
        if self.in_all is None:
            return self.fewest * len(stream.hierarchy.leaves)
        # Rows of no class are those of leaves that the benchmark leaves out, if these are there.
        others = -(-int(np.sum(stream.train_leaf < 0)) // self.most)
        absent = self.leaves - len(stream.hierarchy.leaves) - others
        return self.in_all - absent * self.most


def _sizes(stream: Stream) -> tuple[list[Sized], list[Sized]]:
    hierarchy = stream.hierarchy
    return _by_leaf(stream.train_leaf, hierarchy), _by_leaf(stream.test_leaf, hierarchy)


def _by_leaf(leaf: Ints, hierarchy: Hierarchy) -> list[Sized]:
    count = np.bincount(leaf[leaf >= 0], minlength=len(hierarchy))
    return [(name, int(count[hierarchy.index(name)])) for name in hierarchy.leaves]


def _named(sizes: Sequence[Sized], least: int, what: str) -> Iterator[str]:
    few = sorted(((name, n) for name, n in sizes if n < least), key=lambda one: one[1])
    if few:
        classes = counted(len(few), "class has", "classes have")
        yield f"{classes} fewer than {least:,} {what} images ({_shown(few)})"


def _shown(sizes: Sequence[Sized]) -> str:
    return listed((f"{name}: {n:,}" for name, n in sizes), SHOWN, str)
