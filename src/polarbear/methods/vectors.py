"""Many tensors as one vector: for methods that reckon with all parameters together."""

from collections.abc import Iterable

import torch
from torch import Tensor


def flat(parts: Iterable[Tensor]) -> Tensor:
    """Return tensors as one vector, one after the other, whatever their layout in memory.

    >>> flat([torch.ones(2, 1), torch.zeros(())]).tolist()
    [1.0, 1.0, 0.0]
    """
    return torch.cat([part.flatten() for part in parts])
