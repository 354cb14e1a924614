"""Launches of the fused kernels, and how each divides its work.

Maps are (n, height, width, channels), filters (outputs, taps, taps, inputs), sums (2 · channels).
"""

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

ELEMENTS = 4096  # that a program normalises


@dataclass(frozen=True, eq=False)
class Layer:
    """A convolution without a bias and its batch norm."""

    conv: nn.Conv2d
    norm: nn.BatchNorm2d

    @property
    def inputs(self) -> int:
        """Channels it reads: red, green and blue come with a channel of zeros."""
        return max(self.conv.in_channels, 4)

    @property
    def outputs(self) -> int:
        """Channels it writes."""
        return self.conv.out_channels

    @property
    def taps(self) -> int:
        """Side of its filter."""
        return self.conv.kernel_size[0]

    @property
    def stride(self) -> int:
        """Pixels from one place to the next."""
        return self.conv.stride[0]

    @property
    def parameters(self) -> tuple[Tensor, Tensor, Tensor]:
        """What it learns."""
        return self.conv.weight, self.norm.weight, self.norm.bias


@dataclass(frozen=True, eq=False)
class Passed:
    """What a layer leaves for its way back: its input and its maps before batch norm."""

    layer: Layer
    source: Tensor
    raw: Tensor
    weights: Tensor
    sums: Tensor


@dataclass(frozen=True, eq=False)
class Gradients:
    """Where a layer's gradients go; ``sums`` are those of the gradient that reaches it."""

    sums: Tensor
    weights: Tensor
    scale: Tensor
    shift: Tensor


@dataclass(frozen=True)
class Tiles:
    """How a kernel divides its work; ``bench/kernels.py --search`` times the choices one by one.

    A program does ``blocks`` times ``block`` pixels, for ``rows`` times ``run`` taps of a filter.
    """

    block: int
    run: int
    blocks: int = 1
    rows: int = 1
    warps: int = 4
    stages: int = 1

    def constants(self, inputs: int, taps: int) -> dict[str, int]:
        """Return what a kernel is compiled for."""
        run = min(self.run, taps)
        return {
            "INPUTS": inputs,
            "TAPS": taps,
            "BLOCK": self.block,
            "RUN": run,
            # A power of two, 16 at least: the smallest matrix product there is.
            "K": max(16, 1 << (run * inputs - 1).bit_length()),
            "num_warps": self.warps,
            "num_stages": self.stages,
        }


# By the channels a convolution reads, chosen on an H200 for a fleet of six: 222,379 images/s of
# forward and backward passes. The fastest one by one give 194,258, but a lone run 10 % more.
CONVOLVE = {
    4: Tiles(256, run=3),
    16: Tiles(256, run=1),
    32: Tiles(128, run=1),
    64: Tiles(64, run=1),
}
FILTER = {
    4: Tiles(128, run=3, blocks=16, rows=3, stages=3),
    16: Tiles(64, run=3, blocks=16, rows=3, stages=3),
    32: Tiles(64, run=1, blocks=8, rows=3, stages=3),
    64: Tiles(64, run=1, blocks=8, rows=3, stages=3),
}


@cache
def kernels() -> Any:
    """Import the kernels, where Triton is there; None where it is not."""
    if find_spec("triton") is None:
        return None
    from polarbear.engine.nets.fused import kernels as fused_kernels

    return fused_kernels


def convolve(
    source: Tensor,
    weights: Tensor,
    out: Tensor,
    stride: int = 1,
    *,
    sums: Tensor | None = None,
    added: Tensor | None = None,
    activations: Tensor | None = None,
    raw: Tensor | None = None,
    norm: nn.BatchNorm2d | None = None,
    relu: bool = False,
    backward: bool = False,
) -> None:
    """Convolve maps into ``out``, or take a gradient back; None leaves that part out."""
    n, height, width, outputs = out.shape
    inputs, taps = source.shape[3], weights.shape[1]
    tiles, pixels = CONVOLVE[inputs], n * height * width
    kernels().convolve[(_parts(pixels, tiles.block),)](
        source,
        weights,
        out,
        out if sums is None else sums,
        out if added is None else added,
        out if activations is None else activations,
        out if raw is None else raw,
        *((out,) * 4 if norm is None else _known_norm(norm)),
        pixels,
        0.0 if norm is None else norm.eps,
        HEIGHT=height,
        WIDTH=width,
        STRIDE=stride,
        OUTPUTS=outputs,
        BACKWARD=backward,
        NORMALISE=norm is not None,
        ADD=added is not None,
        CLIP=relu,
        RELU=activations is not None,
        SUMS=sums is not None,
        **tiles.constants(inputs, taps),
    )


