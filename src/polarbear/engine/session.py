"""Whole runs: from settings to a finished run folder, and on from where one stopped."""

import logging
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from polarbear.arrays import Bools
from polarbear.decide import Scores
from polarbear.engine import checkpoint, state
from polarbear.engine.prepared import Prepared, begin, reopen
from polarbear.engine.trainer import Progress, Recorder, Trainer
from polarbear.errors import PolarbearError
from polarbear.runs import RunError, RunFolder, plain, write_json, writing
from polarbear.settings import Settings
from polarbear.stream import Stream

log = logging.getLogger("polarbear")

OnStep = Callable[[Trainer, Progress], None]


@dataclass(frozen=True)
class FolderRecorder:
    """Writes what a run measures into its folder."""

    folder: RunFolder
    keep_scores: bool

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Add a line to epochs.jsonl."""
        self.folder.append("epochs", record)

    def scores(self, record: Mapping[str, Any]) -> None:
        """Add a line to scores.jsonl."""
        self.folder.append("scores", record)

    def answers(self, after: int, predictions: Bools, scores: Scores) -> None:
        """Keep test predictions, and scores if asked."""
        self.folder.save_predictions(after, predictions)
        if self.keep_scores:
            self.folder.save_raw(after, scores)


def run(
    settings: Settings,
    folder: str | Path,
    *,
    stream: Stream | None = None,
    root: str | Path | None = None,
    recorders: tuple[Recorder, ...] = (),
    on_step: OnStep | None = None,
    save_every: float = 60.0,
) -> bool:
    """Train by these settings into a new folder; True when it came to its end.

    ``stream`` replaces the benchmark's own data. The run stops early, and can be resumed, on
    SIGTERM or SIGINT; a checkpoint is written then, after every task, and every ``save_every``
    seconds.
    """
    prepared = begin(settings, folder, stream=stream, root=root)
    return _go(prepared, recorders, on_step, save_every)


def resume(
    folder: str | Path,
    *,
    stream: Stream | None = None,
    root: str | Path | None = None,
    recorders: tuple[Recorder, ...] = (),
    on_step: OnStep | None = None,
    save_every: float = 60.0,
) -> bool:
    """Go on with a run where its newest whole checkpoint was taken; True when it came to its end.

    The scores are those of a run that was never interrupted.
    """
    if RunFolder.open(folder).finished:
        log.info("%s is finished: nothing to do", folder)
        return True
    prepared = reopen(folder, stream=stream, root=root)
    with threads(prepared.threads):
        return _go(prepared, recorders, on_step, save_every)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with as many threads as the run began with: sums round by how they are shared out."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _go(
    prepared: Prepared, recorders: tuple[Recorder, ...], on_step: OnStep | None, save_every: float
) -> bool:
    with stop_on_signal() as stop:
        going = advance(prepared, stop, recorders, on_step, save_every)
        while True:
            try:
                next(going)
            except StopIteration as end:
                return bool(end.value)


def advance(
    prepared: Prepared,
    stop: threading.Event,
    recorders: tuple[Recorder, ...] = (),
    on_step: OnStep | None = None,
    save_every: float = 60.0,
) -> Generator[Progress, None, bool]:
    """Go on with a run, yielding wherever it may be left for a while; gives whether it ended."""
    with prepared.folder.held():
        there = Settings.from_dict(prepared.folder.manifest()["settings"])
        if plain(there.to_dict()) != plain(prepared.learner.settings.to_dict()):
            raise RunError(f"{prepared.folder.path} was taken over by another run meanwhile")
        return (yield from _advance(prepared, stop, recorders, on_step, save_every))


def _advance(
    prepared: Prepared,
    stop: threading.Event,
    recorders: tuple[Recorder, ...],
    on_step: OnStep | None,
    save_every: float,
) -> Generator[Progress, None, bool]:
    folder, learner = prepared.folder, prepared.learner
    own = FolderRecorder(folder, learner.settings.keep_scores)
    trainer = Trainer(prepared.stream, learner, (own, *recorders))
    learner.machine.allow_tf32()  # runs that were made ready since may have another precision
    number, before = _restore_newest(folder, trainer)
    began = time.monotonic() - before
    saved, task = time.monotonic(), trainer.progress.task
    told = None
    for progress in trainer.steps():
        # While a GPU is at work a run may pause in the same place many times.
        if on_step and progress is not told:
            on_step(trainer, progress)
            told = progress
        stopping = stop.is_set()
        if stopping or progress.task != task or time.monotonic() - saved > save_every:
            number += 1
            _save(folder, number, trainer, time.monotonic() - began)
            saved, task = time.monotonic(), progress.task
        if stopping:
            log.warning(
                "stopped in task %d, epoch %d; `polarbear resume %s` goes on",
                progress.task,
                progress.epoch,
                folder.path,
            )
            return False
        yield progress
        learner.machine.allow_tf32()
    with writing(folder.path):
        facts = {"tasks": trainer.tasks, "seconds": time.monotonic() - began}
        write_json(folder.path / "finished.json", facts)
    return True


def _save(folder: RunFolder, number: int, trainer: Trainer, seconds: float) -> None:
    taken = state.capture(trainer)
    facts = {**taken.facts, "lines": folder.sizes(), "seconds": seconds}
    try:
        checkpoint.save(
            folder.path / "checkpoint", number, checkpoint.Checkpoint(taken.tensors, facts)
        )
    except OSError as error:
        raise PolarbearError(
            f"no checkpoint could be written to {folder.path}: {error}. The one before is kept; "
            f"make room, then `polarbear resume {folder.path}`"
        ) from error


def _restore_newest(folder: RunFolder, trainer: Trainer) -> tuple[int, float]:
    """Go to the newest checkpoint; gives its number and the seconds the run had taken by then."""
    newest = checkpoint.load_newest(folder.path / "checkpoint")
    if newest is None:
        folder.cut_back({"epochs": 0, "scores": 0})
        return 0, 0.0
    number, found = newest
    folder.cut_back(found.facts["lines"])
    state.restore(trainer, found)
    return number, found.facts["seconds"]


@contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """Turn SIGTERM and the first Ctrl-C into an event; elsewhere than the main thread, neither."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(*_: object) -> None:
        stop.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    handlers = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in handlers.items():
            # Python gives None for a handler that C code has set, and takes none.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
