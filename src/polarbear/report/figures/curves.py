"""Curves over the tasks, with bands, names at their ends and the paper's own beside them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from polarbear.base.arrays import Bools
from polarbear.base.errors import DataError
from polarbear.methods.catalogue import title
from polarbear.report.figures.labels import name_ends
from polarbear.report.figures.style import MISSING, line_style, points
from polarbear.report.palette import Look, looks
from polarbear.report.read.groups import Group, Runs
from polarbear.report.read.paper import paper_results
from polarbear.report.read.series import Course, Series, most
from polarbear.report.read.words import of_n, over_runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D


#: What says after which tasks a group's number is of too few cases: (T,).
Few = Callable[[Group], Bools]

PAPERS = ", the paper"
#: Bounds are dashed.
DOTTED: Mapping[str, Any] = {"linestyle": (0, (1, 1.5))}
#: Inches that a letter of the smallest type has on average, and what stands before a name.
LETTER, HANDLE = 0.051, 0.35


def counts(groups: Sequence[Group], *shown: Series) -> list[int]:
    """Return of how many runs groups are drawn: all of theirs, or those that have what is shown."""
    return [n for group in groups for n in (most(group, *shown) if shown else (group.count,))]


def labels(groups: Sequence[Group], *shown: Series) -> Callable[[Group], str]:
    """Return what names a group: with its number of runs, where that is not the same for all."""
    alike = len(set(counts(groups, *shown))) == 1

    def label(group: Group) -> str:
        # Matplotlib leaves a curve whose name begins with _ out of legends.
        name = f" {group.title}" if group.title.startswith("_") else group.title
        return name if alike else f"{name} ({of_n(*counts([group], *shown))})"

    return label


def draw_groups(
    axes: "Axes",
    groups: Sequence[Group],
    series: Series,
    named: Callable[[Group], str] | None = None,
    look: Mapping[str, Look] | None = None,
    few: Few | None = None,
) -> None:
    """Draw each group's means over all tasks, done or not, their 95 % intervals as bands.

    Groups that are only some of a report's are given the ``look`` they have among all. Where a
    number is of too ``few`` cases, its curve is grey.
    """
    look, named = look or looks(groups), named or labels(groups)
    # Many bands are read through one another.
    faint = 0.16 if len(groups) <= 5 else 0.08
    for group in groups:
        one = series(group)
        if not np.isnan(one.mean).all():
            grey = np.zeros(len(one.mean), bool) if few is None else few(group)
            _draw_curve(axes, one, faint, named(group), look[group.name], grey)
    over_tasks(axes, groups[0].tasks)


def _draw_curve(
    axes: "Axes", one: Course, shade: float, name: str, look: Look, grey: Bools
) -> None:
    tasks = np.flatnonzero(~np.isnan(one.mean))
    style = {"markevery": max(1, len(tasks) // 8), **line_style(look)}
    # Markers on the axis, at a score of 0, are drawn whole.
    axes.plot(tasks, np.where(grey, np.nan, one.mean)[tasks], label=name, clip_on=False, **style)
    if grey.any():
        # With the points beside it, so that the curve does not break.
        near = grey | np.append(grey[1:], False) | np.append(False, grey[:-1])
        hidden = np.where(near, one.mean, np.nan)[tasks]
        axes.plot(tasks, hidden, color=MISSING, linestyle=":", label="_few", zorder=1)
    spread = np.where(grey, 0.0, one.drawn)[tasks]
    if not np.nan_to_num(spread).any():
        return
    low, high = one.mean[tasks] - spread, one.mean[tasks] + spread
    if len(tasks) == 1:
        axes.vlines(tasks, low, high, color=look.colour, linewidth=points(1))
    else:
        axes.fill_between(tasks, low, high, color=look.colour, alpha=shade, linewidth=0)


def draw_paper(axes: "Axes", runs: Runs) -> bool:
    """Draw the paper's own R_j of our methods, dotted; say whether there were any."""
    published, drawn = paper_results(runs.benchmark), set[str]()
    look = looks(runs.groups)
    for group in runs.groups:
        if group.method in drawn or group.method not in published:
            continue
        mean = published[group.method].mean
        tasks = np.flatnonzero(~np.isnan(mean))
        one: dict[str, Any] = {"marker": "_", "markersize": points(9), "linestyle": "none"}
        style = {**DOTTED, "linewidth": points(1)} if len(tasks) > 1 else one
        name = title(group.method) + PAPERS
        axes.plot(tasks, mean[tasks], color=look[group.name].colour, label=name, **style)
        drawn.add(group.method)
    over_tasks(axes, runs.tasks)
    return bool(drawn)


