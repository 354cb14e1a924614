"""Launches of the kernels of ``means.cu``: features, the means of the last block's end.

``blocks`` compiles them with its own, whose functions they use.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from polarbear.engine.nets.fused import blocks
from polarbear.engine.nets.fused.launch import Passed

CHANNELS = 64
SIDE, WARPS = blocks.SIDE // CHANNELS, blocks.WARPS[CHANNELS]
FORWARD, BACKWARD = f"means<{CHANNELS}>", f"means_backward<{CHANNELS}>"
# As ``means.cu`` has it: every warp's sums, and forwards batch norm.
BYTES_BACK = 4 * CHANNELS * WARPS
BYTES = BYTES_BACK + 8 * CHANNELS


def kernels() -> Iterator[tuple[str, int]]:
    """Return the kernels, and the shared memory of each."""
    yield FORWARD, BYTES
    yield BACKWARD, BYTES_BACK


def suit(last: Passed) -> bool:
    """Whether these kernels do what a network's last layer has left."""
    return last.raw.shape[1:] == (SIDE, SIDE, CHANNELS)


def of_end(last: Passed, past: Tensor) -> Tensor:
    """Return the means (n, channels) of what the last layer gives, normed, plus ``past``."""
    images, norm = len(past), last.layer.norm
    out = past.new_empty(images, CHANNELS)
    blocks.launch(
        FORWARD,
        (images, 1, WARPS),
        BYTES,
        [
            last.raw,
            past,
            last.sums,
            norm.weight,
            norm.bias,
            norm.running_mean,
            norm.running_var,
            out,
            images,
            float(norm.momentum or 0.0),
            float(norm.eps),
        ],
    )
    return out


def back(last: Passed, gradient: Tensor, sums: Tensor) -> Tensor:
    """Spread a gradient of the means (n, channels) over their places, and add to ``sums``."""
    out = torch.empty_like(last.raw)
    blocks.launch(
        BACKWARD,
        (len(out), 1, WARPS),
        BYTES_BACK,
        [gradient.to(out.dtype).contiguous(), last.raw, out, sums],
    )
    return out
