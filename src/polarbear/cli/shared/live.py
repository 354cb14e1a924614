"""A run as it goes: live on a terminal, a line now and then elsewhere."""

import logging
import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Column

from polarbear.base.how_far import clock, progress_log
from polarbear.cli.shared.console import error_console, share
from polarbear.cli.shared.eta import Pace, Workload
from polarbear.cli.shared.opening import opening
from polarbear.runs.sinks import Silent
from polarbear.score.record import EpochRecord, ScoreRecord

if TYPE_CHECKING:
    from polarbear.engine import trainer as engine

SECONDS_BETWEEN_LINES = 30.0
LONGEST_SILENCE = 600.0  # seconds: an epoch may take hours
SECONDS_BETWEEN_LOOKS = 0.1  # a step on a GPU takes less than drawing a line does


class Bar:
    """Two lines at 80 columns, more where it is narrower, drawn over and over at the foot."""

    def __init__(self, bar: Progress) -> None:
        """Begin with an empty bar."""
        self.bar, self.task = bar, bar.add_task("loading", total=None)

    def show(self, place: str, numbers: str, done: int, total: int) -> None:
        """Draw the lines anew."""
        text = f"{place}\n{numbers}"
        self.bar.update(self.task, description=text, completed=done, total=max(total, done))

    def say(self, line: str) -> None:
        """Write a line above the bar."""
        self.bar.console.print(line, soft_wrap=True)


class Lines:
    """Whole lines for a log file, between tasks at most one per epoch and in half a minute.

    Several runs that write into one log share the half minutes among them: ``runs``.
    """

    def __init__(self, screen: Console, runs: int = 1) -> None:
        """Begin counting the seconds."""
        self.screen, self.runs, self.written, self.place = screen, runs, time.monotonic(), ""

    def show(self, place: str, numbers: str, done: int, total: int) -> None:
        """Write a line, if the last one is old enough and of another epoch."""
        silent = time.monotonic() - self.written
        due = self.runs * (SECONDS_BETWEEN_LINES if place != self.place else LONGEST_SILENCE)
        if silent >= due:
            self.place = place
            self.say(f"{place}, {numbers}")

    def say(self, line: str) -> None:
        """Write a line."""
        self.written = time.monotonic()
        self.screen.print(line, soft_wrap=True)


class Watch(Silent):
    """Recorder and ``on_step`` of a run: shows task, epoch, rate, score, speed and time left.

    With a ``folder`` it first says what runs, where and how. ``name`` tells its lines from those of
    other runs.
    """

    def __init__(self, display: Bar | Lines, folder: Path | None = None, name: str = "") -> None:
        """Wait for the first step."""
        self.display, self.pace = display, Pace()
        self.folder, self.name = folder, f"{name}: " if name else ""
        self.workload: Workload | None = None
        self.valid, self.looked = math.nan, -math.inf

    def __call__(self, trainer: "engine.Trainer", progress: "engine.Progress") -> None:
        """Look at a run after a step."""
        now = time.monotonic()
        if now - self.looked < SECONDS_BETWEEN_LOOKS or not progress.begun:
            return
        self.looked = now
        if self.workload is None:
            self.workload = Workload.of(trainer)
            for line in opening(trainer, self.folder) if self.folder else ():
                self.display.say(f"{self.name}{line}")
        done, total = self.workload.done(progress), self.workload.total
        self.pace.update(now, done)
        # Tasks are numbered from 0 everywhere, epochs are counted.
        epochs, phase = trainer.phase.epochs, f" {trainer.phase.name}".rstrip()
        epoch = min(progress.epoch + 1, epochs)
        place = (
            f"{self.name}task {progress.task} (0–{trainer.tasks - 1}){phase} epoch {epoch}/{epochs}"
        )
        numbers = [f"rate {trainer.rate:g}", f"valid {share(self.valid)}"]
        if not math.isnan(speed := self.pace.speed):
            numbers.append(f"{speed:,.0f} images/s")
        numbers += self._left()
        self.display.show(place, ", ".join(numbers), done, total)

    def epoch(self, record: EpochRecord) -> None:
        """Remember the validation score."""
        self.valid = record.valid

    def scores(self, record: ScoreRecord) -> None:
        """Say R_j after a task."""
        self.valid = math.nan
        if record.split == "test":
            after = record.after
            words = [f"after task {after}: R_{after} = {share(record.r)}"]
            if self.workload and after + 1 < len(self.workload.epochs):
                words += self._left()
            self.display.say(self.name + ", ".join(words))

    def _left(self) -> list[str]:
        left = self.pace.left(self.workload.total) if self.workload else math.nan
        return [f"{clock(left)} left"] if left > 0 else []  # it may be NaN


@contextmanager
def watch(folder: Path | None = None, name: str = "") -> Iterator[Watch]:
    """Return a watcher for a run, on the screen for errors: the other one is for results."""
    screen = error_console()
    # Where a notebook has no widgets, rich could only warn that there is no bar.
    widgets = screen.is_jupyter and find_spec("ipywidgets") is not None
    if not (screen.is_terminal or widgets):
        with _telling(lines := Lines(screen)):
            yield Watch(lines, folder, name)
        return
    words = Column(no_wrap=False)  # a narrow terminal breaks the lines rather than cut them
    text = TextColumn("{task.description}", markup=False, table_column=words)
    columns = (BarColumn(bar_width=16), text)
    with Progress(*columns, console=screen, transient=True) as bar, _telling(shown := Bar(bar)):
        yield Watch(shown, folder, name)


@contextmanager
def _telling(display: Bar | Lines) -> Iterator[None]:
    """Let a display tell how far the library's long work is, where no handler of a log does."""
    if progress_log.hasHandlers():
        yield
        return
    teller = logging.Handler()
    teller.emit = lambda record: display.say(record.getMessage())  # type: ignore[method-assign]
    progress_log.addHandler(teller)
    try:
        yield
    finally:
        progress_log.removeHandler(teller)