def evaluated(
    layer: Layer, weights: Tensor, source: Tensor, added: Tensor | None = None, *, relu: bool
) -> Tensor:
    """Return a layer's maps, normed by the running statistics, plus others, after ReLU."""
    n, height, width, _ = source.shape
    shape = (n, height // layer.stride, width // layer.stride, layer.outputs)
    out = source.new_empty(shape)
    convolve(source, weights, out, layer.stride, norm=layer.norm, added=added, relu=relu)
    return out


def normalise(passed: Passed, added: Tensor | Passed | None, *, relu: bool) -> Tensor:
    """Return a layer's maps normed by the batch, plus others (normed, if a layer's), after ReLU."""
    raw, norm = passed.raw, passed.layer.norm
    other = added if isinstance(added, Passed) else passed
    other_norm = other.layer.norm
    out = torch.empty_like(raw)
    channels = raw.shape[3]
    pixels, block = raw.numel() // channels, ELEMENTS // channels
    kernels().normalise[(_parts(pixels, block),)](
        raw,
        passed.sums,
        norm.weight,
        norm.bias,
        norm.running_mean,
        norm.running_var,
        added if isinstance(added, Tensor) else other.raw,
        other.sums,
        other_norm.weight,
        other_norm.bias,
        other_norm.running_mean,
        other_norm.running_var,
        out,
        pixels,
        norm.momentum,
        norm.eps,
        CHANNELS=channels,
        BLOCK=block,
        ADD=isinstance(added, Tensor),
        ADD_NORMALISED=isinstance(added, Passed),
        RELU=relu,
        num_warps=4,
    )
    return out


def sum_gradient(gradient: Tensor, raw: Tensor, sums: Tensor) -> None:
    """Add the sums of a gradient and of gradient × raw to ``sums``."""
    channels = gradient.shape[3]
    pixels, block = gradient.numel() // channels, ELEMENTS // channels
    kernels().sum_gradient[(_parts(pixels, block),)](
        gradient, raw, sums, pixels, CHANNELS=channels, BLOCK=block, num_warps=4
    )


def filter_gradient(passed: Passed, gradient: Tensor, into: Gradients) -> Tensor:
    """Sum a layer's gradients; returns that of its maps before batch norm, spread by its stride."""
    layer, (n, height, width, outputs) = passed.layer, gradient.shape
    shape = (n, height * layer.stride, width * layer.stride, outputs)
    out = gradient.new_empty(shape) if layer.stride == 1 else gradient.new_zeros(shape)
    tiles, pixels = FILTER[layer.inputs], n * height * width
    rows, run = min(tiles.rows, layer.taps), min(tiles.run, layer.taps)
    programs = _parts(pixels, tiles.block * tiles.blocks)
    kernels().filter_gradient[(programs, layer.taps // rows, layer.taps // run)](
        passed.source,
        gradient,
        passed.raw,
        passed.sums,
        into.sums,
        layer.norm.weight,
        out,
        into.weights,
        into.scale,
        into.shift,
        pixels,
        layer.norm.eps,
        HEIGHT=height,
        WIDTH=width,
        STRIDE=layer.stride,
        OUTPUTS=outputs,
        TILES=tiles.blocks,
        ROWS=rows,
        **tiles.constants(layer.inputs, layer.taps),
    )
    return out


def _known_norm(norm: nn.BatchNorm2d) -> tuple[Any, ...]:
    return norm.weight, norm.bias, norm.running_mean, norm.running_var


def _parts(whole: int, part: int) -> int:
    return -(-whole // part)
