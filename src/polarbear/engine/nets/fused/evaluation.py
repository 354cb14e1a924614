"""The way through a ResNet that is only asked, in fused kernels: one per layer."""

import torch
from torch import Tensor, nn

from polarbear.engine.nets.fused import blocks
from polarbear.engine.nets.fused.launch import Layer, evaluated
from polarbear.engine.nets.fused.layers import as_pixels, layers_in, layers_of, rounded_filters


def evaluated_maps(
    backbone: nn.Module,
    images: Tensor,
    dtype: torch.dtype,
    *,
    whole: bool,
    ends: frozenset[int] = frozenset(),
) -> tuple[Tensor, ...]:
    """Return the maps (n, h, w, c) that ``ends`` and the network end with, by running statistics.

    These are known before any map is, so that a layer is one kernel: one for whole images, where
    these work (``whole``) and suit the layer, else one of Triton's.
    """
    layers = [*layers_in(backbone)]
    weights = iter(rounded_filters(layers, dtype))
    found: list[Tensor] = []
    _, _, *residuals = backbone.layers  # type: ignore[misc]
    pixels = as_pixels(images, layers[0].inputs, dtype)
    below = evaluated(layers[0], next(weights), pixels, relu=True)
    for i, residual in enumerate(residuals):
        first, second, *past = [(layer, next(weights)) for layer in layers_of(residual)]
        between = _evaluated(whole, *first, below, relu=True)
        added = evaluated(*past[0], below, relu=False) if past else below
        relu = residual.relu_after and i not in ends
        below = _evaluated(whole, *second, between, added, relu=relu)
        if i in ends:
            found.append(below)
            below = below.relu()
    return (*found, below)


def _evaluated(
    whole: bool,
    layer: Layer,
    weights: Tensor,
    source: Tensor,
    added: Tensor | None = None,
    *,
    relu: bool,
) -> Tensor:
    by_whole = whole and blocks.suit(layer, source)
    return (blocks.evaluated if by_whole else evaluated)(layer, weights, source, added, relu=relu)
