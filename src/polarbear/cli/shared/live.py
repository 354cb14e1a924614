"""A run as it goes: live on a terminal, a line now and then elsewhere."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from polarbear.cli.shared.console import error_console, share
from polarbear.cli.shared.eta import Pace, Workload
from polarbear.cli.shared.progress import clock
from polarbear.runs.sinks import Silent
from polarbear.score.record import EpochRecord, ScoreRecord

if TYPE_CHECKING:
    from polarbear.engine import trainer as engine

SECONDS_BETWEEN_LINES = 30.0
SECONDS_BETWEEN_LOOKS = 0.1  # a step on a GPU takes less than drawing a line does


class Bar:
    """Two lines, for terminals of 80 columns, that are drawn over and over at the foot."""

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
    """Whole lines for a log file, at most one in half a minute between tasks."""

    def __init__(self, screen: Console) -> None:
        """Begin counting the seconds."""
        self.screen, self.written = screen, time.monotonic()

    def show(self, place: str, numbers: str, done: int, total: int) -> None:
        """Write a line, if the last one is old enough."""
        if time.monotonic() - self.written >= SECONDS_BETWEEN_LINES:
            self.say(f"{place}, {numbers}")

    def say(self, line: str) -> None:
        """Write a line."""
        self.written = time.monotonic()
        self.screen.print(line, soft_wrap=True)


class Watch(Silent):
    """Recorder and ``on_step`` of a run: shows task, epoch, rate, score, speed and time left."""

    def __init__(self, display: Bar | Lines) -> None:
        """Wait for the first step."""
        self.display, self.pace = display, Pace()
        self.workload: Workload | None = None
        self.valid, self.looked = math.nan, -math.inf

    def __call__(self, trainer: "engine.Trainer", progress: "engine.Progress") -> None:
        """Look at a run after a step."""
        now = time.monotonic()
        if now - self.looked < SECONDS_BETWEEN_LOOKS or not progress.begun:
            return
        self.looked = now
        self.workload = self.workload or Workload.of(trainer)
        done, total = self.workload.done(progress), self.workload.total
        self.pace.update(now, done)
        # Tasks are numbered from 0 everywhere, epochs are counted.
        epochs, phase = trainer.phase.epochs, f" {trainer.phase.name}".rstrip()
        epoch = min(progress.epoch + 1, epochs)
        place = f"task {progress.task} (0–{trainer.tasks - 1}){phase} epoch {epoch}/{epochs}"
        numbers = [f"rate {trainer.rate:g}", f"valid {share(self.valid)}"]
        if not math.isnan(speed := self.pace.speed):
            numbers.append(f"{speed:,.0f} images/s")
        if not math.isnan(left := self.pace.left(total)):
            numbers.append(f"{clock(left)} left")
        self.display.show(place, ", ".join(numbers), done, total)

    def epoch(self, record: EpochRecord) -> None:
        """Remember the validation score."""
        self.valid = record.valid

    def scores(self, record: ScoreRecord) -> None:
        """Say R_j after a task."""
        self.valid = math.nan
        if record.split == "test":
            after = record.after
            self.display.say(f"after task {after}: R_{after} = {share(record.r)}")


@contextmanager
def watch() -> Iterator[Watch]:
    """Return a watcher for a run, on the screen for errors: the other one is for results."""
    screen = error_console()
    # Where a notebook has no widgets, rich could only warn that there is no bar.
    widgets = screen.is_jupyter and find_spec("ipywidgets") is not None
    if not (screen.is_terminal or widgets):
        yield Watch(Lines(screen))
        return
    columns = (BarColumn(bar_width=16), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=screen, transient=True) as bar:
        yield Watch(Bar(bar))
