"""Launches of the kernels of ``blocks.cu``, which have whole images in shared memory.

They do the 3×3 layers that write as many channels as they read, 28 of ResNet-32's 33. ``stem.cu``
does the first, ``widen.cu`` the four that begin a wider stage, ``means.cu`` the features at the
end. PyTorch compiles all by NVRTC, which comes with its builds for GPUs.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from polarbear.engine.nets.fused.launch import Gradients, Layer, Passed

FOLDER = Path(__file__).parent
# Compiled as one.
SOURCES = [FOLDER / name for name in ("blocks.cu", "stem.cu", "widen.cu", "means.cu")]
# Images that a block of threads has, by channels: the more, the less a filter is loaded. These,
# SIDE, the warps of an image and the shared memory must be what ``blocks.cu`` has (``Shape``).
FORWARD = {16: 1, 32: 2, 64: 2}
BACKWARD = {16: 1, 32: 2, 64: 4}
WARPS = {16: 16, 32: 8, 64: 8}
SIDE = 512  # over channels: 32, 16, 8


def suit(layer: Layer, maps: Tensor) -> bool:
    """Whether a layer that reads these maps is one of theirs."""
    _, height, width, channels = maps.shape
    return (
        (layer.taps, layer.stride, layer.inputs, layer.outputs) == (3, 1, channels, channels)
        and channels in FORWARD
        and height == width == SIDE // channels
    )


def kernels() -> Iterator[tuple[str, int]]:
    """Return the kernels that networks use, and the shared memory of each."""
    yield "forward<16, STARTED, 1>", _bytes(16)
    for channels in (32, 64):
        yield f"forward<{channels}, JOINED, {FORWARD[channels]}>", _bytes(channels)
    for channels, images in FORWARD.items():
        for kind in ("PLAIN", "NORMALISED", "ENDED"):
            yield f"forward<{channels}, {kind}, {images}>", _bytes(channels)
        for kind in ("false, true", "true, true", "true, false"):
            yield f"evaluate<{channels}, {kind}, {images}>", _bytes(channels)
        for first in ("false", "true"):
            yield f"backward<{channels}, {first}, {BACKWARD[channels]}>", _bytes_back(channels)


def convolve(source: Tensor, passed: Passed) -> None:
    """Convolve maps into ``passed.raw`` and sum what its batch norm needs."""
    _forward("PLAIN", passed, source, passed, source, source)


def convolve_normalised(below: Passed, passed: Passed) -> None:
    """Convolve what the layer below gives, normed by the batch and after ReLU."""
    _forward("NORMALISED", passed, below.raw, below, below.raw, below.raw)


def convolve_ended(
    below: Passed, past: Tensor | Passed | None, ended: Tensor, passed: Passed
) -> None:
    """Convolve what the layer below gives, normed, plus ``past``; writes that to ``ended``.

    A shortcut's maps are normed by the batch too; the stem has no past.
    """
    kind = "STARTED" if past is None else "JOINED" if isinstance(past, Passed) else "ENDED"
    _forward(kind, passed, below.raw, below, below.raw if past is None else past, ended)


def _forward(
    kind: str,
    passed: Passed,
    source: Tensor,
    below: Passed,
    past: Tensor | Passed,
    ended: Tensor,
) -> None:
    images, channels, norm = len(source), source.shape[3], below.layer.norm
    at_once = FORWARD[channels]
    shortcut = past if isinstance(past, Passed) else below
    launch(
        f"forward<{channels}, {kind}, {at_once}>",
        (images, at_once, WARPS[channels]),
        _bytes(channels),
        [
            source,
            past.raw if isinstance(past, Passed) else past,
            ended,
            *_norm_of(below),
            *_norm_of(shortcut),
            passed.weights,
            passed.raw,
            passed.sums,
            images,
            float(norm.momentum or 0.0),
            float(norm.eps),
        ],
    )


def _norm_of(passed: Passed) -> tuple[Tensor | None, ...]:
    norm = passed.layer.norm
    return passed.sums, norm.weight, norm.bias, norm.running_mean, norm.running_var


def evaluated(
    layer: Layer, weights: Tensor, source: Tensor, added: Tensor | None = None, *, relu: bool
) -> Tensor:
    """Return a layer's maps, normed by the running statistics, plus others, after ReLU."""
    images, channels, norm = len(source), source.shape[3], layer.norm
    at_once, out = FORWARD[channels], torch.empty_like(source)
    kind = f"{'false' if added is None else 'true'}, {'true' if relu else 'false'}"
    launch(
        f"evaluate<{channels}, {kind}, {at_once}>",
        (images, at_once, WARPS[channels]),
        _bytes(channels),
        [
            source,
            weights,
            norm.weight,
            norm.bias,
            norm.running_mean,
            norm.running_var,
            source if added is None else added,
            out,
            images,
            float(norm.eps),
        ],
    )
    return out


