"""What a method stores with images: checked as it comes, and in tables on the device for steps."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polarbear.base.errors import PolarbearError

Shapes = dict[str, tuple[int, ...]]
"""What an image has by each name, without the number of images."""


def stored_shapes(found: Any, images: int, method: str, before: Shapes | None = None) -> Shapes:
    """Return the shapes of what ``store`` gave for some images; what cannot be kept is an error.

    ``before`` is what it gave earlier in the same task: that must stay the same.

    >>> stored_shapes({"logits": torch.zeros(3, 10)}, 3, "DER")
    {'logits': (10,)}
    """
    fits = isinstance(found, Mapping) and all(
        isinstance(name, str) and isinstance(tensor, Tensor) and tensor.shape[:1] == (images,)
        for name, tensor in found.items()
    )
    if not fits:
        raise PolarbearError(
            f"store of {method} must return a dict of tensors, each with one row for each of the "
            f"{images} images, not {_shown(found)}"
        )
    shapes = {name: tuple(tensor.shape[1:]) for name, tensor in found.items()}
    if before is not None and shapes != before:
        raise PolarbearError(
            f"store of {method} gave {shapes} and before, in the same task, {before}: names and "
            "shapes of what is stored with an image must stay the same within a task"
        )
    return shapes


def on_host(tensor: Tensor) -> NDArray[Any]:
    """Return a tensor as an array; NumPy has no bfloat16, which becomes float32."""
    exact = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
    array: NDArray[Any] = exact.detach().cpu().numpy()
    return array


def tables(stored: Mapping[str, NDArray[Any]], device: torch.device) -> dict[str, Tensor]:
    """Copy what is stored to the device, with a last row of zeros: (m + 1, …) each.

    So the place -1, of an image that is not in memory, finds zeros.
    """
    return {
        name: torch.tensor(
            np.concatenate([array, np.zeros_like(array, shape=(1, *array.shape[1:]))])
        ).to(device)
        for name, array in stored.items()
    }


def _shown(found: Any) -> str:
    if not isinstance(found, Mapping):
        return type(found).__name__
    return str({k: tuple(getattr(t, "shape", ())) or type(t).__name__ for k, t in found.items()})
