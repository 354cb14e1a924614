"""The way back through a ResNet in fused kernels: by those for whole images, or two of Triton's."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor

from polarbear.engine.nets.fused import blocks, means, stem, widen
from polarbear.engine.nets.fused.forward import ForwardPass, PassedBlock
from polarbear.engine.nets.fused.launch import (
    Gradients,
    Passed,
    convolve,
    filter_gradient,
    sum_gradient,
)
from polarbear.engine.nets.fused.layers import vectors_of_zeros


class BackwardPass:
    """Takes gradients of the features, or of maps, back through what a forward pass has left."""

    def __init__(self, forward: ForwardPass) -> None:
        """Make room for every layer's gradients."""
        self.forward = forward
        passed = [*forward.passed()]
        alike: dict[int, list[Passed]] = {}
        for p in passed:
            if forward.has_whole(p.layer, p.source):
                alike.setdefault(p.layer.outputs, []).append(p)
        self._parts = [(layers, blocks.parts_of_filters(layers)) for layers in alike.values()]
        self._has_stem = forward.has_stem(forward.stem.layer, forward.stem.source)
        if self._has_stem:
            self._parts.append(([forward.stem], stem.parts_of_filter(forward.stem)))
        self._widened = {
            id(block): (block.first, block.shortcut, widen.parts_of_filters(block.first))
            for block in forward.blocks
            if block.shortcut is not None
            and forward.widens(block.first.layer, block.shortcut.layer, block.first.source)
        }
        parts = {
            id(p): part
            for layers, room in self._parts
            for p, part in zip(layers, room, strict=True)
        }
        for first, shortcut, room in self._widened.values():
            parts[id(first)] = parts[id(shortcut)] = room
        self.into = room_for(passed, parts)

    def of_features(self, gradient: Tensor) -> list[Tensor]:
        """Return the gradients of all parameters, for that of the features (n, 64)."""
        last = self.forward.blocks[-1].second
        if self.forward.has_means(last):
            flow = means.back(last, gradient, self.into[id(last)].sums)
        else:
            _, height, width, _ = last.raw.shape
            spread = (gradient / (height * width)).to(last.raw.dtype)
            flow = spread[:, None, None, :].expand(last.raw.shape).contiguous()
            self._sum(last, flow)
        return self._of_parameters(flow, {})

    def of_maps(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Return the gradients of all parameters, for those of ``ForwardPass.maps``."""
        dtype = self.forward.stem.raw.dtype
        *ends, last = [_aligned(g.to(dtype).contiguous()) for g in gradients]
        self._sum(self.forward.blocks[-1].second, last)
        return self._of_parameters(last, dict(zip(self.forward.ends, ends, strict=True)))

    def _of_parameters(self, flow: Tensor, at_ends: dict[int, Tensor]) -> list[Tensor]:
        """Take a gradient of the last maps back, plus those of the maps before a block's ReLU."""
        passed_blocks = self.forward.blocks
        for i in reversed(range(len(passed_blocks))):
            below = passed_blocks[i - 1].second if i else self.forward.stem
            activations = passed_blocks[i - 1].out if i else self.forward.start
            flow = self._block(passed_blocks[i], flow, below, activations)
            if i - 1 in at_ends:
                self._sum(below, at_ends[i - 1])
                flow += at_ends[i - 1]
        self._stem(self.forward.stem, flow)
        filters = {key: room.weights for key, room in self.into.items()}
        for layers, parts in self._parts:
            filters |= {id(p): total for p, total in zip(layers, parts.sum(1), strict=True)}
        for first, shortcut, parts in self._widened.values():
            filters[id(first)], filters[id(shortcut)] = widen.filters_of(parts)
        return [
            gradient
            for passed in self.forward.passed()
            for gradient in self._of_layer(passed, filters[id(passed)])
        ]

    def _block(
        self, block: PassedBlock, flow: Tensor, below: Passed, activations: Tensor
    ) -> Tensor:
        """Return the gradient before the ReLU of the block below, for one after its sum."""
        inner = self._below(block.second, flow, block.first, block.between)
        if id(block) in self._widened:
            return self._widen(*self._widened[id(block)], inner, flow, below)
        past = flow if block.shortcut is None else self._shortcut(block.shortcut, flow)
        return self._below(block.first, inner, below, activations, added=past)

    def _below(
        self,
        passed: Passed,
        flow: Tensor,
        below: Passed,
        activations: Tensor | None,
        added: Tensor | None = None,
    ) -> Tensor:
        """Take a gradient through a layer and the ReLU below it, and sum it for that batch norm."""
        sums = self.into[id(below)].sums
        if self.forward.has_whole(passed.layer, passed.source):
            into = self.into[id(passed)]
            return blocks.back(passed, flow, into, below, sums, activations, added)
        out = torch.empty_like(below.raw)
        convolve(
            self._through_layer(passed, flow),
            passed.weights,
            out,
            sums=sums,
            added=added,
            activations=activations,
            raw=below.raw,
            backward=True,
        )
        return out

    def _widen(
        self,
        first: Passed,
        shortcut: Passed,
        parts: Tensor,
        inner: Tensor,
        flow: Tensor,
        below: Passed,
    ) -> Tensor:
        """Take a block's gradients back through its first layer and its shortcut."""
        self._sum(shortcut, flow)
        into, below_sums = self.into[id(first)], self.into[id(below)].sums
        past_into = self.into[id(shortcut)]
        return widen.back(
            first, shortcut, (inner, flow), (into, past_into), parts, below, below_sums
        )

    def _shortcut(self, passed: Passed, flow: Tensor) -> Tensor:
        self._sum(passed, flow)
        out = torch.empty_like(passed.source)
        convolve(self._through_layer(passed, flow), passed.weights, out, backward=True)
        return out

    def _stem(self, passed: Passed, flow: Tensor) -> None:
        if self._has_stem:
            stem.back(passed, flow, self.into[id(passed)])
        else:
            self._through_layer(passed, flow)

    def _sum(self, passed: Passed, flow: Tensor) -> None:
        sum_gradient(flow, passed.raw, self.into[id(passed)].sums)

    def _through_layer(self, passed: Passed, flow: Tensor) -> Tensor:
        return filter_gradient(passed, flow, self.into[id(passed)])

    def _of_layer(self, passed: Passed, of_filter: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        into, colours = self.into[id(passed)], passed.layer.conv.in_channels
        weights = of_filter.view(passed.weights.shape)[..., :colours]
        return weights.permute(0, 3, 1, 2), into.scale, into.shift


def _aligned(gradient: Tensor) -> Tensor:
    """Return a gradient where kernels can read sixteen bytes at once: it may be part of another."""
    return gradient.clone() if gradient.data_ptr() % 16 else gradient


def room_for(
    passed: list[Passed], parts: Mapping[int, Tensor] = MappingProxyType({})
) -> dict[int, Gradients]:
    """Return room for the gradients of layers, by the identity of what they left.

    Filters' gradients are added to zeros, where they do not come in ``parts``.
    """
    device = passed[0].raw.device
    sums = vectors_of_zeros([2 * p.layer.outputs for p in passed], device)
    sizes = [0 if id(p) in parts else p.weights.numel() for p in passed]
    weights = [
        parts.get(id(p), z) for p, z in zip(passed, vectors_of_zeros(sizes, device), strict=True)
    ]
    channels = [p.layer.outputs for p in passed for _ in range(2)]
    norms = torch.split(torch.empty(sum(channels), device=device), channels)
    rest = zip(passed, sums, weights, norms[::2], norms[1::2], strict=True)
    return {id(p): Gradients(*room) for p, *room in rest}
