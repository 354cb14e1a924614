"""The paper's curves and bars: averages, each task at its time, forgetting, memory, hierarchy."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from polarbear.base.errors import DataError, counted
from polarbear.report.figures import curves, style
from polarbear.report.figures.curves import Series, average, caption, own_images
from polarbear.report.figures.style import Drawing
from polarbear.report.options import Options, chosen_tasks
from polarbear.report.palette import COLOURS, Look, looks
from polarbear.report.read.answers import known_hierarchy
from polarbear.report.read.groups import Group, Runs
from polarbear.score.catalogue import shown_scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def average_pw_js(runs: Runs, options: Options) -> list[Drawing]:
    """Draw R_j, the mean pw-JS over all images seen so far, after each task."""
    words = caption(runs, "Average pw-JS after each task")
    axes = ("after task $j$", "average pw-JS  $R_j$")
    return _curves(runs, "average-pw-js", words, average("pw_jaccard"), axes, options.paper)


def average_jaccard(runs: Runs, options: Options) -> list[Drawing]:
    """Draw the mean Jaccard similarity over all images seen so far, after each task."""
    curves.refuse_absent(runs, average("jaccard"), "the score 'jaccard'")
    words = caption(runs, "Average Jaccard similarity after each task")
    axes = ("after task $j$", "average Jaccard similarity")
    return _curves(runs, "average-jaccard", words, average("jaccard"), axes)


def per_task(runs: Runs, options: Options) -> list[Drawing]:
    """Draw R_jj: each task's images right after the task."""
    curves.refuse_absent(runs, own_images, "scores by task (R_jk)")
    words = caption(runs, "pw-JS on each task's images right after it")
    axes = ("task $j$", "pw-JS on the task's images  $R_{jj}$")
    return _curves(runs, "per-task", words, own_images, axes)


def _curves(
    runs: Runs, name: str, words: str, series: Series, named: tuple[str, str], paper: bool = False
) -> list[Drawing]:
    """Draw a curve per group in one pair of axes, the legend beside them."""
    figure = style.new_figure(style.PAGE * 0.8, 2.9)
    axes = figure.add_subplot()
    curves.draw_groups(axes, runs.groups, series)
    theirs = paper and curves.draw_paper(axes, runs)
    curves.name_axes(axes, *named)
    curves.legend_beside(figure, axes)
    return [Drawing(name, words + (" Dashed: the paper's." if theirs else ""), figure)]


def forgetting(runs: Runs, options: Options) -> list[Drawing]:
    """Draw R_jk of chosen tasks k over time."""
    curves.refuse_absent(runs, own_images, "scores by task (R_jk)")
    tasks = chosen_tasks(options, runs.tasks)
    figure, grid = style.new_panels(len(tasks), 2, 0.6, 1.8)
    for axes, task in zip(grid.flat, tasks, strict=False):
        curves.draw_groups(axes, runs.groups, curves.course(task))
        axes.set_title(f"images of task $k$ = {task}", parse_math=True)
    grid[0, 0].set_ylim(0, 1.02)
    curves.label_outside(grid, "pw-JS  $R_{jk}$")
    curves.legend_below(figure, grid.flat)
    words = caption(runs, "Chosen tasks' images over time") + (
        " A fall is not only forgetting: images get more labels as their subclasses arrive."
    )
    return [Drawing("forgetting", words, figure)]


def questions(runs: Runs, options: Options) -> list[Drawing]:
    """Draw implication, sibling error and late recall after each task."""
    every = [(name, score, words) for name, score, words in shown_scores() if words.panel]
    asked = [one for one in every if not curves.absent(runs, average(one[0]))]
    if not asked:
        raise DataError(f"no run has the score {every[0][0]!r}")
    figure, grid = style.new_panels(len(asked), len(asked), 0.0, 2.6)
    for axes, (name, _, words) in zip(grid.flat, asked, strict=True):
        curves.draw_groups(axes, runs.groups, average(name))
        axes.set_title(words.panel, fontsize=7.5)
    grid[0, 0].set_ylim(-0.02, 1.04)
    curves.label_outside(grid, "share")
    curves.legend_below(figure, grid.flat)
    low = ", ".join(score.title for _, score, _ in asked if score.better == "low")
    rest = f" Low is good for {low}, high for the others."
    return [Drawing("questions", caption(runs, "The paper's questions as numbers") + rest, figure)]


