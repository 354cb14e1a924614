"""Many tensors as one vector: for methods that reckon with all parameters together."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn


def flat(parts: Iterable[Tensor]) -> Tensor:
    """Return tensors as one vector, one after the other, whatever their layout in memory.

    >>> flat([torch.ones(2, 1), torch.zeros(())]).tolist()
    [1.0, 1.0, 0.0]
    """
    return torch.cat([part.flatten() for part in parts])


def add_gradients(parameters: Sequence[nn.Parameter], gradients: Sequence[Tensor]) -> None:
    """Add gradients to those that parameters have, in their layout, as a loss's ``backward`` does.

    >>> weight = nn.Parameter(torch.zeros(2))
    >>> for _ in range(2):
    ...     add_gradients([weight], [torch.ones(2)])
    >>> weight.grad
    tensor([2., 2.])
    """
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if gradient.stride() != parameter.stride():  # which fused optimisers would refuse
            gradient = torch.empty_like(parameter).copy_(gradient)
        there = parameter.grad
        parameter.grad = gradient if there is None else there + gradient
