"""Several runs in one process: on a GPU side by side on streams, on a CPU one after another.

One run with small batches cannot fill a GPU. Runs of other orders, seeds, methods or settings are
independent, so their queues are filled in turn; each has its own graphs, memory, random keys and
folder, and only the pixels are shared. A run that fails does not take the others along.
"""

import logging
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from polarbear.engine.session import Prepared, SharedPixels, advance, stop_on_signal
from polarbear.engine.trainer import Progress

log = logging.getLogger("polarbear")

AT_ONCE = 10


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
    """A run under way and the stream its work is queued on."""

    name: str
    going: Generator[Progress, None, bool]
    stream: Any

    def context(self) -> AbstractContextManager[object]:
        """Give the context its work is queued in: never held while another run has its turn."""
        return nullcontext() if self.stream is None else torch.cuda.stream(self.stream)


def run_fleet(
    jobs: Sequence[Job],
    *,
    at_once: int | None = None,
    save_every: float = 60.0,
    on_end: Callable[[str, Outcome], None] | None = None,
) -> dict[str, Outcome]:
    """Run all jobs; gives how each ended, and calls ``on_end`` with it while the others go on.

    At most ``at_once`` go side by side: by default ten where there is a GPU, else one.
    """
    at_once = at_once or (AT_ONCE if torch.cuda.is_available() else 1)
    outcomes: dict[str, Outcome] = {}
    shared: SharedPixels = {}
    waiting, members = list(jobs), list[Member]()

    def end(name: str, outcome: Outcome) -> None:
        outcomes[name] = outcome
        if on_end is not None:
            on_end(name, outcome)

    with stop_on_signal() as stop:
        while waiting or members:
            while waiting and len(members) < at_once and not stop.is_set():
                job = waiting.pop(0)
                joined = _join(job, shared, stop, save_every)
                if isinstance(joined, Member):
                    members.append(joined)
                else:
                    end(job.name, joined)
            if stop.is_set():
                for job in waiting:
                    end(job.name, Outcome(False))
                waiting = []
            for member in tuple(members):
                ended = _turn(member)
                if ended is not None:
                    members.remove(member)
                    end(member.name, ended)
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
    return Member(job.name, going, stream)


def _turn(member: Member) -> Outcome | None:
    """Let a run go on to its next pause; gives how it ended, if it did."""
    try:
        with member.context():
            next(member.going)
    except StopIteration as end:
        return Outcome(bool(end.value))
    except Exception as error:
        log.exception("%s failed; the others go on", member.name)
        return Outcome(False, error)
    return None
