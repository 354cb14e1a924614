"""Test images with the labels that methods give them over time."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from polarbear.base.arrays import Ints
from polarbear.base.errors import DataError
from polarbear.base.names import file_name
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.stream import Stream
from polarbear.report.figures.style import (
    MISSING,
    RIGHT,
    WRONG,
    Drawing,
    new_figure,
    points,
    show_pixels,
)
from polarbear.report.options import Options, chosen_moments, chosen_pair
from polarbear.report.read.answers import Answers, answers, comparable_runs, stream_of
from polarbear.report.read.groups import Group, Run, Runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

IMAGES = 6
#: Inches across: image and truth, a method's name, a moment; and down: a line, a label, the head.
TRUTH, NAME, CELL = 1.55, 0.72, 0.93
LINE, STEP, HEAD = 0.58, 0.13, 0.42
#: Letters of a name; a column has no room for more.
LONGEST = 13
#: Pixels across that an image has at least, however large it is: twice those it is printed with.
LARGEST = 1024
#: Inches of white around.
EDGE = 0.04
#: Labels shown of one image at one moment; the rest is counted.
SHOWN = 4
#: The marks of labels: what they mean, as it stands above the columns, and their colours.
MARKS = {"✓": ("right", RIGHT), "✗": ("wrong", WRONG), "–": ("not given", MISSING)}


def labels_of(given: Answers, row: int) -> list[tuple[str, str]] | None:
    """Return what is said of the test image in a row of the file; None before its first class.

    Each class comes with its mark, in their order and then in that of arrival.
    """
    place = int(np.searchsorted(given.view.rows, row))
    if place == len(given.view) or given.view.rows[place] != row:
        return None
    predicted, true = given.predicted[place], given.view.label_table[given.view.leaf[place]]
    marked = (predicted & true, predicted & ~true, true & ~predicted)
    return [
        (mark, given.view.classes[column])
        for mark, columns in zip(MARKS, marked, strict=True)
        for column in np.flatnonzero(columns)
    ]


def chosen_rows(stream: Stream, count: int = IMAGES) -> Ints:
    """Return the first test image of leaves spread evenly over their arrival: nobody picks them."""
    leaves = [name for name in stream.classes if not stream.hierarchy.children(name)]
    places = np.unique(np.linspace(0, len(leaves) - 1, min(count, len(leaves))).round().astype(int))
    numbers = [stream.hierarchy.index(leaves[place]) for place in places]
    first = [np.flatnonzero(stream.test_leaf == number)[:1] for number in numbers]
    return np.concatenate(first)


def gallery(runs: Runs, options: Options, only: Sequence[str] = ()) -> list[Drawing]:
    """Draw test images with the labels each method gives them over time, a figure per method.

    ``only`` names the groups to draw (default: all).
    """
    return [
        Drawing(
            f"gallery-{file_name(group.name)}",
            f"Test images and the labels {group.title} gives them over time, {_about(run)}",
            _draw([(group, run)], options),
        )
        for group, run in comparable_runs(runs)
        if not only or group.name in only
    ]


def side_by_side(runs: Runs, options: Options) -> list[Drawing]:
    """Draw two methods' labels of the same images."""
    chosen = {group.name: (group, run) for group, run in comparable_runs(runs)}
    for name in options.compare:
        if name not in chosen:
            raise DataError(f"{name} has no predictions for the class order of the others")
    pair = chosen_pair(options, [group for group, _ in chosen.values()])
    if len(pair) < 2:
        raise DataError("it needs two methods with predictions for the same class order")
    both = [chosen[group.name] for group in pair]
    names = " and ".join(group.title for group in pair)
    words = f"{names} on the same test images, {_about(both[0][1])}"
    return [Drawing("side-by-side", words, _draw(both, options))]


