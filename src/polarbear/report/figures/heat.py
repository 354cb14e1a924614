"""How well each method labels the images of each superclass, as a map of colours."""

from typing import TYPE_CHECKING, Any

import numpy as np

from polarbear.base.arrays import Bools
from polarbear.report.figures.confusion import shades
from polarbear.report.figures.curves import LETTER
from polarbear.report.figures.style import Drawing, new_figure, show_pixels
from polarbear.report.options import Options
from polarbear.report.read.answers import known_hierarchy
from polarbear.report.read.families import ALONE, Families, families
from polarbear.report.read.groups import Runs
from polarbear.report.read.words import of_n, which_runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Inches of a line, and of the narrowest column that has room for a number.
ROW, NUMBER = 0.16, 0.3
#: Names of superclasses are cut after so many letters.
LONGEST = 24
#: What stands after a mean of fewer runs: there is no room for their number.
FEWER = "*"


def superclasses(runs: Runs, options: Options) -> list[Drawing]:
    """Draw pw-JS by superclass (row) and method (column) after the last task."""
    found = families(runs, options.root)
    tree = known_hierarchy(runs.benchmark)
    rows = [name if name == ALONE else _short(tree.title(name)) for name in found.names]
    columns = [
        group.title if len(set(found.counts)) == 1 else f"{group.title} ({of_n(count)})"
        for group, count in zip(found.groups, found.counts, strict=True)
    ]
    across = options.width - LETTER * max(map(len, rows)) - 0.7
    above = LETTER * max(map(len, columns))
    figure = new_figure(options.width, 0.45 + above + ROW * len(rows))
    axes = figure.add_subplot()
    show_pixels(axes, shades()(found.values, bytes=True), aspect="auto")
    axes.set(facecolor="#eeeeee")
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.set_xticks(range(len(columns)), columns, rotation=90)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0, labeltop=True, labelbottom=False)
    if across / len(columns) > NUMBER:
        _write_numbers(axes, found)
    n = f"n = {found.counts[0]}, " if len(set(found.counts)) == 1 else ""
    words = (
        f"pw-JS of the test images of each superclass (all their labels) after task {found.last}, "
        f"{runs.benchmark}; means over the runs that have kept their predictions "
        f"({n}{which_runs(found.groups)})."
    )
    if _fewer(found).any():
        words += f" {FEWER}: of fewer of them, those to which the superclass has come."
    return [Drawing("superclasses", words, figure)]


def _write_numbers(axes: "Axes", found: Families) -> None:
    for (row, column), value in np.ndenumerate(found.values):
        if not np.isnan(value):
            colour = "white" if value > 0.55 else "#222222"
            how: Any = {"ha": "center", "va": "center", "fontsize": "small", "color": colour}
            shown = f"{value:.2f}".removeprefix("0") + FEWER * bool(_fewer(found)[row, column])
            axes.text(column, row, shown, **how)


def _fewer(found: Families) -> Bools:
    """Say which means are of fewer runs than their column says: (names, groups)."""
    return (found.n > 0) & (found.n < np.array(found.counts))


def _short(title: str) -> str:
    return title if len(title) <= LONGEST else title[: LONGEST - 1] + "…"
