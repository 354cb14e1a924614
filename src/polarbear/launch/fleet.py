"""Several runs in one process: on a GPU side by side on streams, on a CPU one after another.

One run with small batches cannot fill a GPU. Runs of other orders, seeds, methods or settings are
independent, so their queues are filled in turn; each has its own graphs, memory, random keys and
folder, and only the pixels are shared. A run that fails does not take the others along, and none
begins before there is room for it on the GPU.
"""

import gc
import logging
import traceback
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from polarbear.base.errors import PolarbearError
from polarbear.engine.trainer import Progress
from polarbear.launch.gpu_memory import Room
from polarbear.launch.inputs import SharedPixels
from polarbear.launch.prepare import Prepared, threads
from polarbear.launch.runner import advance
from polarbear.launch.stop import StopWish, stop_on_signal

log = logging.getLogger("polarbear")

AT_ONCE = 10


@dataclass(frozen=True)
class Job:
    """A run of a fleet: its name, and how it is made ready: begun, reopened or what is left of it.

    None is ready for one that is finished.
    """

    name: str
    prepare: Callable[[SharedPixels], Prepared | None]
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
    threads: int

    def context(self) -> AbstractContextManager[object]:
        """Return the context its work is queued in: never held while another run has its turn."""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)


def run_fleet(
    jobs: Iterable[Job],
    *,
    at_once: int | None = None,
    save_every: float = 60.0,
    stop: StopWish | None = None,
    on_end: Callable[[str, Outcome], None] | None = None,
) -> dict[str, Outcome]:
    """Run all jobs; returns how each ended, and calls ``on_end`` with it while the others go on.

    The next job is taken when there is room for it: other processes may take from the same ones.

    At most ``at_once`` go side by side: by default ten where there is a GPU, else one; fewer where
    no more fit the GPU's memory. ``stop`` is a wish to stop in place of signals.
    """
    at_once = at_once or (AT_ONCE if torch.cuda.is_available() else 1)
    fleet = Fleet(iter(jobs), at_once, save_every, on_end or (lambda name, outcome: None))
    with stop_on_signal() if stop is None else nullcontext(stop) as stop:
        try:
            while fleet.members or not fleet.all_taken:
                fleet.let_in(stop)
                if stop.is_set():
                    fleet.let_none_in()
                fleet.give_turns()
        finally:
            for member in fleet.members:
                member.going.close()
                _forget(member)
    return fleet.outcomes


@dataclass(eq=False)
class Fleet:
    """Runs that wait, runs under way, and how the others ended."""

    waiting: Iterator[Job]
    at_once: int
    save_every: float
    on_end: Callable[[str, Outcome], None]
    members: list[Member] = field(default_factory=list)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    rooms: defaultdict[torch.device, Room] = field(default_factory=lambda: defaultdict(Room))
    shared: SharedPixels = field(default_factory=dict)
    all_taken: bool = False

    def let_in(self, stop: StopWish) -> None:
        """Begin waiting runs as far as there is room."""
        while self._has_place() and not stop.is_set() and (job := self._next()) is not None:
            joined = _join(job, self.shared, stop, self.save_every, self.share_of)
            if isinstance(joined, Member):
                self.members.append(joined)
                self.rooms[joined.device].enter(joined, joined.device)
            else:
                self._end(job.name, joined)

    def share_of(self, device: torch.device) -> float:
        """Return how much of a device each of its runs has."""
        return 1 / max(1, sum(member.device == device for member in self.members))

    def _has_place(self) -> bool:
        # Which GPU a waiting run is for is not known before it is made ready.
        free = all(room.has_place for room in self.rooms.values())
        return not self.members or (len(self.members) < self.at_once and free)

    def let_none_in(self) -> None:
        """End all runs that have not begun."""
        while (job := self._next()) is not None:
            self._end(job.name, Outcome(False))

    def _next(self) -> Job | None:
        job = next(self.waiting, None)
        self.all_taken = job is None
        return job

    def give_turns(self) -> None:
        """Let each run go on to its next pause."""
        for member in tuple(self.members):
            came_to = _turn(member)
            if isinstance(came_to, Outcome):
                self.members.remove(member)
                _forget(member)
                self.rooms[member.device].leave(member, member.device)
                self._end(member.name, came_to)
            else:
                self.rooms[member.device].look(member, member.device, came_to)

    def _end(self, name: str, outcome: Outcome) -> None:
        self.outcomes[name] = outcome
        self.on_end(name, outcome)


def _join(
    job: Job,
    shared: SharedPixels,
    stop: StopWish,
    save_every: float,
    share_of: Callable[[torch.device], float],
) -> Member | Outcome:
    """Make a run ready; returns it, or how it ended before it could begin."""
    try:
        prepared = job.prepare(shared)
    except Exception as error:
        _tell(f"{job.name} could not begin", error)
        _let_go(error)
        return Outcome(False, error)
    if prepared is None:
        return Outcome(True)
    device = prepared.learner.machine.device
    stream = None
    if device.type == "cuda":
        stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream(device))
    share = partial(share_of, device)
    going = advance(prepared, stop, save_every=save_every, share=share, **(job.more or {}))
    return Member(job.name, going, device, stream, prepared.threads)


def _turn(member: Member) -> Progress | Outcome:
    """Let a run go on to its next pause; returns where it stands there, or how it ended."""
    try:
        with threads(member.threads), member.context():
            return next(member.going)
    except StopIteration as end:
        return Outcome(bool(end.value))
    except Exception as error:
        _tell(f"{member.name} failed; the others go on", error)
        _let_go(error)
        return Outcome(False, error)


def _tell(what: str, error: Exception) -> None:
    """Log a failure; what polarbear refuses, or has no memory for, needs no traceback."""
    if isinstance(error, PolarbearError):
        log.error("%s: %s", what, error)
    else:
        log.error(what, exc_info=error)


def _let_go(error: BaseException | None) -> None:
    """Free what a failed run held: it would stay on the GPU as long as its error is kept."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # `raise error from error` is its own cause
        seen.add(id(error))
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


def _forget(member: Member) -> None:
    """Free what an ended run held, once the device has done all that was queued for it."""
    if member.stream is not None:
        with suppress(RuntimeError):  # a run that failed on the device fails here again
            member.stream.synchronize()
    gc.collect()  # a learner and its method know each other
