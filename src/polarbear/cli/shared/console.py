"""How the commands write: whole tables at any width, in colour only on a terminal."""

import codecs
import errno
import json
import math
import os
import sys
from collections.abc import Mapping
from textwrap import fill
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from polarbear.base.names import json_text, printable


class Screen(Console):
    """A screen on which names that others gave do nothing: no markup, no escape sequences."""

    def render_str(self, text: str, **how: Any) -> Text:
        """Return text as it is printed, whatever is in it."""
        return super().render_str(printable(text), **how)

    def print(self, *objects: Any, soft_wrap: bool | None = None, **how: Any) -> None:
        """Print; lines that a file would get whole are broken between words on a terminal."""
        if soft_wrap and self.is_terminal:
            objects = tuple(
                _between_words(one, self.width) if isinstance(one, str) else one for one in objects
            )
        super().print(*objects, soft_wrap=soft_wrap, **how)

    def on_broken_pipe(self) -> None:
        """Let a command end where nobody reads its results; no line of a log is worth a run."""
        if not self.stderr:
            raise BrokenPipeError
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())


def _between_words(text: str, width: int) -> str:
    """Return a text in lines no longer than the screen, save those of one word: paths stay whole.

    >>> _between_words("left out: runs/iirc-shapes/er", 12)
    'left out:\\nruns/iirc-shapes/er'
    """
    return "\n".join(
        fill(line, width, break_long_words=False, break_on_hyphens=False)
        for line in text.split("\n")
    )


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
    """Return a table with no lines; names and prose (a column with no head) to the left."""
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        padding=(0, 1),
    )
    for i, column in enumerate(columns):
        words = i == 0 or not column
        table.add_column(
            Text(column),
            justify="left" if words else "right",
            no_wrap=not words,
            overflow="fold",
        )
    return table


#: Columns that names and prose have at least before they are broken.
WORDS = 24
GAP = 2


def print_table(screen: Console, table: Table) -> None:
    """Print a table without cutting a number or a name.

    Where it is too wide, the heads of its columns are broken between words. If a terminal is still
    too narrow, the table comes in parts one below the other, the first column in each; names and
    prose are broken into lines.
    """
    if table_width(table) > screen.width:
        for column in table.columns[1:]:
            column.header = Text(_narrow(column))
    before, prose = screen.width, any(not column.no_wrap for column in table.columns[1:])
    if not screen.is_terminal and not prose:  # whoever reads a file or a pipe breaks no line
        screen.width = max(before, table_width(table))
    for part in _parts(table, screen.width):
        screen.print(part)
    screen.width = before


def table_width(table: Table) -> int:
    """Return the columns that a table takes where nothing is broken."""
    return sum(_width(column) + GAP for column in table.columns) - GAP


def _width(column: Column) -> int:
    lines = (*str(column.header).split("\n"), *map(str, column.cells))
    return max(map(cell_len, lines), default=0)


def _narrow(column: Column) -> str:
    """Return a column's head in lines as short as its cells and its own words allow."""
    head = str(column.header)
    least = max(map(cell_len, (*map(str, column.cells), *head.split(), ".")))
    return fill(head, least, break_long_words=False, break_on_hyphens=False)


def _parts(table: Table, room: int) -> list[Table]:
    """Split a table into some that are no wider than the room."""
    least = [
        _width(column) if column.no_wrap else min(_width(column), WORDS) for column in table.columns
    ]
    parts: list[list[int]] = [[]]
    for i in range(1, len(table.columns)):
        if parts[-1] and sum(least[k] + GAP for k in (*parts[-1], i)) + least[0] > room:
            parts.append([])
        parts[-1].append(i)
    return [_of_columns(table, [0, *part], first=part is parts[0]) for part in parts]


def _of_columns(table: Table, places: list[int], *, first: bool) -> Table:
    part = plain_table(title=str(table.title) if table.title and first else None)
    for place in places:
        old = table.columns[place]
        part.add_column(
            old.header,
            justify=old.justify,
            no_wrap=old.no_wrap,
            overflow="fold",
            min_width=old.min_width,
        )
    for row in zip(*(table.columns[place].cells for place in places), strict=True):
        part.add_row(*row)
    return part


#: What is written for signs that a terminal's alphabet does not have; ? for any other.
PLAIN = {"–": "-", "−": "-", "…": "...", "±": "+/-", "×": "x", "÷": "/", "→": "->", "’": "'"}


def write_what_can_be_written() -> None:
    """Make stdout and stderr write other signs for those that their alphabet lacks, and go on."""
    codecs.register_error("polarbear", _plain)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="polarbear")


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    return "".join(PLAIN.get(sign, "?") for sign in lacking), error.end


def print_json(content: Mapping[str, Any] | list[Any]) -> None:
    """Print JSON for programs, as is: no colour, no wrapping; escaped for a smaller alphabet."""
    text = json_text(content, indent=2)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        text = json.dumps(content, allow_nan=False, indent=2)
    print(text)


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


def number(value: float | None, form: str) -> str:
    """Write a number in a form of one's own, or a dash where there is none.

    >>> number(0.02, "+.3f"), number(-0.0001, "+z.3f"), number(None, "+.3f")
    ('+0.020', '+0.000', '–')
    """
    return "–" if value is None else format(value, form)
