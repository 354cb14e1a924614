"""Curves over the tasks: averages, each task at its time, forgetting, memory, the questions."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from polarbear.arrays import Floats
from polarbear.benchmarks import find
from polarbear.errors import DataError, PolarbearError
from polarbear.report.groups import Group, Runs
from polarbear.report.options import Options, chosen_tasks
from polarbear.report.paper import paper_results, title
from polarbear.report.style import PAGE, Drawing, colours, markers, new_axes, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Series = Callable[[Group], tuple[Floats, Floats]]

QUESTIONS = {
    "implication": ("Implication", "named subclasses that come\nwith their superclass"),
    "sibling_error": ("Sibling error (lower is better)", "images given a wrong\nsibling's label"),
    "late_recall": ("Late recall", "images of later subclasses\ngiven their superclass"),
}


def average_pw_js(runs: Runs, options: Options) -> list[Drawing]:
    """Draw R_j, the mean pw-JS over all images seen so far, after each task."""
    figure, axes = new_axes(PAGE * 0.8, 3.0)
    _curves(axes, runs.groups, _average("pw_jaccard"))
    drawn = _paper_curves(axes, runs) if options.paper else []
    _finish(figure, axes, runs.tasks, r"average pw-JS  $R_j$")
    theirs = " Dashed: the paper's own table." if drawn else ""
    return [Drawing("average-pw-js", _caption(runs, "Average pw-JS after each task") + theirs, figure)]


def average_jaccard(runs: Runs, options: Options) -> list[Drawing]:
    """Draw the mean Jaccard similarity over all images seen so far, after each task."""
    _refuse_absent(runs, "jaccard")
    figure, axes = new_axes(PAGE * 0.8, 3.0)
    _curves(axes, runs.groups, _average("jaccard"))
    _finish(figure, axes, runs.tasks, "average Jaccard similarity")
    return [Drawing("average-jaccard", _caption(runs, "Average Jaccard after each task"), figure)]


def per_task(runs: Runs, options: Options) -> list[Drawing]:
    """Draw R_jj: each task's images right after the task."""
    _refuse_absent_by_task(runs)
    figure, axes = new_axes(PAGE * 0.8, 3.0)
    _curves(axes, runs.groups, _diagonal)
    _finish(figure, axes, runs.tasks, r"pw-JS on the task's own images  $R_{jj}$", "task $j$")
    return [Drawing("per-task", _caption(runs, "Each task's images right after it"), figure)]


