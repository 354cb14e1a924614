"""The label river: how the images of one superclass are labelled after each task."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from polarbear.base.arrays import Bools, Floats
from polarbear.base.errors import DataError
from polarbear.benchmark.stream import Stream
from polarbear.report.figures.curves import count_tasks, label_outside, legend_columns, legend_room
from polarbear.report.figures.style import Drawing, new_panels, points
from polarbear.report.options import Options, named_superclass
from polarbear.report.read.answers import (
    Answers,
    answers,
    comparable_runs,
    note_of_absent,
    stream_of,
)
from polarbear.report.read.groups import Run, Runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: What an image's labels amount to, from the best to the worst, with its colour.
KINDS: Mapping[str, str] = {
    "superclass and subclass": "#0072B2",
    "superclass; subclass still to come": "#56B4E9",
    "superclass alone": "#A6D8F0",
    "subclass alone": "#009E73",
    "a wrong sibling": "#E69F00",
    "a label from elsewhere": "#D55E00",
    "no label": "#D9D9D9",
}
ABOVE = "given the superclass, whatever else"


@dataclass(frozen=True, eq=False)
class River:
    """Shares of a superclass's test images after each of ``tasks``: (len(KINDS), tasks).

    ``above`` (tasks,) is the share that is given the superclass's label, whatever else.
    """

    tasks: tuple[int, ...]
    shares: Floats
    above: Floats


def label_river(run: Run, superclass: str, options: Options) -> River:
    """Follow a superclass's test images from its arrival on."""
    arrival = stream_of(run, options.root).schedule.task_of[superclass]
    tasks = tuple(after for after in run.done if run.moment(after) >= arrival)
    if not tasks:
        raise DataError(f"{run.path} has not come to the task of {superclass!r}")
    given = (answers(run, after, options.root) for after in tasks)
    shares, above = zip(*(shares_of(one, superclass) for one in given), strict=True)
    return River(tasks, np.stack(shares, axis=1), np.array(above))


def kinds_of(predicted: Bools, targets: Bools, family: Bools, root: int, to_come: Bools) -> Bools:
    """Say which of KINDS each image's labels are: (len(KINDS), n), one kind per image.

    ``predicted`` and ``targets`` are (n, s); ``family`` (s,) marks the columns of the superclass,
    ``root``, and of what is below it; ``to_come`` (n,) the images whose subclass has not arrived.
    A label from elsewhere outweighs a wrong sibling, and that whatever is right.
    """
    wrong = predicted & ~targets
    elsewhere = wrong[:, ~family].any(axis=1)
    sibling = ~elsewhere & wrong.any(axis=1)
    clean = ~elsewhere & ~sibling
    above = predicted[:, root]
    below = np.delete(family, root)
    due, got = (np.delete(x, root, axis=1)[:, below] for x in (targets, targets & predicted))
    whole = due.any(axis=1) & (got == due).all(axis=1)
    nothing = ~predicted.any(axis=1)
    kinds = [
        clean & above & whole & ~to_come,
        clean & above & to_come,
        clean & above & ~whole & ~to_come,
        clean & ~above & ~nothing,
    ]
    return np.stack([*kinds, sibling, elsewhere, nothing])


def river(runs: Runs, options: Options) -> list[Drawing]:
    """Draw the label river of a superclass, a panel per method."""
    chosen = comparable_runs(runs)
    stream = stream_of(chosen[0][1], options.root)
    superclass = chosen_superclass(stream, options)
    found = [(group, label_river(run, superclass, options)) for group, run in chosen]
    columns = max(1, min(2 if len(found) < 5 else 3, int(options.width / 1.6)))
    names_below = legend_columns((*KINDS, ABOVE), options.width)[0]
    rest = 0.3 + legend_room((*KINDS, ABOVE), options.width)
    figure, grid = new_panels(options.width, len(found), columns, rest, 1.6)
    panels: list[Axes] = list(grid.flat)
    for axes, (group, one) in zip(panels, found, strict=False):
        _draw(axes, one, _arrivals(stream, superclass))
        axes.set_title(fill(group.title, 30), pad=points(12))
    panels[0].set_ylim(0, 1)
    panels[0].set_xlim(stream.schedule.task_of[superclass], max(1, len(stream) - 1))
    count_tasks(panels[0])
    label_outside(grid, "share of images")
    title = stream.hierarchy.title(superclass)
    figure.suptitle(f"test images of “{title}”", fontsize="medium")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=names_below, columnspacing=1.2)
    words = (
        f"How the test images of the superclass {title!r} are labelled after each task, "
        f"{runs.benchmark}, {chosen[0][1].which}. Dotted: so many of its subclasses arrive. An "
        "image with a label from elsewhere or a wrong sibling counts there, whatever else it has."
    )
    return [Drawing("river", words + note_of_absent(runs, chosen), figure)]


def chosen_superclass(stream: Stream, options: Options) -> str:
    """Return the superclass asked for, else that with the most subclasses, the earliest first."""
    tree = stream.hierarchy
    there = [name for name in stream.classes if tree.children(name)]
    if not there:
        raise DataError(f"{stream.name} has no superclasses")
    if options.superclass is None:
        return max(there, key=lambda name: int(tree.leaf_counts[tree.index(name)]))
    chosen = named_superclass(tree, options.superclass)
    if chosen not in there:
        raise DataError(f"the superclass {chosen!r} does not arrive in this class order")
    return chosen


def shares_of(given: Answers, superclass: str) -> tuple[Floats, float]:
    """Return the shares of a superclass's images of each kind, and of those given its label."""
    tree, classes = given.hierarchy, given.view.classes
    number, root = tree.index(superclass), classes.index(superclass)
    mine = tree.closure[given.view.leaf, number]
    seen = np.array([tree.index(name) for name in classes])
    to_come = ~np.isin(given.view.leaf[mine], seen)
    predicted, targets = given.predicted[mine], given.view.targets[mine]
    kinds = kinds_of(predicted, targets, tree.closure[seen, number], root, to_come)
    return kinds.mean(axis=1), float(predicted[:, root].mean())


def _arrivals(stream: Stream, superclass: str) -> dict[int, int]:
    """Return how many of the superclass's classes arrive in each task."""
    tree, number = stream.hierarchy, stream.hierarchy.index(superclass)
    return Counter(
        task
        for name, task in stream.schedule.task_of.items()
        if name != superclass and tree.closure[tree.index(name), number]
    )


def _draw(axes: "Axes", one: River, arrivals: Mapping[int, int]) -> None:
    tasks, shares, above = np.array(one.tasks, dtype=float), one.shares, one.above
    if len(tasks) == 1:
        # A single moment is a column, not a line.
        tasks = np.array([tasks[0] - 0.5, tasks[0]])
        shares, above = shares.repeat(2, axis=1), above.repeat(2)
    axes.stackplot(
        tasks, shares, labels=list(KINDS), colors=list(KINDS.values()), edgecolor="white", lw=0.4
    )
    axes.plot(tasks, above, color="black", label=ABOVE)
    axes.grid(visible=False)
    at_task = axes.get_xaxis_transform()
    for task, count in arrivals.items():
        axes.axvline(task, color="black", linewidth=points(0.6), linestyle=(0, (1, 2)))
        axes.text(
            task, 1.02, str(count), transform=at_task, ha="center", va="bottom", fontsize="small"
        )
