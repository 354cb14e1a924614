"""The paper's curves and bars: averages, each task at its time, forgetting, memory, hierarchy."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from polarbear.base.errors import DataError
from polarbear.report.figures import curves, style
from polarbear.report.figures.style import Drawing, points
from polarbear.report.options import Options, chosen_tasks
from polarbear.report.palette import COLOURS, Look, looks
from polarbear.report.read.answers import known_hierarchy
from polarbear.report.read.cases import few_cases
from polarbear.report.read.groups import Group, Runs
from polarbear.report.read.series import Series, average, course, having, own_images
from polarbear.report.read.words import caption, of_fewer, of_n, over_runs
from polarbear.score.cases import FEW
from polarbear.score.catalogue import shown_scores

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: What is drawn as one curve per method over all tasks: they are compared, and end at one height.
SISTERS: Sequence[Series] = (average("pw_jaccard"), average("jaccard"), own_images)
#: Inches that a bar of the hierarchy with its name has.
BAR = 0.13


def average_pw_js(runs: Runs, options: Options) -> list[Drawing]:
    """Draw R_j, the mean pw-JS over all images seen so far, after each task."""
    what = "Average pw-JS after each task"
    return _curves(runs, options, "average-pw-js", what, average("pw_jaccard"), "average pw-JS")


def average_jaccard(runs: Runs, options: Options) -> list[Drawing]:
    """Draw the mean Jaccard similarity over all images seen so far, after each task."""
    curves.refuse_absent(runs, average("jaccard"), "the score 'jaccard'")
    what = "Average Jaccard similarity after each task"
    return _curves(runs, options, "average-jaccard", what, average("jaccard"), "average Jaccard")


def per_task(runs: Runs, options: Options) -> list[Drawing]:
    """Draw R_jj: each task's images right after the task."""
    curves.refuse_absent(runs, own_images, "scores by task (R_jk)")
    what = "pw-JS on each task's images right after it"
    return _curves(runs, options, "per-task", what, own_images, "pw-JS on the task's images")


def _curves(
    runs: Runs, options: Options, name: str, what: str, series: Series, y: str
) -> list[Drawing]:
    """Draw a curve per group in one pair of axes, each named at its end."""
    top, runs = _common_top(runs), having(runs, series)
    figure = style.new_figure(options.width, max(2.5, 0.75 + 0.125 * len(runs.groups)))
    axes = figure.add_subplot()
    curves.draw_groups(axes, runs.groups, series)
    theirs = name == "average-pw-js" and options.paper and curves.draw_paper(axes, runs)
    axes.set_ylim(0.0, max(top, axes.get_ylim()[1]))
    axes.set_xlabel("task" if series is own_images else "after task")
    axes.set_ylabel(y)
    curves.name_curves(figure, axes, runs.groups, options.width)
    words = caption(runs, what) + (" Dotted: the paper's." if theirs else "")
    return [Drawing(name, words, figure)]


def _common_top(runs: Runs) -> float:
    """Return where the axes of sister figures end."""
    tops = [0.0]
    for group, series in ((group, series) for group in runs.groups for series in SISTERS):
        one = series(group)
        tops.append(float(np.nanmax(np.append(one.mean + np.nan_to_num(one.drawn), 0.0))))
    return curves.highest(max(tops))


def forgetting(runs: Runs, options: Options) -> list[Drawing]:
    """Draw R_jk of chosen tasks k over time."""
    curves.refuse_absent(runs, own_images, "scores by task (R_jk)")
    tasks = chosen_tasks(options, runs.tasks)
    shown = [course(task) for task in tasks]
    runs = having(runs, *shown)
    label = curves.labels(runs.groups, *shown)
    rest = _room(runs, options, label)
    figure, grid = style.new_panels(options.width, len(tasks), 2, rest, 1.5)
    for axes, task in zip(grid.flat, tasks, strict=False):
        curves.draw_groups(axes, runs.groups, course(task), label)
        axes.set_title(f"images of task {task}")
    grid[0, 0].set_ylim(0, 1.02)
    curves.label_outside(grid, "pw-JS")
    curves.legend_below(figure, grid.flat, curves.counts(runs.groups, *shown), options.width)
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
    columns = min(len(asked), max(1, int(options.width / 1.75)))
    shown = [average(name) for name, _, _ in asked]
    runs = having(runs, *shown)
    label = curves.labels(runs.groups, *shown)
    rest = _room(runs, options, label)
    figure, grid = style.new_panels(options.width, len(asked), columns, rest, 1.7)
    for axes, (name, _, words) in zip(grid.flat, asked, strict=False):
        few = partial(few_cases, score=name)
        curves.draw_groups(axes, runs.groups, average(name), label, few=few)
        axes.set_title(words.panel, fontsize="small")
    grid[0, 0].set_ylim(-0.02, 1.04)
    curves.label_outside(grid, "share")
    curves.legend_below(figure, grid.flat, curves.counts(runs.groups, *shown), options.width)
    low = ", ".join(score.title for _, score, _ in asked if score.better == "low")
    told = f" Low is good for {low}, high for the others."
    told += f" Grey and dotted: of cases that are fewer than {100 * FEW:g} % of the images."
    return [Drawing("questions", caption(runs, "The paper's questions as numbers") + told, figure)]


