"""The ways through a ResNet in fused kernels: forwards, backwards, and in evaluation.

Layers that keep their width go by the kernels for whole images (``blocks``), where these work; all
others by Triton's (``launch``), two kernels forwards and two backwards.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor, nn

from polarbear.engine.nets.fused import blocks
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
    layer_of,
    layers_in,
    layers_of,
    rounded_filters,
)
from polarbear.engine.nets.networks import Residual


@dataclass(frozen=True, eq=False)
class PassedBlock:
    """What a block leaves for its way back; ``between`` and ``out`` are its activations.

    Those between are left out where the kernels for whole images make them from ``first`` again.
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
        self._sums = iter(_zeros([2 * layer.outputs for layer in layers], images.device))
        self._weights = iter(rounded_filters(layers, dtype))
        pixels = as_pixels(images, layers[0].inputs, dtype)
        self._whole = _has_whole(images, dtype)
        self._unended: tuple[Passed, Tensor] | None = None
        stem, _, *residuals = backbone.layers  # type: ignore[misc]
        self.stem = self._convolve(layer_of(stem), pixels)
        self.start = below = normalise(self.stem, None, relu=True)
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
        return self.blocks[-1].out.mean(dim=(1, 2))

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
        first = self._convolve(layers[0], maps)
        by_whole = self.has_whole(layers[1], first.raw)
        between = None if by_whole else normalise(first, None, relu=True)
        second = self._convolve(layers[1], first if between is None else between)
        shortcut = self._convolve(layers[2], maps) if len(layers) > 2 else None
        past = maps if shortcut is None else shortcut
        if end is not None:
            self.ends.append(end)
            self._maps.append(normalise(second, past, relu=False))
            out = self._maps[-1].relu()
        elif isinstance(past, Tensor) and self._is_ended_by(following, second.raw):
            self._unended, out = (second, past), torch.empty_like(second.raw)
        else:
            out = normalise(second, past, relu=residual.relu_after)
        return PassedBlock(first, second, shortcut, between, out)

    def has_whole(self, layer: Layer, maps: Tensor) -> bool:
        """Whether the kernels for whole images do a layer that reads these maps."""
        return self._whole and blocks.suit(layer, maps)

    def _is_ended_by(self, following: Residual | None, maps: Tensor) -> bool:
        """Whether the next block's first layer writes what a block ends with."""
        return following is not None and self.has_whole(layers_of(following)[0], maps)

    def _convolve(self, layer: Layer, source: Tensor | Passed) -> Passed:
        """Convolve maps, or what the layer below has passed, after its batch norm and ReLU."""
        maps = source.raw if isinstance(source, Passed) else source
        n, height, width, _ = maps.shape
        shape = (n, height // layer.stride, width // layer.stride, layer.outputs)
        passed = Passed(layer, maps, maps.new_empty(shape), next(self._weights), next(self._sums))
        if isinstance(source, Passed):
            blocks.convolve_normalised(source, passed)
        elif self._unended is not None:
            blocks.convolve_ended(*self._unended, source, passed)
            self._unended = None
        elif self.has_whole(layer, source):
            blocks.convolve(source, passed)
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
        parts = {
            id(p): part
            for layers, room in self._parts
            for p, part in zip(layers, room, strict=True)
        }
        self.into = room_for(passed, parts)

    def of_features(self, gradient: Tensor) -> list[Tensor]:
        """Return the gradients of all parameters, for that of the features (n, 64)."""
        out = self.forward.blocks[-1].out
        spread = (gradient / (out.shape[1] * out.shape[2])).to(out.dtype)
        return self._of_parameters(spread[:, None, None, :].expand(out.shape).contiguous(), {})

    def of_maps(self, gradients: Sequence[Tensor]) -> list[Tensor]:
        """Return the gradients of all parameters, for those of ``ForwardPass.maps``."""
        dtype = self.forward.stem.raw.dtype
        *ends, last = [g.to(dtype).contiguous() for g in gradients]
        return self._of_parameters(last, dict(zip(self.forward.ends, ends, strict=True)))

    def _of_parameters(self, flow: Tensor, at_ends: dict[int, Tensor]) -> list[Tensor]:
        """Take a gradient of the last maps back, plus those of the maps before a block's ReLU."""
        passed_blocks = self.forward.blocks
        self._sum(passed_blocks[-1].second, flow)
        for i in reversed(range(len(passed_blocks))):
            below = passed_blocks[i - 1].second if i else self.forward.stem
            activations = passed_blocks[i - 1].out if i else self.forward.start
            flow = self._block(passed_blocks[i], flow, below, activations)
            if i - 1 in at_ends:
                self._sum(below, at_ends[i - 1])
                flow += at_ends[i - 1]
        self._through_layer(self.forward.stem, flow)
        filters = {key: room.weights for key, room in self.into.items()}
        for layers, parts in self._parts:
            filters |= {id(p): total for p, total in zip(layers, parts.sum(1), strict=True)}
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

    def _shortcut(self, passed: Passed, flow: Tensor) -> Tensor:
        self._sum(passed, flow)
        out = torch.empty_like(passed.source)
        convolve(self._through_layer(passed, flow), passed.weights, out, backward=True)
        return out

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
    stem, _, *residuals = backbone.layers  # type: ignore[misc]
    below = evaluated(
        layer_of(stem), next(weights), as_pixels(images, layers[0].inputs, dtype), relu=True
    )
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
