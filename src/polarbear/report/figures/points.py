"""A point per method: the whole against the details, and the score against what is kept for it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from polarbear.base.errors import DataError
from polarbear.report.figures import curves, style
from polarbear.report.figures.labels import LETTER, LINE, Box, name_points
from polarbear.report.figures.style import Drawing, points
from polarbear.report.options import Options
from polarbear.report.palette import looks
from polarbear.report.read.groups import Group, Runs
from polarbear.report.read.series import average
from polarbear.report.read.words import caption_at_last, of_n, over_runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COARSE, FINE = "pw_jaccard/superclass", "pw_jaccard/subclass"
GUIDE = "#888888"
#: Bytes of the units of an axis.
UNITS = {"B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12}


def levels(runs: Runs, options: Options) -> list[Drawing]:
    """Draw pw-JS among superclasses against that among subclasses after the last task."""
    last = runs.last
    groups = [found for group in runs.at_last if (found := _with_both(group, last)).runs]
    if not groups:
        raise DataError("no run has scores of superclasses and of subclasses")
    spreads = [_spread(group, score, last) for group in groups for score in (COARSE, FINE)]
    means = [float(g.mean(score)[last]) for g in groups for score in (COARSE, FINE)]
    top = curves.highest(max(mean + more for mean, more in zip(means, spreads, strict=True)))
    size = options.width, min(3.6, 0.85 * options.width)
    axes = _axes(size, "pw-JS among subclasses", "pw-JS among superclasses")
    axes.set(xlim=(0, top), ylim=(0, top))
    axes.plot([0, top], [0, top], color=GUIDE, linewidth=points(0.6), linestyle=":", zorder=1)
    corner: Any = {"fontsize": "small", "fontstyle": "italic", "color": GUIDE}
    corner |= {"transform": axes.transAxes}
    axes.text(0.02, 0.98, "the whole without the details", ha="left", va="top", **corner)
    axes.text(0.98, 0.02, "the details without the whole", ha="right", va="bottom", **corner)
    for group in groups:
        run_by_run = [
            (average(FINE).of_run(run)[last], average(COARSE).of_run(run)[last])
            for run in group.runs
        ]
        _point(axes, runs, group, (FINE, COARSE), last, run_by_run)
    ends = [(float(g.mean(FINE)[last]) / top, float(g.mean(COARSE)[last]) / top) for g in groups]
    wide, high = 29 * LETTER / size[0] + 0.1, LINE / size[1] + 0.05
    taken = [(0.0, 1 - high, wide, 1.0), (1 - wide, 0.0, 1.0, high)]
    for group, (x, y) in zip(groups, ends, strict=True):
        across, up = (_spread(group, score, last) / top for score in (FINE, COARSE))
        taken += [(x - across, y - 0.01, x + across, y + 0.01)]
        taken += [(x - 0.01, y - up, x + 0.01, y + up)]
    _name(axes, runs, groups, ends, size, taken)
    what = f"pw-JS among superclasses against that among subclasses after task {last}"
    words = caption_at_last(runs, what, groups)
    words += " Small dots: single runs. Dotted: as good at both."
    return [Drawing("levels", words, axes.get_figure(root=True))]  # type: ignore[arg-type]


def _with_both(group: Group, last: int) -> Group:
    """Return the runs of a group that have a score of both levels: a point is a mean of pairs."""
    coarse, fine = average(COARSE).of_run, average(FINE).of_run
    runs = (run for run in group.runs if not np.isnan(coarse(run)[last] + fine(run)[last]))
    return replace(group, runs=tuple(runs))


def bytes_kept(runs: Runs, options: Options) -> list[Drawing]:
    """Draw the score after the last task against the bytes kept from one task to the next."""
    last = runs.last
    groups = [
        group
        for group in runs.at_last
        if not np.isnan(group.cost("kept") + group.mean("pw_jaccard")[last])
    ]
    if not groups:
        raise DataError("no run says how many bytes it keeps: runs of earlier versions do not")
    kept = [group.cost("kept") for group in groups]
    some = [value for value in kept if value > 0] or [1.0]
    # Nothing has no place on an axis of powers of ten: it stands one power before all others.
    nothing = 10 ** np.floor(np.log10(min(some)) - 0.5)
    places = [value or nothing for value in kept]
    tops = [float(g.mean("pw_jaccard")[last]) + _spread(g, "pw_jaccard", last) for g in groups]
    top, low, high = curves.highest(max(tops)), nothing / 2, 4 * max(*some, nothing)
    size = options.width, min(3.2, 0.8 * options.width)
    axes = _axes(size, "kept from task to task, beside the network", f"pw-JS after task {last}")
    axes.set(xscale="log", xlim=(low, high), ylim=(0, top))
    ticks = [10.0**power for power in range(0, 16) if low < 10.0**power < high]
    shown = {tick: _bytes(tick) for tick in ticks} | ({nothing: "0"} if 0 in kept else {})
    axes.set_xticks(list(shown), list(shown.values()))
    axes.tick_params(axis="x", which="minor", bottom=False)
    for group, place in zip(groups, places, strict=True):
        mean, look = float(group.mean("pw_jaccard")[last]), looks(runs.groups)[group.name]
        more = _spread(group, "pw_jaccard", last)
        axes.errorbar(
            place, mean, yerr=more or None, color=look.colour, marker=look.marker,
            markersize=points(5), capsize=points(2), linestyle="none",
        )  # fmt: skip
    across = np.log(np.array(places) / low) / np.log(high / low)
    heights = [float(group.mean("pw_jaccard")[last]) / top for group in groups]
    also = _of_fewer(groups)
    _name(axes, runs, groups, list(zip(across.tolist(), heights, strict=True)), size, also=also)
    there = {group.name for group in groups}
    without = [group.title for group in runs.compared if group.name not in there]
    rest = f" Without {', '.join(without)}: not known." if without else ""
    what = f"pw-JS after task {last} against the bytes kept from task to task"
    return [Drawing("bytes-kept", caption_at_last(runs, what) + rest, axes.get_figure(root=True))]  # type: ignore[arg-type]


def _of_fewer(groups: Sequence[Group]) -> str:
    """Say whose bytes are known of fewer runs than their scores."""
    known = ((group, group.cost_count("kept")) for group in groups)
    fewer = [f"{group.title} ({of_n(n)})" for group, n in known if n < group.count]
    return f"; bytes of {', '.join(fewer)}" if fewer else ""


def _axes(size: tuple[float, float], x: str, y: str) -> "Axes":
    axes = style.new_figure(*size).add_subplot()
    axes.set(xlabel=x, ylabel=y)
    return axes


def _spread(group: Group, score: str, last: int) -> float:
    """Return half of a mean's interval where it is drawn, 0 where it is not."""
    return float(np.nan_to_num(average(score)(group).drawn[last]))


