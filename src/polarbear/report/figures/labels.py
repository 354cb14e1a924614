"""Names beside what they name: at the ends of curves and beside points, none over another."""

from collections.abc import Sequence
from itertools import product
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from polarbear.report.figures.style import points

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

#: Inches of print that a line and a letter of the smallest type have.
LINE, LETTER = 0.125, 0.055
#: Left, low, right and high ends.
Box = tuple[float, float, float, float]
#: Inches of print around axes: what stands above and below them.
AROUND = 0.75


def name_ends(figure: "Figure", axes: "Axes", lines: "Sequence[Line2D]", letters: int = 24) -> None:
    """Write the name of each curve to the right of the axes, in its colour, beside its end."""
    names = [fill(str(line.get_label()).strip(), letters) for line in lines]
    ends = [_end(line) for line in lines]
    low, high = axes.get_ylim()
    inches = float(figure.get_size_inches()[1]) / points(1) - AROUND
    heights = [(name.count("\n") + 1) * LINE * (high - low) / inches for name in names]
    places = apart([y for _, y in ends], heights, low, high)
    for line, name, end, place in zip(lines, names, ends, places, strict=True):
        arrow = {"arrowstyle": "-", "color": line.get_color(), "linewidth": points(0.5)}
        axes.annotate(
            name,
            xy=end,
            xytext=(1.05, place),
            textcoords=axes.get_yaxis_transform(),
            color=line.get_color(),
            fontsize="small",
            va="center",
            linespacing=1.05,
            annotation_clip=False,
            arrowprops={**arrow, "shrinkA": 1, "shrinkB": points(2), "relpos": (0, 0.5)},
        )


def _end(line: "Line2D") -> tuple[float, float]:
    """Return the last point of a curve that is drawn; that of none is at the origin."""
    xy = np.asarray(line.get_xydata(), np.float64)
    there = xy[~np.isnan(xy[:, 1])]
    return (float(there[-1, 0]), float(there[-1, 1])) if len(there) else (0.0, 0.0)


def apart(
    wanted: Sequence[float], heights: Sequence[float], low: float, high: float
) -> list[float]:
    """Return places for things of these heights near those wanted, none over another, in limits.

    >>> apart([0.5, 0.5, 0.875], [0.25, 0.25, 0.25], 0, 1)
    [0.375, 0.625, 0.875]
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    # Blocks of things that touch: each has the sum of its heights and stands where its things
    # would on average; a block that reaches into the one below it becomes one with it.
    blocks: list[tuple[list[int], float, float]] = []
    for i in order:
        members, height, middle = [i], heights[i], wanted[i]
        middle = min(max(middle, low + height / 2), high - height / 2)
        while blocks and blocks[-1][2] + blocks[-1][1] / 2 > middle - height / 2:
            below, size, centre = blocks.pop()
            count = len(below) + len(members)
            middle = (centre * len(below) + middle * len(members)) / count
            members, height = below + members, height + size
            middle = max(min(middle, high - height / 2), low + height / 2)
        blocks.append((members, height, middle))
    places = [0.0] * len(wanted)
    for members, height, middle in blocks:
        at = middle - height / 2
        for i in members:
            places[i] = at + heights[i] / 2
            at += heights[i]
    return places


def name_points(
    axes: "Axes",
    xy: Sequence[tuple[float, float]],
    names: Sequence[str],
    colours: Sequence[str],
    inches: tuple[float, float],
    taken: Sequence[Box] = (),
) -> None:
    """Write a name beside each point, where it covers the fewest points and names before it.

    ``xy`` are in parts of the axes, 0 to 1, whose size in inches of print is about ``inches``;
    so are the boxes that are ``taken``: left, low, right, high.
    """
    at = np.array(xy, np.float64) * inches
    filled: list[Box] = [(x - 0.05, y - 0.05, x + 0.05, y + 0.05) for x, y in at]
    wide, high = inches
    filled += [(a * wide, b * high, c * wide, d * high) for a, b, c, d in taken]
    for (x, y), name, colour in zip(at, names, colours, strict=True):
        offered = [_beside(x, y, LETTER * len(name), LINE, *way) for way in WAYS]
        # Near, unless it covers more there than the eye would mind.
        box, (dx, dy), how = min(
            offered, key=lambda one: _cost(one[0], filled, inches) + 0.02 * max(map(abs, one[1]))
        )
        filled.append(box)
        far = max(abs(dx), abs(dy)) > FAR
        leash = {"arrowstyle": "-", "color": colour, "linewidth": points(0.5), "shrinkB": points(3)}
        axes.annotate(
            name,
            xy=(x / inches[0], y / inches[1]),
            xycoords="axes fraction",
            xytext=(points(72 * dx), points(72 * dy)),
            textcoords="offset points",
            color=colour,
            fontsize="small",
            annotation_clip=False,
            arrowprops={**leash, "shrinkA": 0} if far else None,
            **how,
        )


#: Inches off a point that its name may stand, and where: which side, how far up. The first that is
#: free is taken.
#: A name farther off has a line to its point.
FAR = 0.2
OFF = (0.07, 0.16, 0.28, 0.42, 0.56)
WAYS = tuple(
    (side, up, off) for off, up, side in product(OFF, (0, 1, -1), (1, -1, 0)) if side or up
)


def _beside(
    x: float, y: float, wide: float, high: float, side: int, up: int, off: float
) -> tuple[Box, tuple[float, float], dict[str, Any]]:
    """Return the box of a name beside a point, its offset in inches and how it is aligned."""
    dx, dy = side * off, up * off
    left = x + dx - (0 if side > 0 else wide if side < 0 else wide / 2)
    low = y + dy - (0 if up > 0 else high if up < 0 else high / 2)
    how = {
        "ha": {1: "left", -1: "right", 0: "center"}[side],
        "va": {1: "bottom", -1: "top", 0: "center"}[up],
    }
    return (left, low, left + wide, low + high), (dx, dy), how


def _cost(
    box: Box,
    taken: Sequence[Box],
    inches: tuple[float, float],
) -> float:
    """Return how many square inches a box covers of others, and what it has outside the axes."""
    covered = sum(
        max(0.0, min(box[2], one[2]) - max(box[0], one[0]))
        * max(0.0, min(box[3], one[3]) - max(box[1], one[1]))
        for one in taken
    )
    outside = sum(max(0.0, -box[i]) + max(0.0, box[i + 2] - inches[i]) for i in (0, 1))
    return covered + outside