def forgetting(runs: Runs, options: Options) -> list[Drawing]:
    """Draw R_jk of chosen tasks k over time."""
    _refuse_absent_by_task(runs)
    tasks = chosen_tasks(options, runs.tasks)
    rows = -(-len(tasks) // 2)
    figure = new_figure(PAGE, 0.5 + 1.9 * rows)
    grid = figure.subplots(rows, min(2, len(tasks)), sharex=True, sharey=True, squeeze=False)
    panels: list[Axes] = list(grid.flat)
    for axes, task in zip(panels, tasks, strict=False):
        _curves(axes, runs.groups, _course(task))
        axes.set_title(f"images of task {task}")
        axes.axvline(task, color="#bbbbbb", linewidth=0.8, zorder=0)
    for axes in panels[len(tasks) :]:
        axes.set_visible(False)
    _finish_panels(figure, grid, runs.tasks, r"pw-JS  $R_{jk}$")
    caption = _caption(runs, "Chosen tasks' images over time") + (
        " A fall is not only forgetting: images get more labels as their subclasses arrive."
    )
    return [Drawing("forgetting", caption, figure)]


def questions(runs: Runs, options: Options) -> list[Drawing]:
    """Draw implication, sibling error and late recall after each task."""
    _refuse_absent(runs, *QUESTIONS)
    figure = new_figure(PAGE, 2.9)
    grid = figure.subplots(1, len(QUESTIONS), sharex=True, sharey=True, squeeze=False)
    panels: list[Axes] = list(grid.flat)
    for axes, (score, (name, meaning)) in zip(panels, QUESTIONS.items(), strict=True):
        _curves(axes, runs.groups, _average(score))
        axes.set_title(name)
        axes.set_ylabel(meaning)
    _finish_panels(figure, grid, runs.tasks, None)
    return [Drawing("questions", _caption(runs, "The paper's questions as numbers"), figure)]


def memory(runs: Runs, options: Options) -> list[Drawing]:
    """Draw the effect of the memory's size, where a method was run with several."""
    families = _memory_families(runs)
    if not families:
        raise DataError("it needs one method's runs with different memory_per_class")
    figure = new_figure(PAGE, 0.4 + 2.5 * len(families))
    grid = figure.subplots(len(families), 2, squeeze=False, width_ratios=(3, 2))
    for (left, right), (method, groups) in zip(grid, families.items(), strict=True):
        _memory_row(left, right, method, groups)
    return [Drawing("memory", _caption(runs, "The effect of the memory's size"), figure)]


def hierarchy(runs: Runs, options: Options) -> list[Drawing]:
    """Draw how many subclasses each superclass has."""
    tree = find(runs.benchmark).hierarchy()
    if not tree.superclasses:
        raise DataError(f"{runs.benchmark} has no superclasses")
    count = {name: int(tree.leaf_counts[tree.index(name)]) for name in tree.superclasses}
    names = sorted(count, key=lambda name: (-count[name], name))
    width = min(2.6 + 0.14 * len(names), 2 * PAGE)
    figure, axes = new_axes(width, 2.6)
    bars = axes.bar(range(len(names)), [count[name] for name in names], color="#0072B2", width=0.75)
    axes.bar_label(bars, fontsize=6 if len(names) < 40 else 5, padding=1)
    axes.set_xticks(range(len(names)), [tree.title(name) for name in names], rotation=90)
    axes.tick_params(axis="x", length=0, labelsize=7 if len(names) < 40 else 6)
    axes.set_xlim(-0.7, len(names) - 0.3)
    axes.grid(False, axis="x")
    axes.set_ylabel("subclasses")
    caption = f"Subclasses of each of the {len(names)} superclasses of {runs.benchmark}."
    return [Drawing("hierarchy", caption, figure)]


def _average(score: str) -> Series:
    return lambda group: (group.mean(score), group.std(score))


def _diagonal(group: Group) -> tuple[Floats, Floats]:
    return np.diagonal(group.by_task_mean()), np.diagonal(group.by_task_std())


def _course(task: int) -> Series:
    return lambda group: (group.by_task_mean()[:, task], group.by_task_std()[:, task])


def _curves(axes: "Axes", groups: Sequence[Group], series: Series) -> None:
    """Draw each group's means as a line and a standard deviation either side as a band."""
    colour, marker = colours(groups), markers(groups)
    for group in groups:
        mean, std = series(group)
        if np.isnan(mean).all():
            continue
        _curve(axes, mean, std, _label(group), colour[group.name], marker[group.name])


def _curve(
    axes: "Axes", mean: Floats, std: Floats, label: str, colour: str, marker: str
) -> None:
    tasks = np.flatnonzero(~np.isnan(mean))
    every = max(1, len(tasks) // 12)
    axes.plot(tasks, mean[tasks], color=colour, marker=marker, markevery=every, label=label)
    spread = np.nan_to_num(std[tasks])
    if len(tasks) == 1:
        axes.errorbar(tasks, mean[tasks], yerr=spread, color=colour, capsize=2)
    elif spread.any():
        low, high = mean[tasks] - spread, mean[tasks] + spread
        axes.fill_between(tasks, low, high, color=colour, alpha=0.16, linewidth=0)


def _label(group: Group) -> str:
    return f"{group.title} ({group.count} run{'s' if group.count > 1 else ''})"
