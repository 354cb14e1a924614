"""Several processes that take runs in turn from the same ones and train them on the same device."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from typing import Any, TypeVar

from polarbear.launch.stop import StopWish, stop_on_signal

# Not forked: a process that has a GPU must not be.
SPAWN = get_context("spawn")
Run = TypeVar("Run")


@dataclass(frozen=True)
class Place:
    """A process's place among those of a command: what it takes from the runs that they share.

    ``turn`` is the next run's number. ``under_way`` counts runs, for each process by itself: those
    of one that was killed can be taken away again.
    """

    turn: Any
    under_way: Any
    number: int

    def take(self, runs: Sequence[Run], stop: StopWish) -> Iterator[Run]:
        """Take one run after another that no other process has, until this one is to stop."""
        while not stop.is_set():
            with self.turn.get_lock():
                number, self.turn.value = self.turn.value, self.turn.value + 1
            if number >= len(runs):
                return
            self.under_way[self.number] += 1
            yield runs[number]

    def left(self, runs: Sequence[Run]) -> Sequence[Run]:
        """Return the runs that no process has taken."""
        return runs[self.turn.value :]

    def give_back(self) -> None:
        """Say that a run has ended: the others have more of the device."""
        self.under_way[self.number] -= 1

    def leave(self) -> None:
        """Say that the process has ended, whatever it had under way."""
        self.under_way[self.number] = 0

    def share(self) -> float:
        """Return how much of the device each run has."""
        return 1 / max(1, sum(self.under_way))


def places(count: int) -> list[Place]:
    """Return a place for each of several processes."""
    turn, under_way = SPAWN.Value("i", 0), SPAWN.RawArray("i", count)
    return [Place(turn, under_way, number) for number in range(count)]


def in_processes(work: Callable[[Place], int], places: Sequence[Place]) -> list[int]:
    """Work at each place in a process of its own; returns exit codes, and passes a stop on."""
    processes = [SPAWN.Process(target=_work, args=(work, place)) for place in places]
    told = False
    with stop_on_signal() as stop:
        for process in processes:
            process.start()
        while any(process.is_alive() for process in processes):
            if stop.is_set() and not told:
                told = True  # once: one that has stopped training would be killed by another
                for process in processes:
                    process.terminate()
            wait([process.sentinel for process in processes if process.is_alive()], 0.2)
            for process, place in zip(processes, places, strict=True):
                if not process.is_alive():
                    place.leave()
    return [process.exitcode or 0 for process in processes]


def _work(work: Callable[[Place], int], place: Place) -> None:
    stop_with_parent()
    sys.exit(work(place))


def stop_with_parent() -> None:
    """Let this process be asked to stop when the one that started it has ended, even by a kill."""
    parent = parent_process()
    if parent is None:
        return

    def ask() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=ask, daemon=True).start()


def stop_with_parent_alone() -> None:
    """Leave it to the parent what Ctrl-C means, which a terminal sends to all its processes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stop_with_parent()