def parts_of_filters(passed: Sequence[Passed]) -> Tensor:
    """Return room for gradients of the filters of layers alike, a part per block of threads."""
    images, channels = passed[0].raw.shape[0], passed[0].layer.outputs
    parts = -(-images // BACKWARD[channels])
    return passed[0].sums.new_empty(len(passed), parts, 9 * channels**2)


def back(
    passed: Passed,
    gradient: Tensor,
    into: Gradients,
    below: Passed,
    below_sums: Tensor,
    activations: Tensor | None = None,
    added: Tensor | None = None,
) -> Tensor:
    """Take a gradient back through a layer and the ReLU below it, and sum all that is needed.

    That of the filter comes in parts (``parts_of_filters``). A block's first layer has the maps
    below it, ``activations``, and adds the shortcut's gradient.
    """
    images, channels, norm = len(gradient), gradient.shape[3], passed.layer.norm
    at_once, out = BACKWARD[channels], torch.empty_like(gradient)
    first = "false" if activations is None else "true"
    launch(
        f"backward<{channels}, {first}, {at_once}>",
        (images, at_once, WARPS[channels]),
        _bytes_back(channels),
        [
            gradient,
            passed.raw,
            passed.sums,
            into.sums,
            norm.weight,
            passed.weights,
            below.raw,
            below.sums,
            below.layer.norm.weight,
            below.layer.norm.bias,
            gradient if activations is None else activations,
            gradient if added is None else added,
            out,
            below_sums,
            into.weights,
            into.scale,
            into.shift,
            images,
            float(norm.eps),
        ],
    )
    return out


def launch(
    name: str, size: tuple[int, int, int], shared: int, arguments: list[Tensor | int | float | None]
) -> None:
    """Launch a kernel for so many images, so many at a time, with so many warps for each."""
    images, at_once, warps = size
    compiled(name, shared)(
        grid=(-(-images // at_once), 1, 1),
        block=(32 * warps * at_once, 1, 1),
        args=arguments,
        shared_mem=shared,
    )


def compiled(name: str, shared: int) -> Any:
    """Return a kernel, compiled once for each GPU, that may have so much shared memory."""
    current = torch.cuda.current_device() if torch.cuda.is_available() else -1
    return _kernel(name, shared, current)


@cache
def _kernel(name: str, shared: int, device: int) -> Any:
    source = "".join(path.read_text(encoding="utf-8") for path in SOURCES)
    kernel = compile_kernel(source, name)
    kernel.set_shared_memory_config(shared)
    return kernel


def compile_kernel(source: str, name: str) -> Any:
    """Compile one kernel of a source."""
    return torch.cuda._compile_kernel(source, name)


def _bytes(channels: int) -> int:
    """Return the shared memory of the way forward: factors, sums, filter, images with a border."""
    return 8 * channels + _bytes_of_rest(channels, FORWARD[channels])


def _bytes_back(channels: int) -> int:
    # Images of the gradient and of what the layer read.
    return 20 * channels + _bytes_of_rest(channels, 2 * BACKWARD[channels])


def _bytes_of_rest(channels: int, images: int) -> int:
    padded = (SIDE // channels + 2) ** 2
    return 4096 + 2 * channels * (9 * (channels + 1) + images * padded)
