"""Launches of the kernels of ``stem.cu``: the layer that reads images.

``blocks`` compiles them with its own, whose functions they use.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from polarbear.engine.nets.fused import blocks
from polarbear.engine.nets.fused.launch import Gradients, Layer, Passed

COLOURS, OUTPUTS = 3, 16
SIDE = blocks.SIDE // OUTPUTS
FORWARD, BACKWARD = f"stem_forward<{OUTPUTS}>", f"stem_backward<{OUTPUTS}>"
PADDED = (SIDE + 2) ** 2
# As ``stem.cu`` has it: sums or factors, an image of 16 bytes a pixel, and back the gradient.
BYTES = 4096 + 16 * PADDED
BYTES_BACK = 12 * OUTPUTS + (16 + 2 * OUTPUTS) * PADDED


def kernels() -> Iterator[tuple[str, int]]:
    """Return the kernels, and the shared memory of each."""
    yield FORWARD, BYTES
    yield BACKWARD, BYTES_BACK


def suit(layer: Layer, pixels: Tensor) -> bool:
    """Whether these kernels do a layer that reads pixels (n, height, width, colours)."""
    return (layer.taps, layer.stride, layer.outputs) == (3, 1, OUTPUTS) and pixels.shape[1:] == (
        SIDE,
        SIDE,
        COLOURS,
    )


def as_read(pixels: Tensor) -> Tensor:
    """Return pixels as the kernels read them, which images that are channels last are already."""
    return pixels.to(torch.float32).contiguous()


def convolve(passed: Passed) -> None:
    """Convolve images into ``passed.raw`` and sum what its batch norm needs."""
    blocks.launch(
        FORWARD,
        (len(passed.source), 1, blocks.WARPS[OUTPUTS]),
        BYTES,
        [passed.source, passed.weights, passed.raw, passed.sums],
    )


def parts_of_filter(passed: Passed) -> Tensor:
    """Return room for the gradient of the filter, a part per image."""
    return passed.sums.new_empty(1, len(passed.source), passed.weights.numel())


def back(passed: Passed, gradient: Tensor, into: Gradients) -> None:
    """Sum the layer's gradients; that of the filter comes in parts (``parts_of_filter``)."""
    images, norm = len(gradient), passed.layer.norm
    blocks.launch(
        BACKWARD,
        (images, 1, blocks.WARPS[OUTPUTS]),
        BYTES_BACK,
        [
            gradient,
            passed.raw,
            passed.sums,
            into.sums,
            norm.weight,
            passed.source,
            into.weights,
            into.scale,
            into.shift,
            images,
            float(norm.eps),
        ],
    )
