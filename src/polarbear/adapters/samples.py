"""What every adapter gives out: the images and labels of a view, by their place in it."""

from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polarbear.base.arrays import Ints, Pixels, frozen
from polarbear.benchmark.source import Images
from polarbear.benchmark.stream import Stream, View

Floats32 = NDArray[np.float32]

#: Bytes of a view's pixels up to which they are taken into memory: IIRC-CIFAR's largest are 31 MB.
HELD_AT_MOST = 2**30


@dataclass(frozen=True, eq=False)
class Samples:
    """Images (h, w, 3) uint8 and labels (s,) float32 of a view, for one place in it or for many.

    ``images`` holds image i of the view at ``rows[i]``: in memory where the view is small and its
    source knows the size, else as the source reads or decodes them.

    >>> from polarbear import load
    >>> stream = load("iirc-shapes")
    >>> samples = Samples.of(stream, stream[0].train)
    >>> images, labels = samples[[0, 1, 2]]
    >>> images.shape, labels.shape, samples[0][1].dtype.name
    ((3, 32, 32, 3), (3, 6), 'float32')
    """

    images: Images
    rows: Ints
    leaf: Ints
    table: Floats32

    @classmethod
    def of(cls, stream: Stream, view: View, width: int | None = None) -> "Samples":
        """Look at a view of a stream that has images.

        Labels get ``width`` columns where given, those of classes still to come 0: libraries that
        mix the data of several tasks need labels of one shape.
        """
        images, rows = _held(stream.images(view.file), view.rows)
        seen = view.label_table.shape[1]
        table = np.zeros((len(view.label_table), width or seen), np.float32)
        table[:, :seen] = view.label_table
        return cls(images, rows, view.leaf, frozen(table))

    def __len__(self) -> int:
        """Count the images."""
        return len(self.rows)

    def __getitem__(self, index: Any) -> tuple[Pixels, Floats32]:
        """Return image and label of one place, or of an array of places."""
        return self.images[self.rows[index]], self.table[self.leaf[index]]

    @property
    def in_memory(self) -> bool:
        """Whether the pixels are one array in memory, not mapped, read or decoded."""
        return type(self.images) is np.ndarray

    def order(self, seed: int | None, epoch: int) -> Ints:
        """Return the places in an epoch's order: as they lie, or shuffled by seed and epoch."""
        if seed is None:
            return np.arange(len(self))
        return np.random.default_rng([seed, self.table.shape[1], epoch]).permutation(len(self))


def _held(images: Images, rows: Ints) -> tuple[Images, Ints]:
    """Take a small view's pixels out of a file once, since every epoch reads them again."""
    shape = getattr(images, "shape", None)
    in_memory = isinstance(images, np.ndarray)
    if shape is None or in_memory or len(rows) * prod(shape[1:]) > HELD_AT_MOST:
        return images, rows
    return frozen(np.asarray(images[rows])), frozen(np.arange(len(rows)))
