"""How the commands write: tables that read well at 80 columns, in colour only on a terminal."""

import math
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from polarbear.names import json_text, printable


class Screen(Console):
    """A screen on which names that others gave do nothing: no markup, no escape sequences."""

    def render_str(self, text: str, **how: Any) -> Text:
        """Give text as it is printed, whatever is in it."""
        return super().render_str(printable(text), **how)


def console() -> Console:
    """Give the screen; made anew each time, since output may have been redirected since.

    Nothing is markup or an emoji: a class may have brackets in its name, a path colons.
    """
    return Screen(highlight=False, markup=False, emoji=False)


def error_console() -> Console:
    """Give the screen for errors and progress."""
    return Screen(stderr=True, highlight=False, markup=False, emoji=False)


def plain_table(*columns: str, title: str | None = None) -> Table:
    """Give a table with a line under its head alone; names to the left, numbers to the right."""
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


def share(number: float, digits: int = 3) -> str:
    """Write a score, or a dash where there is none.

    >>> share(0.61499), share(float("nan"))
    ('0.615', '–')
    """
    return "–" if math.isnan(number) else f"{number:.{digits}f}"
