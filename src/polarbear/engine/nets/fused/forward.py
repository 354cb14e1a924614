"""The way forward through a ResNet in fused kernels, in training.

The stem, layers that keep their width, those that double it, and the features go by the kernels
for whole images (``stem``, ``blocks``, ``widen``, ``means``), where these work
(``whole_images``); all others by Triton's (``launch``), two kernels each.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from polarbear.engine.nets.fused import blocks, means, stem, widen
from polarbear.engine.nets.fused.launch import Layer, Passed, convolve, normalise
from polarbear.engine.nets.fused.layers import (
    as_pixels,
    ends_of_stages,
    layers_in,
    layers_of,
    rounded_filters,
    vectors_of_zeros,
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
        whole: bool,
        keep: bool = True,
        maps: bool = False,
    ) -> None:
        """Compute every map; ``maps`` keeps those that stages end with, too.

        The kernels for whole images do what they suit, where they work (``whole``).
        """
        layers = [*layers_in(backbone)]
        sums = vectors_of_zeros([2 * layer.outputs for layer in layers], images.device)
        rooms = zip(rounded_filters(layers, dtype), sums, strict=True)
        self._rooms = dict(zip((layer.conv for layer in layers), rooms, strict=True))
        self._whole = whole
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
