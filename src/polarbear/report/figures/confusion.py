"""Which labels are given to the images of which class, beside what would be right."""

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from polarbear.base.arrays import Bools, Floats
from polarbear.base.names import file_name
from polarbear.report.figures.style import CRISP, Drawing, new_figure, points, show_pixels
from polarbear.report.options import Options, chosen_moments
from polarbear.report.read.answers import Answers, answers, comparable_runs, note_of_absent
from polarbear.report.read.groups import Group, Run, Runs
from polarbear.score.metrics import confusion_rates

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

#: From white, so that what is never said stays empty.
SHADES = ("#ffffff", "#9ecae1", "#3182bd", "#08306b")
TRUTH = "ground truth"
#: Inches a label in full has, and a letter of its name.
STEP, LETTER = 0.115, 0.055
#: Inches that all matrices of the overview have down a printed page.
DOWN = 8.4
#: Matrices that have all their pixels, together 63 MB: ten methods and the truth after five tasks.
MATRICES = 55
CARRIED, GIVEN = "a label the images carry", "label given"
READING = (
    "Of the images that carry a label (row), the share that is given each label (column), test "
    "images; labels in their order of arrival."
)


def confusion_shares(predicted: Bools, targets: Bools) -> Floats:
    """Return the share of the images that carry a class (row) which are given another (column).

    Both are (n, s); a class without images has a row of NaN: (s, s).

    >>> predicted = np.array([[1, 0], [1, 1]], dtype=bool)
    >>> targets = np.array([[1, 0], [1, 1]], dtype=bool)
    >>> confusion_shares(predicted, targets).tolist()
    [[1.0, 0.5], [1.0, 1.0]]
    """
    shares = confusion_rates(predicted, targets)
    shares[~targets.any(axis=0)] = np.nan
    return shares


def confusion(runs: Runs, options: Options) -> list[Drawing]:
    """Draw confusion matrices: a row per method, the truth first, and a column per moment."""
    chosen = comparable_runs(runs)
    moments = chosen_moments(options, {j for _, run in chosen for j in run.done})
    rows, columns = len(chosen) + 1, len(moments)
    around = 1.0
    side = min((options.width - around) / columns, DOWN / rows)
    figure = new_figure(options.width, 0.6 + side * rows)
    grid = figure.subplots(rows, columns, squeeze=False)
    # Many matrices are small on the page, and need fewer pixels each.
    crisp = int(CRISP * min(1, (MATRICES / (rows * columns)) ** 0.5))
    for column, after in enumerate(moments):
        top = grid[0, column]
        # Where all of it does not fit above a matrix, the axis below says the rest.
        top.set_title(f"after task {after}" if side > 0.8 else str(after), fontsize="small")
        for axes, (_, run) in zip(grid[1:, column], chosen, strict=True):
            if after not in run.done:
                axes.set(xticks=[], yticks=[], facecolor="#f4f4f4")
                axes.spines[:].set_visible(False)
                continue
            given = answers(run, after, options.root)
            truth = given.view.targets
            _matrix(axes, confusion_shares(given.predicted, truth), crisp)
            if not top.images:
                _matrix(top, confusion_shares(truth, truth), crisp)
    for axes, name in zip(grid[:, 0], [TRUTH, *(g.title for g, _ in chosen)], strict=True):
        letters = max(8, int(side / LETTER))
        axes.set_ylabel(textwrap.fill(name, letters, break_long_words=False), fontsize="small")
    _colour_bar(figure, list(grid.flat))
    wide = side > 0.8
    figure.supylabel(CARRIED + ", downwards" * wide, fontsize="small")
    figure.supxlabel(GIVEN + ", to the right" * wide, fontsize="small")
    if not wide:
        figure.suptitle("after task", fontsize="small")
    words = f"Confusion matrices, {runs.benchmark}, {chosen[0][1].which}. {READING}"
    return [Drawing("confusion", words + note_of_absent(runs, chosen), figure)]


def confusion_full(runs: Runs, options: Options, only: Sequence[str] = ()) -> list[Drawing]:
    """Draw each method's matrix in full, the truth beside it, with labels.

    After each task that is asked for, else after the last one. ``only`` names the groups.
    """
    chosen = comparable_runs(runs)
    moments = chosen_moments(options, {j for _, run in chosen for j in run.done})
    drawings = []
    for group, run in chosen:
        if not only or group.name in only:
            there = [after for after in moments if after in run.done]
            asked = there if options.tasks else there[-1:]
            drawings += [_in_full(group, run, after, options) for after in asked]
    return drawings


