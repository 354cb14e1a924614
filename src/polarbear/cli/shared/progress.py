"""Progress of long work, with the time left: a bar on a terminal, a line now and then elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from polarbear.base.how_far import clock
from polarbear.cli.shared.console import error_console
from polarbear.cli.shared.eta import Pace

Report = Callable[[int, int | None], None]

SECONDS_BETWEEN_LINES = 5.0


@contextmanager
def progress(what: str, *, in_bytes: bool = False) -> Iterator[Report]:
    """Return a function to call with (done, in all, or None if unknown)."""
    if error_console().is_terminal:
        done = (DownloadColumn(), TransferSpeedColumn()) if in_bytes else (MofNCompleteColumn(),)
        columns = (TextColumn("{task.description}"), BarColumn(), *done, TimeRemainingColumn())
        with Progress(*columns, console=error_console()) as bar:
            task = bar.add_task(what, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        yield _Lines(what, in_bytes)


class _Lines:
    """Writes how far the work is, at the end and every few seconds before."""

    def __init__(self, what: str, in_bytes: bool) -> None:
        self.what, self.in_bytes = what, in_bytes
        self.pace, self.written = Pace(), time.monotonic()

    def __call__(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        self.pace.update(now, done)
        if done != total and now - self.written < SECONDS_BETWEEN_LINES:
            return
        self.written = now
        text = f"{self.what}: {self._shown(done)}"
        if total:
            text += f" of {self._shown(total)}"
            left = self.pace.left(total)
            text += f", about {clock(left)} left" if left > 0 else ""  # it may be nan
        error_console().print(text, soft_wrap=True)

    def _shown(self, number: int) -> str:
        return f"{number / 1e6:,.1f} MB" if self.in_bytes else f"{number:,}"
