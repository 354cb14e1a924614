"""The ResNets for 32×32 images in few, fused kernels: the same mathematics, twice the speed.

A general library reads every map of a small network several times: to convolve, to sum, to
normalise, to add, and the same again backwards. Here each layer is two kernels forwards and two
backwards (``fused_kernels``), which round where PyTorch's autocast rounds: maps and their gradients
are bfloat16 in memory; sums, statistics, weights and their gradients float32. Sums over a batch are
added up in the order in which the GPU comes to them, so the last bits differ from run to run, as
they do with cuDNN.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from polarbear.engine.fused_launch import (
    Gradients,
    Layer,
    Passed,
    convolve,
    filter_gradient,
    kernels,
    normalise,
    sum_gradient,
)
from polarbear.engine.nets import CifarResNet, Residual


@dataclass(frozen=True, eq=False)
class PassedBlock:
    """What a block leaves for its way back; ``between`` and ``out`` are its activations."""

    first: Passed
    second: Passed
    shortcut: Passed | None
    between: Tensor
    out: Tensor


def suits(backbone: nn.Module, images: Tensor) -> bool:
    """Whether the fused kernels can do this: a ResNet for 32×32 images in bf16 on a GPU."""
    return (
        isinstance(backbone, CifarResNet)
        and images.is_cuda
        and torch.is_autocast_enabled("cuda")
        and torch.get_autocast_dtype("cuda") == torch.bfloat16
        and (backbone.training or not torch.is_grad_enabled())
        and images.shape[2] % 4 == images.shape[3] % 4 == 0
        and kernels() is not None
    )


def features(backbone: nn.Module, images: Tensor, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Give the features (n, 64) of images (n, 3, h, w), as ``backbone(images)`` would."""
    if torch.is_grad_enabled():
        parameters = [p for layer in _layers(backbone) for p in layer.parameters]
        result: Tensor = _Features.apply(backbone, images, dtype, *parameters)  # type: ignore[no-untyped-call]
        return result
    return ForwardPass(backbone, images, dtype).features()


class _Features(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, backbone: nn.Module, images: Tensor, dtype: torch.dtype, *_: Tensor
    ) -> Tensor:
        ctx.forward_pass = ForwardPass(backbone, images, dtype)
        found: Tensor = ctx.forward_pass.features()
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        return (None, None, None, *BackwardPass(ctx.forward_pass).gradients(gradient))