def _in_full(group: Group, run: Run, after: int, options: Options) -> Drawing:
    """Draw one moment in full: the truth and the method's, every label named."""
    given = answers(run, after, options.root)
    truth = given.view.targets
    figure, panels, bar = _two_squares(given)
    for axes, predicted, name in zip(
        panels, (truth, given.predicted), (TRUTH, group.title), strict=True
    ):
        _matrix(axes, confusion_shares(predicted, truth))
        _name_labels(axes, given)
        axes.set_title(f"{name}, after task {after}")
        axes.set_xlabel(GIVEN)
    panels[0].set_ylabel(CARRIED)
    _colour_bar(figure, panels, bar)
    words = f"Confusion matrix of {group.title} after task {after}, {run.benchmark}, {run.which}."
    name = f"confusion-{file_name(group.name)}" + (f"-after-{after}" if options.tasks else "")
    return Drawing(name, f"{words} {READING}", figure)


def _two_squares(given: Answers) -> "tuple[Figure, list[Axes], Axes]":
    """Return two square axes with room for the labels, and a narrow one for the scale.

    Placed by hand: to measure hundreds of labels takes longer than to draw them. Every label is
    named, so that the figure is as large as that asks for, whatever it is for.
    """
    names = [given.hierarchy.title(name) for name in given.view.classes]
    side = max(2.2, STEP * len(names))
    room = 0.35 + LETTER * max(map(len, names))
    width, height = 2 * (side + room) + 0.75, side + room + 0.3
    figure = new_figure(width, height, placed=True)

    def place(x: float, across: float, high: float) -> "Axes":
        bottom = room + (side - high) / 2
        return figure.add_axes((x / width, bottom / height, across / width, high / height))

    panels = [place(room, side, side), place(2 * room + side, side, side)]
    outside = -(room - 0.12) / side
    for axes in panels:
        axes.xaxis.set_label_coords(0.5, outside)
        axes.yaxis.set_label_coords(outside, 0.5)
    return figure, panels, place(2 * (room + side) + 0.12, 0.09, min(side, 3.0))


def shades() -> "Colormap":
    """Return the colours of shares and scores, from 0, which is white, to 1."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("shares", SHADES)


def _matrix(axes: "Axes", shares: Floats, crisp: int = CRISP) -> None:
    # Coloured at once: four bytes a pixel are kept until all is drawn, not twelve.
    show_pixels(axes, shades()(shares, bytes=True), crisp)
    axes.set(xticks=[], yticks=[], facecolor="#eeeeee")
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set(visible=True, color="#888888")


def _name_labels(axes: "Axes", given: Answers) -> None:
    """Name rows and columns; superclasses bold, a thin line where a task begins."""
    classes = given.view.classes
    for place, name in enumerate(classes):
        weight = "bold" if given.hierarchy.children(name) else "normal"
        style: dict[str, Any] = {"fontsize": "small", "fontweight": weight, "clip_on": False}
        text = given.hierarchy.title(name)
        axes.text(-0.8, place, text, ha="right", va="center", **style)
        below = len(classes) - 0.2
        axes.text(place, below, text, ha="center", va="top", rotation=90, **style)
    begins = np.cumsum([len(task) for task in given.stream.schedule.tasks])
    for begin in begins[begins < len(classes)]:
        axes.axhline(begin - 0.5, color="#bbbbbb", linewidth=points(0.4))
        axes.axvline(begin - 0.5, color="#bbbbbb", linewidth=points(0.4))


def _colour_bar(figure: "Figure", panels: list["Axes"], bar: "Axes | None" = None) -> None:
    from matplotlib.cm import ScalarMappable

    beside: dict[str, Any] = {"ax": panels, "shrink": 0.5, "aspect": 30, "pad": 0.01}
    where = beside if bar is None else {"cax": bar}
    scale = figure.colorbar(ScalarMappable(cmap=shades()), **where)
    scale.set_label("share of the images")
    scale.outline.set_visible(False)