def _point(
    axes: "Axes",
    runs: Runs,
    group: Group,
    scores: tuple[str, str],
    last: int,
    single: Sequence[tuple[float, float]],
) -> None:
    look = looks(runs.groups)[group.name]
    x, y = (float(group.mean(score)[last]) for score in scores)
    wide, high = (_spread(group, score, last) or None for score in scores)
    if group.count > 1:
        xs, ys = zip(*single, strict=True)
        axes.scatter(xs, ys, s=points(1.8) ** 2, color=look.colour, alpha=0.45)
    axes.errorbar(
        x, y, xerr=wide, yerr=high, color=look.colour, marker=look.marker, markersize=points(5),
        linewidth=points(0.8), linestyle="none", clip_on=False, zorder=3,
    )  # fmt: skip


def _name(
    axes: "Axes",
    runs: Runs,
    groups: Sequence[Group],
    at: Sequence[tuple[float, float]],
    size: tuple[float, float],
    taken: Sequence[Box] = (),
    also: str = "",
) -> None:
    """Name the points, and say above them what they are means of."""
    label, look = curves.labels(groups), looks(runs.groups)
    names, colours = [label(g).strip() for g in groups], [look[g.name].colour for g in groups]
    name_points(axes, at, names, colours, (size[0] - 0.6, size[1] - 0.75), taken)
    curves.note(axes, over_runs(curves.counts(groups)) + also, size[0])


def _bytes(number: float) -> str:
    """Return a power of ten in bytes.

    >>> _bytes(1e4), _bytes(1e6)
    ('10 kB', '1 MB')
    """
    unit = max((u for u in UNITS if UNITS[u] <= number), key=lambda u: UNITS[u])
    return f"{number / UNITS[unit]:.0f} {unit}"
