"""Images brought to captured steps, which read them at one address for ever."""

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polarbear.base.arrays import Ints
from polarbear.benchmark.source import Images

SLOTS = 4  # batches under way between the host's memory and a step
PATIENCE = 0.005  # seconds to wait for a batch before other runs have their turn


@dataclass(frozen=True, eq=False)
class Slot:
    """A batch under way: its buffer on the host, its buffer on the device, and how far it is."""

    on_host: Tensor
    on_device: Tensor
    copied: Any
    taken: Any


class Feed:
    """Brings batches of images to ``arrived`` (size, h, w, 3) on the device, one for each step.

    Threads read ahead into buffers that the device can copy from; a stream of its own copies them
    to the device while steps are at work there, and a step's batch is moved to ``arrived`` in the
    order of the steps. All buffers are made once: a step's graph knows them by their address.
    """

    def __init__(self, images: Images, shape: tuple[int, ...], device: torch.device) -> None:
        """Make the buffers for batches of up to the images of ``shape`` (size, h, w, 3)."""
        self.images, self.device = images, device
        self.arrived = torch.zeros(shape, dtype=torch.uint8, device=device)
        self._side: Any = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._slots = [
            Slot(
                torch.empty(shape, dtype=torch.uint8).pin_memory(),
                torch.empty(shape, dtype=torch.uint8, device=device),
                torch.cuda.Event(),  # type: ignore[no-untyped-call]
                torch.cuda.Event(),  # type: ignore[no-untyped-call]
            )
            for _ in range(SLOTS)
        ]

    def batches(self, rows: list[Ints]) -> Iterator[bool]:
        """Bring one batch for each array of rows: yields True once it is queued, False before."""
        waiting: deque[Future[None]] = deque()
        with ThreadPoolExecutor(SLOTS) as readers:
            for step in range(len(rows)):
                while step + len(waiting) < min(len(rows), step + SLOTS):
                    ahead = step + len(waiting)
                    slot = self._slots[ahead % SLOTS]
                    waiting.append(readers.submit(self._read, slot, rows[ahead]))
                while not wait([waiting[0]], PATIENCE).done:
                    yield False
                waiting.popleft().result()
                self._queue(self._slots[step % SLOTS], len(rows[step]))
                yield True

    def _read(self, slot: Slot, rows: Ints) -> None:
        slot.copied.synchronize()  # what was read here before may still be on its way
        found = np.require(self.images[rows], requirements="W")  # else PyTorch warns
        slot.on_host[: len(rows)].copy_(torch.from_numpy(found))

    def _queue(self, slot: Slot, count: int) -> None:
        """Queue a batch's way to ``arrived``, behind the step that now reads there."""
        steps: Any = torch.cuda.current_stream(self.device)
        self._side.wait_event(slot.taken)
        with torch.cuda.stream(self._side):
            slot.on_device[:count].copy_(slot.on_host[:count], non_blocking=True)
            slot.copied.record(self._side)
        steps.wait_event(slot.copied)
        self.arrived[:count].copy_(slot.on_device[:count])
        slot.taken.record(steps)
