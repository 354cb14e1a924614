"""Batches for a training loop of your own, in NumPy: shuffled, augmented and normalised.

Each batch is worked on while it is in the processor's cache. Random numbers come from the seed,
the task and the epoch, so that the same epoch is the same wherever it is run.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polarbear.arrays import Bools, Pixels
from polarbear.data.source import Images
from polarbear.errors import DataError
from polarbear.stream import View

Floats32 = NDArray[np.float32]


@dataclass(frozen=True)
class Normalise:
    """Channel means and deviations of pixels in 0..1, with IIRC-CIFAR's values."""

    mean: tuple[float, float, float] = (0.5071, 0.4866, 0.4409)
    std: tuple[float, float, float] = (0.2009, 0.1984, 0.2023)

    def __call__(self, images: Pixels) -> Floats32:
        """Turn uint8 (n, h, w, 3) into float32 (n, 3, h, w)."""
        n, h, w, _ = images.shape
        out = np.empty((n, 3, h, w), np.float32)
        for c in range(3):
            scale = np.float32(1 / (255 * self.std[c]))
            np.multiply(images[..., c], scale, out=out[:, c], casting="unsafe", dtype=np.float32)
            out[:, c] -= np.float32(self.mean[c] / self.std[c])
        return out


def pad_crop_flip(images: Pixels, random: np.random.Generator, pad: int = 4) -> Pixels:
    """Give images (n, h, w, 3) shifted by up to ``pad`` pixels over black, half of them mirrored.

    The paper's augmentation for CIFAR: pad 4, random crop to the old size, horizontal flip.
    """
    n, h, w, _ = images.shape
    shifts = random.integers(0, 2 * pad + 1, (n, 2)).tolist()
    flips = random.random(n) < 0.5
    padded = np.zeros((n, h + 2 * pad, w + 2 * pad, 3), np.uint8)
    padded[:, pad : pad + h, pad : pad + w] = images
    out = np.empty_like(images)
    # A copy of a slice is faster than any gather over pixels.
    for i, (y, x) in enumerate(shifts):
        out[i] = padded[i, y : y + h, x : x + w]
    out[flips] = out[flips, :, ::-1]
    return out


def batches(
    view: View,
    images: Images,
    *,
    seed: int,
    epoch: int,
    size: int = 128,
    augment: bool = True,
    normalise: Normalise | None = None,
) -> Iterator[tuple[Floats32, Bools]]:
    """Go through a view once, shuffled: float32 images (n, 3, h, w) and labels (n, s).

    ``images`` is ``stream.images("train")``; the last batch may be smaller.

    >>> from polarbear import load
    >>> stream = load("iirc-shapes")
    >>> x, y = next(batches(stream[0].train, stream.images("train"), seed=0, epoch=0))
    >>> x.shape, x.dtype.name, y.shape
    ((128, 3, 32, 32), 'float32', (128, 6))
    """
    if size < 1:
        raise DataError(f"a batch has at least one image, not {size}")
    to_floats = normalise or Normalise()
    random = np.random.default_rng([seed, len(view.classes), epoch])
    order = random.permutation(len(view))
    for start in range(0, len(view), size):
        chosen = order[start : start + size]
        pixels = images[view.rows[chosen]]
        shown = pad_crop_flip(pixels, random) if augment else pixels
        yield to_floats(shown), view.label_table[view.leaf[chosen]]