def memory(runs: Runs, options: Options) -> list[Drawing]:
    """Draw the effect of the memory's size, where a method was run with several."""
    by_method: dict[str, list[Group]] = {}
    for group in runs.groups:
        if "memory_per_class" in group.settings:
            by_method.setdefault(group.method, []).append(group)
    families = [groups for groups in by_method.values() if len(groups) > 1]
    if not families:
        raise DataError("it needs runs of one method with different memory_per_class")
    look = looks(runs.groups)
    figure = style.new_figure(style.PAGE, 0.2 + 2.5 * len(families))
    grid = figure.subplots(len(families), 2, squeeze=False, width_ratios=(3, 2))
    for (left, right), groups in zip(grid, families, strict=True):
        curves.draw_groups(left, groups, average("pw_jaccard"), _size_and_runs, look)
        left.set_title(groups[0].method_title)
        curves.name_axes(left, "after task $j$", "average pw-JS  $R_j$")
        left.legend(title="images kept per class", alignment="left")
        _memory_ends(right, groups, look)
    return [Drawing("memory", caption(runs, "Effect of the memory's size"), figure)]


def hierarchy(runs: Runs, options: Options) -> list[Drawing]:
    """Draw how many subclasses each superclass has."""
    from matplotlib.ticker import MaxNLocator

    tree = known_hierarchy(runs.benchmark)
    if not tree.superclasses:
        raise DataError(f"{runs.benchmark} has no superclasses")
    count = {name: int(tree.leaf_counts[tree.index(name)]) for name in tree.superclasses}
    names = sorted(count, key=lambda name: (-count[name], name))
    titles = [tree.title(name) for name in names]
    many = len(names) > 40
    # The bars keep their height, however long the longest name below them is.
    height = 1.7 + (0.055 if many else 0.065) * max(map(len, titles))
    figure = style.new_figure(min(max(style.COLUMN, 1.2 + 0.19 * len(names)), 11.0), height)
    axes = figure.add_subplot()
    bars = axes.bar(range(len(names)), [count[name] for name in names], color=COLOURS[0])
    axes.bar_label(bars, fontsize=5 if many else 6.5, padding=1, color="#444444")
    axes.set_xticks(range(len(names)), titles, rotation=90)
    axes.tick_params(axis="x", length=0, labelsize=6 if many else 7)
    axes.set_xlim(-0.7, len(names) - 0.3)
    axes.grid(visible=False)
    axes.yaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    axes.set_ylabel("subclasses")
    words = f"Subclasses of each of the {len(names)} superclasses of {runs.benchmark}."
    return [Drawing("hierarchy", words, figure)]


def _memory_ends(axes: "Axes", groups: Sequence[Group], look: Mapping[str, Look]) -> None:
    """Draw R_j after the last task, by size; of a size that has not come so far, nothing."""
    last = Runs(groups[0].benchmark, tuple(groups)).last
    ends = [float(group.mean("pw_jaccard")[last]) for group in groups]
    spread = np.nan_to_num([float(group.std("pw_jaccard")[last]) for group in groups])
    places = range(len(groups))
    axes.errorbar(places, ends, yerr=spread, color="#555555", capsize=2, zorder=1)
    axes.scatter(places, ends, c=[look[group.name].colour for group in groups], zorder=2)
    axes.set_xticks(places, [_size(group) for group in groups])
    axes.set_xlim(-0.5, len(groups) - 0.5)
    axes.set_ylim(0, 1.15 * np.nanmax(ends + spread))
    curves.name_axes(axes, "images kept per class", f"$R_{{{last}}}$, after task {last}")


def _size_and_runs(group: Group) -> str:
    return f"{_size(group)} ({counted(group.count, 'run')})"


def _size(group: Group) -> str:
    kept = group.settings["memory_per_class"]
    return "all" if kept is None else str(kept)
