"""How much of a GPU's memory runs take, and whether one more finds a place in it."""

from contextlib import suppress
from dataclasses import dataclass

import torch

from polarbear.engine.trainer import Progress

OTHERS = 0.1  # of a GPU's memory: less is its own driver's and this process's libraries
SPARE = 1.5  # of the most that a run has taken so far: later tasks and other methods take more


@dataclass(frozen=True)
class GpuMemory:
    """Bytes of a GPU: free ones, and the most this process held since it was last asked afresh."""

    free: int
    peak: int


def gpu_memory(device: torch.device, *, afresh: bool = False) -> GpuMemory | None:
    """Count a GPU's memory, that of ended runs as free.

    None for a CPU, where nobody counts, and for a GPU that answers no more.
    """
    if device.type != "cuda":
        return None
    with suppress(RuntimeError):  # refused where a capture has failed: then less counts as free
        torch.cuda.empty_cache()
    # After an illegal access nothing works there: its runs fail one by one, and each is told so.
    with suppress(RuntimeError):
        if afresh:
            torch.cuda.reset_peak_memory_stats(device)
        return GpuMemory(
            torch.cuda.mem_get_info(device)[0], torch.cuda.max_memory_allocated(device)
        )
    return None


def held_by_others(number: int) -> bool:
    """Whether other processes hold a good part of a GPU's memory; False where nobody can tell."""
    try:
        free, total = torch.cuda.mem_get_info(number)
        own = torch.cuda.memory_reserved(number)
    except (RuntimeError, AssertionError, ValueError):  # no CUDA, no such GPU, or one that is lost
        return False
    return total - free - own > OTHERS * total


class Room:
    """A GPU's memory, and whether one more run finds a place in it.

    What a run takes is known when its first epoch is over, since by then its steps and its
    validation are captured. Until this is known of the newest run, no other is let in.
    """

    def __init__(self) -> None:
        """Know of no run yet."""
        self.has_place = True
        self._largest = 0
        self._newest: object = None
        self._before = GpuMemory(0, 0)

    def enter(self, run: object, device: torch.device) -> None:
        """Note what is free before a run takes its part."""
        memory = gpu_memory(device, afresh=True)
        if memory is not None:
            self._newest, self._before, self.has_place = run, memory, False

    def look(self, run: object, device: torch.device, progress: Progress) -> None:
        """Measure the newest run when its first epoch is over.

        One that is resumed after a task's last epoch pauses before it has captured anything.
        """
        if run is self._newest and progress.step == 0 and progress.epoch > 0:
            self._newest = None
            self._judge(device, measured=True)

    def leave(self, run: object, device: torch.device) -> None:
        """Count again what is free when a run has ended."""
        if run is self._newest:
            self._newest = None
        if self._newest is None:
            self._judge(device)

    def _judge(self, device: torch.device, *, measured: bool = False) -> None:
        now = gpu_memory(device)
        if now is None:
            return
        if measured:
            # What captured steps hold is no longer free; what eager ones need for a moment, as
            # all do before they are captured, is in the peak alone.
            taken = max(self._before.free - now.free, now.peak - self._before.peak)
            self._largest = max(self._largest, taken)
        self.has_place = now.free >= SPARE * self._largest