class ForwardPass:
    """Takes images through a network and keeps what the way back needs."""

    def __init__(self, backbone: nn.Module, images: Tensor, dtype: torch.dtype) -> None:
        """Compute every map."""
        self.training = backbone.training
        layers = [*_layers(backbone)]
        self._sums = iter(_zeros([2 * layer.outputs for layer in layers], images.device))
        self._weights = iter(_rounded(layers, dtype))
        n, colours, height, width = images.shape
        pixels = images.new_zeros((n, height, width, layers[0].inputs), dtype=dtype)
        pixels[..., :colours] = images.permute(0, 2, 3, 1)
        stem, _, *residuals = backbone.layers  # type: ignore[misc]
        self.stem = self._convolve(_layer(stem), pixels)
        self.start = maps = normalise(self.stem, None, relu=True, training=self.training)
        self.blocks: list[PassedBlock] = []
        for residual in residuals:
            self.blocks.append(self._block(residual, maps))
            maps = self.blocks[-1].out

    def features(self) -> Tensor:
        """Give the last maps averaged over all places: (n, 64)."""
        return self.blocks[-1].out.mean(dim=(1, 2))

    def passed(self) -> Iterator[Passed]:
        """Give what every layer left, in the order of ``_layers``."""
        yield self.stem
        for block in self.blocks:
            yield block.first
            yield block.second
            if block.shortcut is not None:
                yield block.shortcut

    def _block(self, residual: Residual, maps: Tensor) -> PassedBlock:
        layers = _layers_of(residual)
        first = self._convolve(layers[0], maps)
        between = normalise(first, None, relu=True, training=self.training)
        second = self._convolve(layers[1], between)
        shortcut = self._convolve(layers[2], maps) if len(layers) > 2 else None
        past = maps if shortcut is None else shortcut
        out = normalise(second, past, relu=residual.relu_after, training=self.training)
        return PassedBlock(first, second, shortcut, between, out)

    def _convolve(self, layer: Layer, source: Tensor) -> Passed:
        n, height, width, _ = source.shape
        shape = (n, height // layer.stride, width // layer.stride, layer.outputs)
        passed = Passed(
            layer, source, source.new_empty(shape), next(self._weights), next(self._sums)
        )
        sums = passed.sums if self.training else None
        convolve(source, passed.weights, passed.raw, layer.stride, sums=sums)
        return passed


class BackwardPass:
    """Takes a gradient of the features back through what a forward pass has left."""

    def __init__(self, forward: ForwardPass) -> None:
        """Make room for every layer's gradients."""
        self.forward = forward
        self.into = room_for([*forward.passed()])

    def gradients(self, gradient: Tensor) -> list[Tensor]:
        """Give those of every layer's parameters, for that of the features (n, 64)."""
        blocks = self.forward.blocks
        out = blocks[-1].out
        spread = (gradient / (out.shape[1] * out.shape[2])).to(out.dtype)
        flow = spread[:, None, None, :].expand(out.shape).contiguous()
        self._sum(blocks[-1].second, flow)
        for i in reversed(range(len(blocks))):
            below = blocks[i - 1].second if i else self.forward.stem
            activations = blocks[i - 1].out if i else self.forward.start
            flow = self._block(blocks[i], flow, below, activations)
        self._through_layer(self.forward.stem, flow)
        return [g for passed in self.forward.passed() for g in self._of_layer(passed)]

    def _block(
        self, block: PassedBlock, flow: Tensor, below: Passed, activations: Tensor
    ) -> Tensor:
        """Give the gradient before the ReLU of the block below, for one after this block's sum."""
        inner = torch.empty_like(block.between)
        self._below(block.second, flow, block.first, block.between, inner)
        past = flow if block.shortcut is None else self._shortcut(block.shortcut, flow)
        lower = torch.empty_like(activations)
        self._below(block.first, inner, below, activations, lower, added=past)
        return lower

    def _below(
        self,
        passed: Passed,
        flow: Tensor,
        below: Passed,
        activations: Tensor,
        out: Tensor,
        added: Tensor | None = None,
    ) -> None:
        """Take a gradient through a layer and the ReLU below it, and sum it for that batch norm."""
        convolve(
            self._through_layer(passed, flow),
            passed.weights,
            out,
            sums=self.into[id(below)].sums,
            added=added,
            activations=activations,
            raw=below.raw,
            backward=True,
        )

    def _shortcut(self, passed: Passed, flow: Tensor) -> Tensor:
        self._sum(passed, flow)
        out = torch.empty_like(passed.source)
        convolve(self._through_layer(passed, flow), passed.weights, out, backward=True)
        return out

    def _sum(self, passed: Passed, flow: Tensor) -> None:
        sum_gradient(flow, passed.raw, self.into[id(passed)].sums)

    def _through_layer(self, passed: Passed, flow: Tensor) -> Tensor:
        return filter_gradient(passed, flow, self.into[id(passed)])

    def _of_layer(self, passed: Passed) -> tuple[Tensor, Tensor, Tensor]:
        into, colours = self.into[id(passed)], passed.layer.conv.in_channels
        weights = into.weights.view(passed.weights.shape)[..., :colours]
        return weights.permute(0, 3, 1, 2), into.scale, into.shift


def room_for(passed: list[Passed]) -> dict[int, Gradients]:
    """Give room for the gradients of layers, by the identity of what they left."""
    device = passed[0].raw.device
    sums = _zeros([2 * p.layer.outputs for p in passed], device)
    weights = _zeros([p.weights.numel() for p in passed], device)
    channels = [p.layer.outputs for p in passed for _ in range(2)]
    norms = torch.split(torch.empty(sum(channels), device=device), channels)
    parts = zip(passed, sums, weights, norms[::2], norms[1::2], strict=True)
    return {id(p): Gradients(*rest) for p, *rest in parts}


def _layer(pair: nn.Module) -> Layer:
    conv, norm = pair.children()
    return Layer(cast(nn.Conv2d, conv), cast(nn.BatchNorm2d, norm))


def _layers_of(residual: Residual) -> list[Layer]:
    """Give a block's two layers and, where it changes the shape, that of its shortcut."""
    first, _, second = residual.layers
    past = [] if isinstance(residual.shortcut, nn.Identity) else [residual.shortcut]
    return [_layer(pair) for pair in (first, second, *past)]


def _layers(backbone: nn.Module) -> Iterator[Layer]:
    stem, _, *residuals = backbone.layers  # type: ignore[misc]
    yield _layer(stem)
    for residual in residuals:
        yield from _layers_of(residual)


def _zeros(sizes: list[int], device: torch.device) -> tuple[Tensor, ...]:
    """Give vectors of zeros out of one, which is cleared at once."""
    return torch.split(torch.zeros(sum(sizes), device=device), sizes)


def _rounded(layers: list[Layer], dtype: torch.dtype) -> list[Tensor]:
    """Give every filter as (outputs, taps, taps, inputs), rounded, all at once."""
    turned = [layer.conv.weight.detach().permute(0, 2, 3, 1) for layer in layers]
    turned[0] = functional.pad(turned[0], (0, layers[0].inputs - turned[0].shape[3]))
    flat = torch.cat([weights.reshape(-1) for weights in turned]).to(dtype)
    parts = torch.split(flat, [weights.numel() for weights in turned])
    return [part.view(weights.shape) for part, weights in zip(parts, turned, strict=True)]
