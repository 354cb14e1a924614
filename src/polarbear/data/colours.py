"""Mean and deviation of the colours of images, which learners normalise by."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from polarbear.base.errors import PolarbearError
from polarbear.benchmark.source import Images

AT_ONCE = 256  # images looked at together

Three = tuple[float, float, float]


@dataclass(frozen=True)
class Colours:
    """Mean and deviation of red, green and blue, on a scale from 0 to 1."""

    mean: Three
    std: Three

    def __post_init__(self) -> None:
        """Refuse what cannot be normalised by."""
        refuse_bad_colours(self.mean, self.std)


def refuse_bad_colours(mean: Any, std: Any) -> None:
    """Refuse a mean or deviation that is not three numbers, or would divide by nothing."""
    for name, values in {"mean": mean, "std": std}.items():
        numbers = isinstance(values, Sequence | np.ndarray) and all(
            isinstance(value, int | float | np.number) and math.isfinite(value) for value in values
        )
        if not numbers or len(values) != 3 or (name == "std" and min(values) <= 0):
            kind = "three numbers over 0" if name == "std" else "three numbers"
            raise PolarbearError(
                f"{name} must be {kind}, those of red, green and blue from 0 to 1, not {values!r}"
            )


def colours_of(images: Images, progress: Callable[[int, int], None] | None = None) -> Colours:
    """Return mean and deviation over all pixels of images, some images at a time.

    The sums are whole numbers, so that nothing is lost however many there are. A colour that is
    the same everywhere has the deviation 1: normalised, it is 0. ``progress(done, total)`` is
    called now and then.

    >>> colours_of(np.array([[[[0, 51, 255]], [[255, 51, 255]]]], np.uint8))
    Colours(mean=(0.5, 0.2, 1.0), std=(0.5, 1.0, 1.0))
    """
    sums, squares, pixels = [0, 0, 0], [0, 0, 0], 0
    for start in range(0, len(images), AT_ONCE):
        part = np.asarray(images[start : start + AT_ONCE]).reshape(-1, 3)
        pixels += len(part)
        for colour in range(3):
            counts = np.bincount(part[:, colour], minlength=256).tolist()
            sums[colour] += sum(value * count for value, count in enumerate(counts))
            squares[colour] += sum(value**2 * count for value, count in enumerate(counts))
        if progress:
            progress(min(start + AT_ONCE, len(images)), len(images))
    mean = [total / (255 * pixels) for total in sums]
    # In whole numbers: pixels² times the variance.
    spread = [pixels * square - total**2 for square, total in zip(squares, sums, strict=True)]
    std = [math.sqrt(one / pixels**2) / 255 if one else 1.0 for one in spread]
    return Colours((mean[0], mean[1], mean[2]), (std[0], std[1], std[2]))