def over_tasks(axes: "Axes", tasks: int) -> None:
    """Let an axis go over all tasks, done or not, and scores start at 0."""
    axes.set_xlim(-0.3 - 0.01 * tasks, tasks - 0.7 + 0.01 * tasks)
    count_tasks(axes)
    # Bands count, too; no score is above 1. Without curves the limits are infinite.
    top = max(1e-9, axes.dataLim.y1) if np.isfinite(axes.dataLim.y1) else 1.0
    axes.set_ylim(0.0, highest(top))


def highest(top: float) -> float:
    """Return where an axis of scores ends that must show ``top``; no score is above 1.

    >>> highest(0.5), highest(0.99), highest(1.7), highest(0.0)
    (0.53, 1.02, 1.02, 1.02)
    """
    return min(1.02, 1.06 * top) if 0 < top < 0.96 else 1.02


def count_tasks(axes: "Axes") -> None:
    """Number whole tasks alone, and not too many of them."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))


def name_curves(figure: "Figure", axes: "Axes", groups: Sequence[Group], width: float) -> None:
    """Name our curves at their ends and say above them what they are means of."""
    lines = _lines(axes)
    ours = [line for line in lines if not str(line.get_label()).endswith(PAPERS)]
    name_ends(figure, axes, ours, letters=int(0.35 * width / LETTER))
    words = over_runs(counts(groups)) + ("; dotted: the paper's" if len(ours) < len(lines) else "")
    note(axes, words, width)


def note(axes: "Axes", words: str, width: float) -> None:
    """Write small grey words above axes, over so many lines as a figure's width asks for."""
    broken = fill(words, max(20, int(0.9 * width / LETTER)))
    axes.set_title(broken, loc="left", fontsize="small", color="#555555")


def legend_below(
    figure: "Figure", panels: Iterable["Axes"], numbers: Sequence[int], width: float
) -> None:
    """Put one legend for several panels below them, with of how many runs the curves are."""
    lines = {
        (str(line.get_label()), str(line.get_color()), str(line.get_marker())): line
        for axes in panels
        for line in _lines(axes)
    }
    handles = list(lines.values())
    columns, letters = legend_columns((str(line.get_label()) for line in handles), width)
    names = [fill(str(line.get_label()), letters) for line in handles]
    below: dict[str, Any] = {"loc": "outside lower center", "ncols": columns}
    near: dict[str, Any] = {"columnspacing": 1.2, "handlelength": 1.5, "handletextpad": 0.5}
    figure.legend(handles, names, title=over_runs(numbers), **near, **below)


def legend_room(names: Sequence[str], width: float) -> float:
    """Return the inches that a legend of these names needs below panels, with the words above it.

    >>> round(legend_room(["finetune", "ER"], 6.9), 2), round(legend_room(["x" * 30] * 4, 3.3), 2)
    (0.42, 0.84)
    """
    columns, letters = legend_columns(names, width)
    deepest = max((-(-len(name) // letters) for name in names), default=1)
    return 0.28 + 0.14 * deepest * -(-len(names) // columns)


def legend_columns(names: Iterable[str], width: float) -> tuple[int, int]:
    """Return how many columns of names fit a width, and the letters that a name may then have.

    >>> legend_columns(["finetune", "iCaRL-norm"], 6.9), legend_columns(["x" * 200], 3.3)
    ((2, 60), (1, 57))
    """
    given = list(names)
    longest = max(map(len, given), default=1)
    columns = max(1, min(len(given), 5, int(width / (HANDLE + LETTER * longest))))
    return columns, max(10, int((width / columns - HANDLE) / LETTER))


def label_outside(grid: np.ndarray, y: str, x: str = "after task") -> None:
    """Name the axes of panels that share them: y to the left, x below the last one shown."""
    for axes in grid[:, 0]:
        axes.set_ylabel(y)
    for column in grid.T:
        lowest = [axes for axes in column if axes.get_visible()][-1]
        lowest.set_xlabel(x)
        # Panels above one that is not shown would have no numbers.
        lowest.tick_params(labelbottom=True)


def absent(runs: Runs, series: Series) -> bool:
    """Return whether no run has any of it, as summaries with R_j alone."""
    return all(np.isnan(series(group).mean).all() for group in runs.groups)


def refuse_absent(runs: Runs, series: Series, what: str) -> None:
    """Refuse to draw what no run has."""
    if absent(runs, series):
        raise DataError(f"no run has {what}")


def _lines(axes: "Axes") -> "list[Line2D]":
    return [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
