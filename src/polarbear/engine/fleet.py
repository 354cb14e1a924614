"""Several runs in one process: on a GPU side by side on streams, on a CPU one after another.

One run with small batches cannot fill a GPU. Runs of other orders, seeds, methods or settings are
independent, so their queues are filled in turn; each has its own graphs, memory, random keys and
folder, and only the pixels are shared. A run that fails does not take the others along, and none
begins before there is room for it on the GPU.
"""

import logging
import threading
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from polarbear.engine.session import Prepared, SharedPixels, advance, stop_on_signal
from polarbear.engine.trainer import Progress

log = logging.getLogger("polarbear")

AT_ONCE = 10
SPARE = 1.5  # of what the largest run so far has taken: later tasks and other methods take more


@dataclass(frozen=True)
class Job:
    """A run of a fleet: its name, and how it is made ready (by ``begin`` or ``reopen``)."""

    name: str
    prepare: Callable[[SharedPixels], Prepared]
    more: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Outcome:
    """How a run ended: finished, stopped early (both without an error), or failed."""

    finished: bool
    error: Exception | None = None


@dataclass(frozen=True, eq=False)
class Member:
    """A run under way, its device and the stream its work is queued on."""

    name: str
    going: Generator[Progress, None, bool]
    device: torch.device
    stream: Any

    def context(self) -> AbstractContextManager[object]:
        """Give the context its work is queued in: never held while another run has its turn."""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)


class Room:
    """A GPU's memory, and whether one more run finds a place in it.

    What a run takes is known when its first epoch is over, since by then its steps and its
    validation are captured. Until this is known of the newest run, no other is let in.
    """

    def __init__(self) -> None:
        """Know of no run yet."""
        self.has_place = True
        self._largest = 0
        self._newest: Member | None = None
        self._free_before = 0

    def enter(self, member: Member) -> None:
        """Note what is free before a run takes its part."""
        free = _free_memory(member.device)
        if free is not None:
            self._newest, self._free_before, self.has_place = member, free, False

    def look(self, member: Member, progress: Progress) -> None:
        """Measure the newest run when its first epoch is over."""
        if member is self._newest and progress.step == 0:
            taken = self._free_before - (_free_memory(member.device) or 0)
            self._newest, self._largest = None, max(self._largest, taken)
            self._judge(member.device)

    def leave(self, member: Member) -> None:
        """Count again what is free when a run has ended."""
        if member is self._newest:
            self._newest = None
        if self._newest is None:
            self._judge(member.device)

    def _judge(self, device: torch.device) -> None:
        free = _free_memory(device)
        self.has_place = free is None or free >= SPARE * self._largest


def _free_memory(device: torch.device) -> int | None:
    """Give a GPU's free bytes, those of ended runs among them; None where nobody counts them."""
    if device.type != "cuda":
        return None
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info(device)[0]


def run_fleet(
    jobs: Sequence[Job],
    *,
    at_once: int | None = None,
    save_every: float = 60.0,
    on_end: Callable[[str, Outcome], None] | None = None,
) -> dict[str, Outcome]:
    """Run all jobs; gives how each ended, and calls ``on_end`` with it while the others go on.

    At most ``at_once`` go side by side: by default ten where there is a GPU, else one; fewer where
    no more fit the GPU's memory.
    """
    at_once = at_once or (AT_ONCE if torch.cuda.is_available() else 1)
    outcomes: dict[str, Outcome] = {}
    shared: SharedPixels = {}
    waiting, members, room = list(jobs), list[Member](), Room()

    def end(name: str, outcome: Outcome) -> None:
        outcomes[name] = outcome
        if on_end is not None:
            on_end(name, outcome)

    def room_for_one(members: Sequence[Member]) -> bool:
        return not members or (len(members) < at_once and room.has_place)

    with stop_on_signal() as stop:
        while waiting or members:
            while waiting and room_for_one(members) and not stop.is_set():
                job = waiting.pop(0)
                joined = _join(job, shared, stop, save_every)
                if isinstance(joined, Member):
                    members.append(joined)
                    room.enter(joined)
                else:
                    end(job.name, joined)
            if stop.is_set():
                for job in waiting:
                    end(job.name, Outcome(False))
                waiting = []
            for member in tuple(members):
                came_to = _turn(member)
                if isinstance(came_to, Outcome):
                    members.remove(member)
                    room.leave(member)
                    end(member.name, came_to)
                else:
                    room.look(member, came_to)
    return outcomes


def _join(
    job: Job, shared: SharedPixels, stop: threading.Event, save_every: float
) -> Member | Outcome:
    """Make a run ready; gives it, or how it ended before it could begin."""
    try:
        prepared = job.prepare(shared)
    except Exception as error:
        log.exception("%s could not begin", job.name)
        return Outcome(False, error)
    device = prepared.learner.machine.device
    stream = None
    if device.type == "cuda":
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(device))
    going = advance(prepared, stop, save_every=save_every, **(job.more or {}))
    return Member(job.name, going, device, stream)


def _turn(member: Member) -> Progress | Outcome:
    """Let a run go on to its next pause; gives where it stands there, or how it ended."""
    try:
        with member.context():
            return next(member.going)
    except StopIteration as end:
        return Outcome(bool(end.value))
    except Exception as error:
        log.exception("%s failed; the others go on", member.name)
        # What the run holds on the GPU would stay there with the error.
        traceback.clear_frames(error.__traceback__)
        return Outcome(False, error)
