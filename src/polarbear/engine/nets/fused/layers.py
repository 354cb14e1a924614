"""What a ResNet for 32×32 images is made of, as the fused kernels take it."""

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from polarbear.engine.nets.fused.launch import Layer
from polarbear.engine.nets.networks import Residual


def layer_of(pair: nn.Module) -> Layer:
    """Return a convolution and its batch norm as one layer."""
    conv, norm = pair.children()
    return Layer(cast(nn.Conv2d, conv), cast(nn.BatchNorm2d, norm))


def layers_of(residual: Residual) -> list[Layer]:
    """Return a block's two layers and, where it changes the shape, that of its shortcut."""
    first, _, second = residual.layers
    past = [] if isinstance(residual.shortcut, nn.Identity) else [residual.shortcut]
    return [layer_of(pair) for pair in (first, second, *past)]


def layers_in(backbone: nn.Module) -> Iterator[Layer]:
    """Return all layers: the stem, then each block's two and its shortcut's."""
    stem, _, *residuals = backbone.layers  # type: ignore[misc]
    yield layer_of(stem)
    for residual in residuals:
        yield from layers_of(residual)


def as_pixels(images: Tensor, inputs: int, dtype: torch.dtype) -> Tensor:
    """Return images (n, 3, h, w) as maps (n, h, w, inputs)."""
    n, colours, height, width = images.shape
    pixels = images.new_zeros((n, height, width, inputs), dtype=dtype)
    pixels[..., :colours] = images.permute(0, 2, 3, 1)
    return pixels


def rounded_filters(layers: list[Layer], dtype: torch.dtype) -> list[Tensor]:
    """Return every filter as (outputs, taps, taps, inputs), rounded, all at once."""
    turned = [layer.conv.weight.detach().permute(0, 2, 3, 1) for layer in layers]
    turned[0] = functional.pad(turned[0], (0, layers[0].inputs - turned[0].shape[3]))
    flat = torch.cat([weights.reshape(-1) for weights in turned]).to(dtype)
    parts = torch.split(flat, [weights.numel() for weights in turned])
    return [part.view(weights.shape) for part, weights in zip(parts, turned, strict=True)]


def parameters(backbone: nn.Module) -> list[Tensor]:
    """Return what a network learns, in the order of its gradients."""
    return [p for layer in layers_in(backbone) for p in layer.parameters]


def ends_of_stages(backbone: nn.Module) -> frozenset[int]:
    """Return the blocks that end a stage but the last: the stem and its ReLU are before them."""
    places: frozenset[int] = backbone.ends  # type: ignore[assignment]
    return frozenset(place - 2 for place in places)


def vectors_of_zeros(sizes: list[int], device: torch.device) -> tuple[Tensor, ...]:
    """Return vectors of zeros out of one, which is cleared at once."""
    return torch.split(torch.zeros(sum(sizes), device=device), sizes)
