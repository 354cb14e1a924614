"""The ways through a ResNet in fused kernels: forwards, backwards, and in evaluation.

The stem, layers that keep their width, those that double it, and the features go by the kernels
for whole images (``stem``, ``blocks``, ``widen``, ``means``), where these work; all others by
Triton's (``launch``), two kernels forwards and two backwards.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import cast

import torch
from torch import Tensor, nn

from polarbear.engine.nets.fused import blocks, means, stem, widen
from polarbear.engine.nets.fused.launch import (
    Gradients,
    Layer,
    Passed,
    convolve,
    evaluated,
    filter_gradient,
    normalise,
    sum_gradient,
)
from polarbear.engine.nets.fused.layers import (
    as_pixels,
    ends_of_stages,
    layers_in,
    layers_of,
    rounded_filters,
)
from polarbear.engine.nets.networks import Residual


@dataclass(frozen=True, eq=False)
class PassedBlock:
    """What a block leaves for its way back; ``between`` and ``out`` are its activations.

    Those between are left out where the kernels for whole images make them from ``first`` again.
    The last block's ``out`` is not written where only its means are wanted.
    """

    first: Passed
    second: Passed
    shortcut: Passed | None
    between: Tensor | None
    out: Tensor


class ForwardPass:
    """Takes images through a network in training, and keeps what the way back needs if wanted."""

    def __init__(
        self,
        backbone: nn.Module,
        images: Tensor,
        dtype: torch.dtype,
        *,
        keep: bool = True,
        maps: bool = False,
    ) -> None:
        """Compute every map; ``maps`` keeps those that stages end with, too."""
        layers = [*layers_in(backbone)]
        sums = _zeros([2 * layer.outputs for layer in layers], images.device)
        rooms = zip(rounded_filters(layers, dtype), sums, strict=True)
        self._rooms = dict(zip((layer.conv for layer in layers), rooms, strict=True))
        self._whole = _has_whole(images, dtype)
        self._unended: tuple[Passed, Tensor | Passed | None] | None = None
        self._unmeant: tuple[Passed, Tensor] | None = None
        self._wants_maps = maps
        self.stem = self._convolve(layers[0], self._pixels(images, layers[0], dtype))
        _, _, *residuals = backbone.layers  # type: ignore[misc]
        self.start = below = self._ended(self.stem, None, residuals[0])
        self.blocks: list[PassedBlock] = []
        self.ends: list[int] = []  # blocks whose maps before the ReLU are wanted
        self._maps: list[Tensor] = []
        wanted = ends_of_stages(backbone) if maps else frozenset()
        for i, residual in enumerate(residuals):
            following = residuals[i + 1] if i + 1 < len(residuals) else None
            block = self._block(residual, below, following, i if i in wanted else None)
            self.blocks = [*self.blocks, block] if keep else [block]
            below = block.out

    def features(self) -> Tensor:
        """Return the last maps averaged over all places: (n, 64)."""
        if self._unmeant is None:
            return self.blocks[-1].out.mean(dim=(1, 2))
        return means.of_end(*self._unmeant)

    def maps(self) -> tuple[Tensor, ...]:
        """Give the maps (n, h, w, c) that stages end with, before their ReLU, and forget them."""
        # What autograd returns must not be what it keeps: a caller may change it.
        found, self._maps = [*self._maps, self.blocks[-1].out.clone()], []
        return tuple(found)

    def passed(self) -> Iterator[Passed]:
        """Return what every layer left, in the order of ``layers_in``."""
        yield self.stem
        for block in self.blocks:
            yield block.first
            yield block.second
            if block.shortcut is not None:
                yield block.shortcut

    def _block(
        self, residual: Residual, maps: Tensor, following: Residual | None, end: int | None
    ) -> PassedBlock:
        layers = layers_of(residual)
        past_layer = layers[2] if len(layers) > 2 else None
        shortcut: Passed | None
        if past_layer is not None and self.widens(layers[0], past_layer, maps):
            first, shortcut = self._widen(layers[0], past_layer, maps)
        else:
            first = self._convolve(layers[0], maps)
            shortcut = None if past_layer is None else self._convolve(past_layer, maps)
        by_whole = self.has_whole(layers[1], first.raw)
        between = None if by_whole else normalise(first, None, relu=True)
        second = self._convolve(layers[1], first if between is None else between)
        past = maps if shortcut is None else shortcut
        if end is not None:
            self.ends.append(end)
            self._maps.append(normalise(second, past, relu=False))
            out = self._maps[-1].relu()
        elif residual.relu_after:
            out = self._ended(second, past, following)
        elif not self._wants_maps and isinstance(past, Tensor) and self.has_means(second):
            self._unmeant, out = (second, past), torch.empty_like(past)
        else:
            out = normalise(second, past, relu=False)
        return PassedBlock(first, second, shortcut, between, out)

    def has_whole(self, layer: Layer, maps: Tensor) -> bool:
        """Whether the kernels for whole images do a layer that reads these maps."""
        return self._whole and blocks.suit(layer, maps)

    def has_stem(self, layer: Layer, pixels: Tensor) -> bool:
        """Whether the stem's own kernels do a layer that reads these pixels."""
        return self._whole and stem.suit(layer, pixels)

    def has_means(self, last: Passed) -> bool:
        """Whether the last layer's maps go by kernels of their own to the features and back."""
        return self._whole and means.suit(last)

    def widens(self, first: Layer, shortcut: Layer, maps: Tensor) -> bool:
        """Whether one kernel does a block's first layer and its shortcut, which read these maps."""
        return self._whole and widen.suit(first, shortcut, maps)

    def _pixels(self, images: Tensor, layer: Layer, dtype: torch.dtype) -> Tensor:
        """Return images as the stem's kernels or Triton's read them."""
        pixels = images.permute(0, 2, 3, 1)
        if self.has_stem(layer, pixels):
            return stem.as_read(pixels)
        return as_pixels(images, layer.inputs, dtype)

    def _ended(
        self, last: Passed, past: Tensor | Passed | None, following: Residual | None
    ) -> Tensor:
        """Return the maps that a block, or the stem, ends with.

        They may be still to be written, by the next block's first layer.
        """
        if following is None or not self._is_ended_by(following, last.raw, past):
            return normalise(last, past, relu=True)
        self._unended = last, past
        return torch.empty_like(last.raw)

    def _is_ended_by(self, following: Residual, maps: Tensor, past: Tensor | Passed | None) -> bool:
        """Whether a block's first layer can write what the block before ends with."""
        first, _, *shortcut = layers_of(following)
        if shortcut and isinstance(past, Tensor):
            return self.widens(first, shortcut[0], maps)
        return self.has_whole(first, maps)

    def _passed(self, layer: Layer, maps: Tensor) -> Passed:
        """Return what a layer that reads these maps will leave."""
        n, height, width, _ = maps.shape
        shape = (n, height // layer.stride, width // layer.stride, layer.outputs)
        weights, sums = self._rooms[layer.conv]
        return Passed(layer, maps, weights.new_empty(shape), weights, sums)

    def _widen(
        self, first_layer: Layer, shortcut_layer: Layer, maps: Tensor
    ) -> tuple[Passed, Passed]:
        """Convolve maps by a block's first layer and by its shortcut."""
        first, shortcut = self._passed(first_layer, maps), self._passed(shortcut_layer, maps)
        if self._unended is None:
            widen.convolve(maps, first, shortcut)
        else:
            below, past = self._unended
            widen.convolve_ended(below, cast(Tensor, past), maps, first, shortcut)
            self._unended = None
        return first, shortcut

    def _convolve(self, layer: Layer, source: Tensor | Passed) -> Passed:
        """Convolve maps, or what the layer below has passed, after its batch norm and ReLU."""
        passed = self._passed(layer, source.raw if isinstance(source, Passed) else source)
        if isinstance(source, Passed):
            blocks.convolve_normalised(source, passed)
        elif self._unended is not None:
            blocks.convolve_ended(*self._unended, source, passed)
            self._unended = None
        elif self.has_whole(layer, source):
            blocks.convolve(source, passed)
        elif self.has_stem(layer, source):
            stem.convolve(passed)
        else:
            convolve(source, passed.weights, passed.raw, layer.stride, sums=passed.sums)
        return passed


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
        *ends, last = [g.to(dtype).contiguous() for g in gradients]
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


def room_for(
    passed: list[Passed], parts: Mapping[int, Tensor] = MappingProxyType({})
) -> dict[int, Gradients]:
    """Return room for the gradients of layers, by the identity of what they left.

    Filters' gradients are added to zeros, where they do not come in ``parts``.
    """
    device = passed[0].raw.device
    sums = _zeros([2 * p.layer.outputs for p in passed], device)
    sizes = [0 if id(p) in parts else p.weights.numel() for p in passed]
    weights = [parts.get(id(p), z) for p, z in zip(passed, _zeros(sizes, device), strict=True)]
    channels = [p.layer.outputs for p in passed for _ in range(2)]
    norms = torch.split(torch.empty(sum(channels), device=device), channels)
    rest = zip(passed, sums, weights, norms[::2], norms[1::2], strict=True)
    return {id(p): Gradients(*room) for p, *room in rest}


def _has_whole(images: Tensor, dtype: torch.dtype) -> bool:
    return dtype == torch.bfloat16 and blocks.work(images.device, *images.shape[2:])


def _zeros(sizes: list[int], device: torch.device) -> tuple[Tensor, ...]:
    """Return vectors of zeros out of one, which is cleared at once."""
    return torch.split(torch.zeros(sum(sizes), device=device), sizes)


def evaluated_maps(
    backbone: nn.Module, images: Tensor, dtype: torch.dtype, ends: frozenset[int] = frozenset()
) -> tuple[Tensor, ...]:
    """Return the maps (n, h, w, c) that ``ends`` and the network end with, by running statistics.

    These are known before any map is, so that a layer is one kernel.
    """
    layers = [*layers_in(backbone)]
    weights = iter(rounded_filters(layers, dtype))
    whole = _has_whole(images, dtype)
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
