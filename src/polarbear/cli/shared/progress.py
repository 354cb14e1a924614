"""Progress of long work, with the time left: a bar on a terminal, a line now and then elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from polarbear.cli.shared.console import error_console

Report = Callable[[int, int | None], None]

SECONDS_BETWEEN_LINES = 5.0


@contextmanager
def progress(what: str, *, in_bytes: bool = False) -> Iterator[Report]:
    """Return a function to call with (done, in all, or None if unknown)."""
    if error_console().is_terminal:
        with _bar(in_bytes) as bar:
            task = bar.add_task(what, total=None)
            yield lambda done, total: bar.update(task, completed=done, total=total)
    else:
        yield _Lines(what, in_bytes)


def _bar(in_bytes: bool) -> Progress:
    done: tuple[ProgressColumn, ...] = (MofNCompleteColumn(),)
    if in_bytes:
        done = (DownloadColumn(), TransferSpeedColumn())
    columns = (TextColumn("{task.description}"), BarColumn(), *done, TimeRemainingColumn())
    return Progress(*columns, console=error_console())


class _Lines:
    """Writes how far the work is, at the end and every few seconds before."""

    def __init__(self, what: str, in_bytes: bool) -> None:
        self.what = what
        self.in_bytes = in_bytes
        self.first: tuple[float, int] | None = None
        self.written = time.monotonic()

    def __call__(self, done: int, total: int | None) -> None:
        now = time.monotonic()
        began, at_first = self.first = self.first or (now, done)
        if done != total and now - self.written < SECONDS_BETWEEN_LINES:
            return
        self.written = now
        speed = (done - at_first) / max(now - began, 1e-9)
        left = ""
        if total is not None and speed > 0 and done < total:
            left = f", about {clock((total - done) / speed)} left"
        error_console().print(f"{self.what}: {self._amount(done, total)}{left}", soft_wrap=True)

    def _amount(self, done: int, total: int | None) -> str:
        def shown(number: int) -> str:
            return f"{number / 1e6:,.1f} MB" if self.in_bytes else f"{number:,}"

        return shown(done) + (f" of {shown(total)}" if total else "")


def clock(seconds: float) -> str:
    """Write a duration.

    >>> clock(42), clock(125), clock(7260)
    ('42 s', '2 min', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
