"""Runs over all GPUs of one machine: a process for each GPU, which takes runs as it has room.

A process sees its own GPU alone and trains a fleet there. Whoever has room takes the next run, so
that a GPU with more memory, or faster, gets more of them.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from polarbear.base.errors import PolarbearError
from polarbear.cli.shared.exit_code import ElsewhereError, may_pass
from polarbear.cli.shared.training import How, Wanted

if TYPE_CHECKING:
    from polarbear.launch.fleet import Outcome
    from polarbear.launch.stop import StopWish

VISIBLE = "CUDA_VISIBLE_DEVICES"
SECONDS_BETWEEN_LOOKS = 0.2

#: Trains runs, as they are taken, and tells how each ended: by the name of its folder.
Train = Callable[[Iterator[Wanted], int, How, Mapping[Path, str], "StopWish", Any], None]


def places() -> list[dict[str, str]]:
    """Return what a process must be told to see each of the GPUs that are visible here."""
    import torch

    count = torch.cuda.device_count()
    named = [name.strip() for name in os.environ.get(VISIBLE, "").split(",") if name.strip()]
    names = named[:count] if named else [str(number) for number in range(count)]
    return [{VISIBLE: name} for name in names]


def spread(
    train: Train,
    wanted: Sequence[Wanted],
    how: How,
    labels: Mapping[Path, str],
    over: Sequence[Mapping[str, str]],
) -> "dict[str, Outcome]":
    """Train runs in a process for each place; returns how each ended, by its folder.

    ``over`` has the environment of each. A wish to stop is passed on; processes whose parent was
    killed stop as well.
    """
    from polarbear.launch.fleet import Outcome
    from polarbear.launch.stop import stop_on_signal

    context = get_context("spawn")  # a process that has looked at a GPU must not be forked
    turn = context.Value("L", 0)
    outcomes: dict[str, Outcome] = {}
    with stop_on_signal() as stop:
        working: dict[Connection, BaseProcess] = {}
        for place in over:
            here, there = context.Pipe(duplex=False)
            arguments = (train, there, turn, list(wanted), how, dict(labels), len(over))
            process = context.Process(target=_work, args=arguments)
            with _environment(place):
                process.start()
            there.close()
            working[here] = process
        processes, told = tuple(working.values()), False
        while working:
            for ready in wait(list(working), SECONDS_BETWEEN_LOOKS):
                assert isinstance(ready, Connection)
                try:
                    name, finished, error = ready.recv()
                    outcomes[name] = Outcome(finished, error and ElsewhereError(*error))
                except EOFError:
                    del working[ready]
            if stop.is_set() and not told:
                told = True
                for one_process in working.values():
                    one_process.terminate()
        for one_process in processes:
            one_process.join()
    codes = sorted({one.exitcode for one in processes if one.exitcode})
    for one in wanted:
        if (name := str(one.folder)) not in outcomes:
            lost = PolarbearError(f"the process that trained it ended early, with code {codes}")
            outcomes[name] = Outcome(False, None if stop.is_set() else lost)
    return outcomes


def _work(
    train: Train,
    there: Connection,
    turn: Any,
    wanted: list[Wanted],
    how: How,
    labels: dict[Path, str],
    processes: int,
) -> None:
    """Train what is taken, in a process of its own."""
    import logging

    from polarbear.cli import ToStderr
    from polarbear.launch.stop import stop_on_signal

    logging.basicConfig(format="%(message)s", level=logging.WARNING, handlers=[ToStderr()])
    share_threads(processes)

    def tell(name: str, outcome: "Outcome") -> None:
        with suppress(BrokenPipeError):  # nobody listens any more
            there.send((name, outcome.finished, in_words(outcome.error)))

    with stop_on_signal() as signals:
        train(_taken(wanted, turn), len(wanted), how, labels, StopWithParent(signals), tell)


def share_threads(processes: int) -> None:
    """Take this process's share of the cores."""
    import torch

    torch.set_num_threads(max(1, torch.get_num_threads() // processes))


def in_words(error: Exception | None) -> tuple[str, bool] | None:
    """Return what is sent of an error: not all can be, and none with its causes."""
    if error is None:
        return None
    said = str(error) if isinstance(error, PolarbearError) else f"{type(error).__name__}: {error}"
    return said, may_pass(error)


class StopWithParent:
    """A wish to stop, or the end of the process that started this one."""

    def __init__(self, other: "StopWish") -> None:
        """Remember who the parent is."""
        self.other, self.parent = other, os.getppid()

    def is_set(self) -> bool:
        """Whether either is so."""
        return self.other.is_set() or os.getppid() != self.parent


def _taken(wanted: Sequence[Wanted], turn: Any) -> Iterator[Wanted]:
    """Take one run after another that no other process has taken."""
    while True:
        with turn.get_lock():
            number, turn.value = turn.value, turn.value + 1
        if number >= len(wanted):
            return
        yield wanted[number]


@contextmanager
def _environment(place: Mapping[str, str]) -> Iterator[None]:
    """Start processes with other variables."""
    before = {name: os.environ.get(name) for name in place}
    os.environ.update(place)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