def _room(runs: Runs, options: Options, label: Callable[[Group], str]) -> float:
    """Return the inches below panels: the axis and the legend."""
    return 0.2 + curves.legend_room([label(group) for group in runs.groups], options.width)


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
    narrow = options.width < 5
    shape = (2 * len(families), 1) if narrow else (len(families), 2)
    figure = style.new_figure(options.width, 0.2 + 2.1 * shape[0])
    panels = figure.subplots(*shape, squeeze=False, width_ratios=None if narrow else (3, 2))
    for (left, right), groups in zip(panels.reshape(-1, 2), families, strict=True):
        curves.draw_groups(left, groups, average("pw_jaccard"), _size_and_runs, look)
        left.set(title=groups[0].method_title, xlabel="after task", ylabel="average pw-JS")
        title = f"images kept per class\n{over_runs(curves.counts(groups))}"
        left.legend(title=title, alignment="left", fontsize="small")
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
    titles, counts = [tree.title(name) for name in names], [count[name] for name in names]
    places, whole = range(len(names)), MaxNLocator(nbins=6, integer=True)
    # Upright where all names fit side by side; else they lie, however long the figure becomes.
    upright = 0.6 + BAR * len(names) < options.width
    height = 1.7 + 0.065 * max(map(len, titles)) if upright else 0.5 + BAR * len(names)
    figure = style.new_figure(options.width, height)
    axes = figure.add_subplot()
    axes.grid(visible=False)
    if upright:
        bars = axes.bar(places, counts, color=COLOURS[0])
        axes.set_xticks(places, titles, rotation=90)
        axes.set(xlim=(-0.7, len(names) - 0.3), ylabel="subclasses")
        axes.yaxis.set_major_locator(whole)
    else:
        bars = axes.barh(places, counts, color=COLOURS[0])
        axes.set_yticks(places, titles)
        axes.set(ylim=(len(names) - 0.3, -0.7), xlabel="subclasses")
        axes.xaxis.set_major_locator(whole)
    axes.tick_params(axis="x" if upright else "y", length=0)
    axes.bar_label(bars, fontsize="small", padding=points(1), color="#444444")
    words = f"Subclasses of each of the {len(names)} superclasses of {runs.benchmark}."
    return [Drawing("hierarchy", words, figure)]


def _memory_ends(axes: "Axes", groups: Sequence[Group], look: Mapping[str, Look]) -> None:
    """Draw R_j after the last task, by size; of a size that has not come so far, nothing."""
    last = Runs(groups[0].benchmark, tuple(groups)).last
    courses = [average("pw_jaccard")(group) for group in groups]
    ends = np.array([float(one.mean[last]) for one in courses])
    spread = np.nan_to_num([float(one.drawn[last]) for one in courses])
    places = range(len(groups))
    axes.errorbar(places, ends, yerr=spread, color="#555555", capsize=points(2), zorder=1)
    colours = [look[group.name].colour for group in groups]
    axes.scatter(places, ends, s=points(5) ** 2, c=colours, zorder=2)
    fewer = [of_fewer(int(c.n[last]), g.count) for g, c in zip(groups, courses, strict=True)]
    axes.set_xticks(places, [_size(g) + words for g, words in zip(groups, fewer, strict=True)])
    axes.set(xlim=(-0.5, len(groups) - 0.5), ylim=(0, 1.15 * np.nanmax(ends + spread)))
    axes.set(xlabel="images kept per class", ylabel=f"average pw-JS after task {last}")


def _size_and_runs(group: Group) -> str:
    return f"{_size(group)} ({of_n(group.count)})"


def _size(group: Group) -> str:
    kept = group.settings["memory_per_class"]
    return "all" if kept is None else str(kept)
