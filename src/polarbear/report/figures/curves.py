"""Curves over the tasks, with bands, legends and the paper's own beside them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from polarbear.base.arrays import Floats
from polarbear.base.errors import DataError, counted
from polarbear.methods.catalogue import title
from polarbear.report.figures.style import line_style
from polarbear.report.palette import Look, looks
from polarbear.report.read.groups import Group, Runs
from polarbear.report.read.paper import paper_results

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

#: What gives a group's mean and standard deviation after each task: (T,) each.
Series = Callable[[Group], tuple[Floats, Floats]]

PAPERS = ", the paper"
DASHED: Mapping[str, Any] = {"linestyle": (0, (4, 2)), "linewidth": 1.0}


def average(score: str) -> Series:
    """Return a score over all images seen so far."""
    return lambda group: (group.mean(score), group.std(score))


def own_images(group: Group) -> tuple[Floats, Floats]:
    """Return R_jj: pw-JS on each task's images right after it."""
    return np.diagonal(group.by_task_mean()), np.diagonal(group.by_task_std())


def course(task: int) -> Series:
    """Return R_jk of one task k over time."""
    return lambda group: (group.by_task_mean()[:, task], group.by_task_std()[:, task])


def label(group: Group) -> str:
    """Return a group's name with its number of runs."""
    # Matplotlib leaves a curve whose name begins with _ out of legends.
    shown = f" {group.title}" if group.title.startswith("_") else group.title
    return f"{shown} ({counted(group.count, 'run')})"


def draw_groups(
    axes: "Axes",
    groups: Sequence[Group],
    series: Series,
    named: Callable[[Group], str] = label,
    look: Mapping[str, Look] | None = None,
) -> None:
    """Draw each group's means over all tasks, done or not, its standard deviation as a band.

    Groups that are only some of a report's are given the ``look`` they have among all.
    """
    look = look or looks(groups)
    for group in groups:
        mean, std = series(group)
        if not np.isnan(mean).all():
            _draw_curve(axes, mean, std, named(group), look[group.name])
    over_tasks(axes, groups[0].tasks)


def _draw_curve(axes: "Axes", mean: Floats, std: Floats, name: str, look: Look) -> None:
    tasks = np.flatnonzero(~np.isnan(mean))
    every = max(1, len(tasks) // 8)
    # Markers on the axis, at a score of 0, are drawn whole.
    axes.plot(tasks, mean[tasks], label=name, clip_on=False, markevery=every, **line_style(look))
    spread = np.nan_to_num(std[tasks])
    if not spread.any():
        return
    low, high = mean[tasks] - spread, mean[tasks] + spread
    if len(tasks) == 1:
        axes.vlines(tasks, low, high, color=look.colour, linewidth=1)
    else:
        axes.fill_between(tasks, low, high, color=look.colour, alpha=0.16, linewidth=0)


def draw_paper(axes: "Axes", runs: Runs) -> bool:
    """Draw the paper's own R_j of our methods, dashed; say whether there were any."""
    published, drawn = paper_results(runs.benchmark), set[str]()
    look = looks(runs.groups)
    for group in runs.groups:
        if group.method in drawn or group.method not in published:
            continue
        mean = published[group.method].mean
        tasks = np.flatnonzero(~np.isnan(mean))
        one: dict[str, Any] = {"marker": "_", "markersize": 9, "linestyle": "none"}
        style = DASHED if len(tasks) > 1 else one
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
    highest = max([0.0, *(line.get_ydata(orig=True).max() for line in _lines(axes))])
    axes.set_ylim(0.0, min(1.02, max(1.12 * highest, 1.03 * top)) if top < 0.98 else 1.02)


def count_tasks(axes: "Axes") -> None:
    """Number whole tasks alone, and not too many of them."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(nbins=11, integer=True))


def legend_beside(figure: "Figure", axes: "Axes") -> None:
    """Put the legend to the right, in the order in which the curves end; the paper's are one."""
    from matplotlib.lines import Line2D

    ours = [line for line in _lines(axes) if not line.get_label().endswith(PAPERS)]
    handles = sorted(ours, key=lambda line: -line.get_ydata(orig=True)[-1])
    if len(ours) < len(_lines(axes)):
        handles.append(Line2D([], [], color="#555555", label="the paper's, dashed", **DASHED))
    figure.legend(handles, _broken(handles, 34), loc="outside right upper", borderaxespad=0.2)


def legend_below(figure: "Figure", panels: Iterable["Axes"]) -> None:
    """Put one legend for several panels below them."""
    lines = {
        (str(line.get_label()), str(line.get_color()), str(line.get_marker())): line
        for axes in panels
        for line in _lines(axes)
    }
    handles, columns = list(lines.values()), max(1, min(4, len(lines)))
    names = _broken(handles, 120 // columns)
    figure.legend(handles, names, loc="outside lower center", ncols=columns)


def _broken(lines: Sequence["Line2D"], width: int) -> list[str]:
    """Return curves' names, the long ones of runs that differ in much over several lines."""
    return [fill(str(line.get_label()), width) for line in lines]


def name_axes(axes: "Axes", x: str, y: str) -> None:
    """Name the axes in words of our own, which may have mathematics in them; names have none."""
    axes.set_xlabel(x, parse_math=True)
    axes.set_ylabel(y, parse_math=True)


def label_outside(grid: np.ndarray, y: str) -> None:
    """Name the axes of panels that share them: y to the left, x below the last one shown."""
    for axes in grid[:, 0]:
        axes.set_ylabel(y, parse_math=True)
    for column in grid.T:
        lowest = [axes for axes in column if axes.get_visible()][-1]
        lowest.set_xlabel("after task $j$", parse_math=True)
        # Panels above one that is not shown would have no numbers.
        lowest.tick_params(labelbottom=True)


def caption(runs: Runs, what: str) -> str:
    """Say what is drawn, of what, over how many runs."""
    counts = sorted({group.count for group in runs.groups})
    number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    over = (
        "one run per method" if counts == [1] else f"mean ± standard deviation over {number} runs"
    )
    behind = sum(run.done[-1] < runs.tasks - 1 for group in runs.groups for run in group.runs)
    # Not "unfinished": a run may have been asked for fewer tasks.
    rest = f"; fewer than all tasks in {behind} of {runs.count} runs" if behind else ""
    return f"{what}, {runs.benchmark}, {runs.split} images; {over}{rest}."


def absent(runs: Runs, series: Series) -> bool:
    """Return whether no run has any of it, as summaries with R_j alone."""
    return all(np.isnan(series(group)[0]).all() for group in runs.groups)


def refuse_absent(runs: Runs, series: Series, what: str) -> None:
    """Refuse to draw what no run has."""
    if absent(runs, series):
        raise DataError(f"no run has {what}")


def _lines(axes: "Axes") -> list[Any]:
    return [line for line in axes.get_lines() if not str(line.get_label()).startswith("_")]
