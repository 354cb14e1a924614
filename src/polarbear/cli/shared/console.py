"""How the commands write: tables that read well at 80 columns, in colour only on a terminal."""

import errno
import math
import os
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from polarbear.base.names import json_text, printable


class Screen(Console):
    """A screen on which names that others gave do nothing: no markup, no escape sequences."""

    def render_str(self, text: str, **how: Any) -> Text:
        """Return text as it is printed, whatever is in it."""
        return super().render_str(printable(text), **how)


def console() -> Console:
    """Return the screen; made anew each time, since output may have been redirected since.

    Nothing is markup or an emoji: a class may have brackets in its name, a path colons.
    """
    return Screen(highlight=False, markup=False, emoji=False)


def error_console() -> Console:
    """Return the screen for errors and progress."""
    return Screen(stderr=True, highlight=False, markup=False, emoji=False)


REMEDIES = {
    errno.EACCES: "choose a place that is yours, or have its rights changed",
    errno.EPERM: "choose a place that is yours, or have its rights changed",
    errno.EROFS: "choose a place that can be written to",
    errno.ENOENT: "correct the path",
    errno.ENOTDIR: "a file lies where a folder is needed: choose another folder, or move the file",
    errno.EEXIST: "a file lies where a folder is needed: choose another folder, or move the file",
    errno.EISDIR: "a folder lies where a file is needed: choose another name, or move the folder",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.ENOSPC: "make room on that disk, or choose a folder on another",
    errno.EDQUOT: "make room within your quota, or choose a folder on another disk",
}


def said(error: Exception) -> str:
    """Return an error's message; the system's own in words, with its file and what to do.

    >>> said(FileNotFoundError(errno.ENOENT, "No such file or directory", "zoo.csv"))
    'zoo.csv: no such file or directory; correct the path'
    """
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    file = f"{os.fsdecode(error.filename)}: " if isinstance(error.filename, (str, bytes)) else ""
    remedy = f"; {REMEDIES[error.errno]}" if error.errno in REMEDIES else ""
    return f"{file}{error.strerror[0].lower()}{error.strerror[1:]}{remedy}"


def plain_table(*columns: str, title: str | None = None) -> Table:
    """Return a table with a line under its head alone; names to the left, numbers to the right."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 1),
    )
    for i, column in enumerate(columns):
        table.add_column(Text(column), justify="left" if i == 0 or not column else "right")
    return table


def print_json(content: Mapping[str, Any] | list[Any]) -> None:
    """Print JSON for programs, as is: no colour, no wrapping."""
    print(json_text(content, indent=2))


def count(number: int | None) -> str:
    """Write a count.

    >>> count(46160), count(None)
    ('46,160', '–')
    """
    return "–" if number is None else f"{number:,}"


def share(number: float | None, digits: int = 3) -> str:
    """Write a score, or a dash where there is none.

    >>> share(0.61499), share(float("nan")), share(None)
    ('0.615', '–', '–')
    """
    return "–" if number is None or math.isnan(number) else f"{number:.{digits}f}"
