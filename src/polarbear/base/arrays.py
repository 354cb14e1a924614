"""Names for the array types used everywhere, and arrays that nobody can change."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.intp]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Pixels = NDArray[np.uint8]

Scalar = TypeVar("Scalar", bound=np.generic)


def frozen(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return the array itself, made read-only."""
    array.flags.writeable = False
    return array


def kept(array: NDArray[Scalar]) -> NDArray[Scalar]:
    """Return the array read-only, copied first where somebody could still write to it."""
    return frozen(array.copy()) if array.flags.writeable else array
