"""The weights of our networks and of the authors', by names that both have.

Both have the same layers in the same order, in modules of other names.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

Named = dict[str, Tensor]


def parameters(network: nn.Module, head: Named) -> Named:
    """What is trained: convolutions, batch norms and the head."""
    convolutions, norms = _of(network, nn.Conv2d), _of(network, nn.BatchNorm2d)
    found = {f"convolution {i}": one.weight for i, one in enumerate(convolutions)}
    for i, norm in enumerate(norms):
        found |= {f"norm {i} scale": norm.weight, f"norm {i} shift": norm.bias}
    return found | {f"head {name}": tensor for name, tensor in head.items() if tensor.numel()}


def statistics(network: nn.Module) -> Named:
    """What batch norm remembers of the images it has seen."""
    found = {}
    for i, norm in enumerate(_of(network, nn.BatchNorm2d)):
        found |= {f"norm {i} mean": norm.running_mean, f"norm {i} variance": norm.running_var}
    return found


def our_head(head: nn.Module) -> Named:
    """A linear head's weight and bias, or a cosine head's rows and σ."""
    if hasattr(head, "bias"):
        return {"weight": head.weight, "bias": head.bias}
    return {"old": head.old, "new": head.new, "sigma": head.sigma}


def their_head(layer: nn.Module) -> Named:
    """The same of the authors' output layer, whose cosine head has old rows from task 1 on."""
    if hasattr(layer, "bias"):
        return {"weight": layer.weight, "bias": layer.bias}
    if hasattr(layer, "fc1"):
        return {"old": layer.fc1.weight, "new": layer.fc2.weight, "sigma": layer.sigma}
    return {"new": layer.weight, "sigma": layer.sigma}


def momentum(weights: Named, optimiser: torch.optim.Optimizer) -> Named:
    """What SGD remembers of each weight; nothing before an optimiser's first step."""
    found = {name: optimiser.state.get(tensor, {}) for name, tensor in weights.items()}
    return {name: state["momentum_buffer"] for name, state in found.items() if state}


def gradients(weights: Named) -> Named:
    """The gradients of weights that are trained."""
    found = {name: tensor.grad for name, tensor in weights.items() if tensor.requires_grad}
    return {name: gradient for name, gradient in found.items() if gradient is not None}


def copied(tensors: Named) -> Named:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}


@torch.no_grad()
def put(tensors: Mapping[str, Tensor], into: Named) -> None:
    """Copy tensors into those of the same names."""
    for name, tensor in into.items():
        tensor.copy_(tensors[name].view_as(tensor))


def difference(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> float:
    """The largest difference, divided by the largest number of that tensor; inf where one lacks."""
    if one.keys() != other.keys():
        return float("inf")
    return max((apart(one[name], other[name]) for name in one), default=0.0)


def apart(one: Tensor, other: Tensor) -> float:
    """The largest difference of two tensors, divided by the largest number of the second."""
    if one.numel() != other.numel():
        return float("inf")
    one, other = one.detach(), other.detach().reshape(one.shape)
    return float((one - other).abs().max() / other.abs().max().clamp(min=1e-300))


def _of(network: nn.Module, kind: type[nn.Module]) -> list[nn.Module]:
    return [module for module in network.modules() if isinstance(module, kind)]
