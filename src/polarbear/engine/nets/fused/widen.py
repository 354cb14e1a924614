"""Launches of the kernels of ``widen.cu``: a wider stage's first layer and the shortcut beside it.

Both read the same maps and go to every second pixel, so that one kernel does both, forwards and
backwards. ``blocks`` compiles them with its own, whose functions they use.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from polarbear.engine.nets.fused import blocks
from polarbear.engine.nets.fused.launch import Gradients, Layer, Passed

# Images that a block of threads has, by the channels that are read. The kernels' shared memory and
# warps must be what ``widen.cu`` has.
FORWARD = 2
BACKWARD = {16: 1, 32: 4}
WARPS_BACK = {16: 8, 32: 4}
TAPS = 9 + 1  # of the 3x3 filter and the shortcut's


def kernels() -> Iterator[tuple[str, int]]:
    """Return the kernels that networks use, and the shared memory of each."""
    for channels, images in BACKWARD.items():
        for kind in ("PLAIN", "ENDED"):
            yield f"widen<{channels}, {kind}>", _bytes(channels)
        yield f"widen_back<{channels}, {images}>", _bytes_back(channels)


def suit(first: Layer, shortcut: Layer, maps: Tensor) -> bool:
    """Whether a block's first layer and its shortcut, which read these maps, are theirs."""
    _, height, width, channels = maps.shape
    shapes = [(one.taps, one.stride, one.inputs, one.outputs) for one in (first, shortcut)]
    return (
        shapes == [(taps, 2, channels, 2 * channels) for taps in (3, 1)]
        and channels in BACKWARD
        and height == width == blocks.SIDE // channels
    )


def convolve(source: Tensor, first: Passed, shortcut: Passed) -> None:
    """Convolve maps by both layers, and sum what the batch norm of each needs."""
    _forward("PLAIN", source, first, source, source, first, shortcut)


def convolve_ended(
    below: Passed, past: Tensor, ended: Tensor, first: Passed, shortcut: Passed
) -> None:
    """Convolve what the layer below gives, normed, plus ``past``; writes that to ``ended``."""
    _forward("ENDED", below.raw, below, past, ended, first, shortcut)


def _forward(
    kind: str,
    source: Tensor,
    below: Passed,
    past: Tensor,
    ended: Tensor,
    first: Passed,
    shortcut: Passed,
) -> None:
    images, channels, norm = len(source), source.shape[3], below.layer.norm
    blocks.launch(
        f"widen<{channels}, {kind}>",
        (images, FORWARD, blocks.WARPS[2 * channels]),
        _bytes(channels),
        [
            source,
            past,
            ended,
            below.sums,
            norm.weight,
            norm.bias,
            norm.running_mean,
            norm.running_var,
            first.weights,
            shortcut.weights,
            first.raw,
            first.sums,
            shortcut.raw,
            shortcut.sums,
            images,
            float(norm.momentum or 0.0),
            float(norm.eps),
        ],
    )


def parts_of_filters(first: Passed) -> Tensor:
    """Return room for the gradients of both filters side by side, a part per block of threads."""
    images, channels = first.source.shape[0], first.layer.inputs
    parts = -(-images // BACKWARD[channels])
    return first.sums.new_empty(parts, TAPS * 2 * channels**2)


def filters_of(parts: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of the 3x3 filter and of the shortcut's."""
    of_both = parts.sum(0)
    return torch.split(of_both, [of_both.numel() // TAPS * taps for taps in (9, 1)])


def back(
    first: Passed,
    shortcut: Passed,
    gradients: tuple[Tensor, Tensor],
    into: tuple[Gradients, Gradients],
    parts: Tensor,
    below: Passed,
    below_sums: Tensor,
) -> Tensor:
    """Take both layers' gradients back to the maps they read, and the ReLU below, and sum all.

    Those of the filters come in ``parts`` (``parts_of_filters``).
    """
    activations = first.source
    images, channels = len(activations), activations.shape[3]
    out = torch.empty_like(activations)
    blocks.launch(
        f"widen_back<{channels}, {BACKWARD[channels]}>",
        (images, BACKWARD[channels], WARPS_BACK[channels]),
        _bytes_back(channels),
        [
            *_of_layer(first, gradients[0], into[0]),
            *_of_layer(shortcut, gradients[1], into[1]),
            activations,
            below.raw,
            out,
            below_sums,
            parts,
            into[0].scale,
            into[0].shift,
            into[1].scale,
            into[1].shift,
            images,
            float(first.layer.norm.eps),
        ],
    )
    return out


def _of_layer(passed: Passed, gradient: Tensor, into: Gradients) -> list[Tensor]:
    scale = passed.layer.norm.weight
    return [gradient, passed.raw, passed.sums, into.sums, scale, passed.weights]


def _bytes(channels: int) -> int:
    """Return the shared memory of the way forward: factors, sums, filters, images with a border."""
    return 8 * channels + _bytes_of_rest(channels, FORWARD)


def _bytes_back(channels: int) -> int:
    # Images of both gradients, that of the 3x3 layer's with a border, and of what was read.
    wide, images = blocks.SIDE // channels // 2, BACKWARD[channels]
    gradients = images * 4 * channels * (wide**2 + (wide + 2) ** 2)
    return 48 * channels + gradients + _bytes_of_rest(channels, images)


def _bytes_of_rest(channels: int, images: int) -> int:
    padded = (blocks.SIDE // channels + 2) ** 2
    return 8192 + 2 * channels * (TAPS * (2 * channels + 1) + images * padded)