def _draw(chosen: Sequence[tuple[Group, Run]], options: Options) -> "Figure":
    """Draw a line per image and method, a column per moment, all in one pair of axes, in inches."""
    stream = stream_of(chosen[0][1], options.root)
    rows = chosen_rows(stream)
    done = {j for _, run in chosen for j in run.done}
    there = chosen_moments(options, done) if options.tasks else sorted(done)
    left = TRUTH + (NAME if len(chosen) > 1 else 0)
    most = max(1, int((options.width - left - 2 * EDGE) / CELL))
    moments = spread_out(there, most)
    width, height = options.width - 2 * EDGE, LINE * len(rows) * len(chosen)
    cell = (width - left) / len(moments)
    figure = new_figure(width + 2 * EDGE, HEAD + height + 2 * EDGE, placed=True)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    for i, row in enumerate(rows):
        _show(axes, LINE * i * len(chosen), [group for group, _ in chosen], stream, int(row), width)
    for column, after in enumerate(moments):
        at = left + cell * column
        axes.text(at, -0.08, f"after task {after}", fontsize="small", fontweight="bold")
        for number, (_, run) in enumerate(chosen):
            if after not in run.done:
                continue
            given = answers(run, after, options.root)
            for i, row in enumerate(rows):
                said, top = labels_of(given, int(row)), LINE * (i * len(chosen) + number)
                _write(axes, at, top, said, given.hierarchy)
    axes.text(0, -0.08, "carries (from task)", fontsize="small", fontweight="bold")
    for place, (mark, (meaning, colour)) in enumerate(MARKS.items()):
        words = f"{mark} {meaning}"
        axes.text(0.72 * place, -0.28, words, fontsize="small", color=colour)
    axes.set(xlim=(-EDGE, width + EDGE), ylim=(height + EDGE, -HEAD - EDGE), aspect="auto")
    return figure


def spread_out(moments: Sequence[int], most: int) -> list[int]:
    """Return at most so many moments, evenly spaced, with the first and the last; the last of one.

    >>> spread_out([0, 1, 2, 3, 4], 3), spread_out([0, 1, 2], 1)
    ([0, 2, 4], [2])
    """
    places = np.linspace(len(moments) - 1, 0, min(most, len(moments))).round().astype(int)
    return [moments[place] for place in reversed(places.tolist())]


def _show(
    axes: "Axes", top: float, groups: Sequence[Group], stream: Stream, row: int, width: float
) -> None:
    """Put an image with its true labels to the left, and the methods' names where two are shown."""
    tree, arrival = stream.hierarchy, stream.schedule.task_of
    size, middle = LINE * 0.88, top + LINE * len(groups) / 2
    side = (0.0, size, middle + size / 2, middle - size / 2)
    image = np.asarray(stream.images("test")[[row]][0])
    every = max(1, max(image.shape) // LARGEST)
    show_pixels(axes, image[::every, ::every], extent=side)
    true = tree.labels_of(tree.names[stream.test_leaf[row]])
    words = "\n".join(f"{_short(tree, n, 12)} ({arrival[n]})" for n in true if n in arrival)
    axes.text(LINE, middle, words, fontsize="small", va="center", linespacing=1.3)
    axes.plot([0, width], [top, top], color="#999999", linewidth=points(0.7))
    for number, group in enumerate(groups if len(groups) > 1 else ()):
        y = top + LINE * number
        name = textwrap.fill(group.title, 11)
        axes.text(TRUTH, y + LINE / 2, name, fontsize="small", fontweight="bold", va="center")
        if number:
            axes.plot([TRUTH, width], [y, y], color="#dddddd", linewidth=points(0.5))


def _write(
    axes: "Axes", x: float, top: float, said: list[tuple[str, str]] | None, tree: Hierarchy
) -> None:
    """Write an image's labels one below the other: right, wrong, missing."""
    if said is None:
        axes.text(x, top + LINE / 2, "not yet", fontsize="small", va="center", color="#aaaaaa")
        return
    words = [(f"{mark} {_short(tree, name)}", MARKS[mark][1]) for mark, name in said]
    if len(words) > SHOWN:
        words = [*words[: SHOWN - 1], (f"   and {len(words) - SHOWN + 1} more", MISSING)]
    first = top + LINE / 2 - STEP * (len(words) - 1) / 2
    for i, (text, colour) in enumerate(words):
        axes.text(x, first + STEP * i, text, fontsize="small", va="center", color=colour)


def _short(tree: Hierarchy, name: str, longest: int = LONGEST) -> str:
    title = tree.title(name)
    return title if len(title) <= longest else title[: longest - 1] + "…"


def _about(run: Run) -> str:
    return (
        f"{run.benchmark}, {run.which}. ✓ right, ✗ wrong, – a label it "
        "carries that is not given; in brackets the task in which a label arrives. The images "
        "are the first of classes spread over their arrival, not picked."
    )
