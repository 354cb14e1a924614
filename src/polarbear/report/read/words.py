"""What captions say of the runs behind numbers: how many, which class orders and seeds."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from polarbear.base.errors import counted
from polarbear.report.read.groups import Group, Runs

#: Runs from which on an interval is drawn, and a mark is given: with two it is wider than the axes.
ENOUGH = 3


def spans(numbers: Iterable[int]) -> str:
    """Return whole numbers in few words, a dash for none.

    >>> spans([0, 1, 2, 5, 7, 8]), spans([100]), spans([])
    ('0–2, 5, 7, 8', '100', '–')
    """
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][-1] + 1:
            parts[-1].append(number)
        else:
            parts.append([number])
    words = (f"{p[0]}–{p[-1]}" if len(p) > 2 else ", ".join(map(str, p)) for p in parts)
    return ", ".join(words) or "–"


def which_runs(groups: Sequence[Group]) -> str:
    """Say which class orders and seeds groups have, together where they are the same."""
    having: dict[str, list[str]] = {}
    for group in groups:
        orders, seeds = group.orders, group.seeds
        words = f"order{'s' * (len(orders) > 1)} {spans(orders)}"
        words += f", seed{'s' * (len(seeds) > 1)} {spans(seeds)}"
        having.setdefault(words, []).append(group.title)
    if len(having) == 1:
        return next(iter(having))
    return "; ".join(f"{', '.join(names)}: {words}" for words, names in having.items())


def of_n(*counts: int) -> str:
    """Return a number of runs, in one piece wherever lines are broken; of several, their span."""
    low, high = min(counts), max(counts)
    words = f"n = {low}" if low == high else f"n = {low}–{high}"
    return words.replace(" ", "\N{NO-BREAK SPACE}")


def of_fewer(n: int, count: int) -> str:
    """Say of how many runs a number is, where a group has more.

    >>> of_fewer(2, 3), of_fewer(3, 3), of_fewer(0, 3)
    (' (n = 2)', '', '')
    """
    return f" (n = {n})" if 0 < n < count else ""


def over_runs(numbers: Sequence[int]) -> str:
    """Say in a few words what is drawn of how many runs, for a figure's corner."""
    counts = set(numbers)
    if counts == {1}:
        return "one run each" if len(numbers) > 1 else "one run"
    if max(counts) < ENOUGH:
        return "means" if len(counts) > 1 else f"means, {of_n(max(counts))}"
    if len(counts) > 1:
        return f"mean, 95 % interval where n ≥ {ENOUGH}"
    return f"mean and 95 % interval, {of_n(max(counts))}"


def caption(runs: Runs, what: str) -> str:
    """Say what is shown, of what, over which runs."""
    counts = sorted({group.count for group in runs.groups})
    number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    over = "one run per method" if counts == [1] else f"mean ± 95 % interval over n = {number} runs"
    behind = sum(run.done[-1] < runs.tasks - 1 for group in runs.groups for run in group.runs)
    # Not "unfinished": a run may have been asked for fewer tasks.
    rest = f"; fewer than all tasks in {behind} of {counted(runs.count, 'run')}" if behind else ""
    which = which_runs(runs.groups)
    return f"{what}, {runs.benchmark}, {runs.split} images; {over} ({which}){rest}."


def caption_at_last(runs: Runs, what: str, groups: Sequence[Group] | None = None) -> str:
    """Say the same of what is shown after the last task, of the runs that have scores there."""
    there = replace(runs, groups=runs.at_last if groups is None else tuple(groups))
    absent = runs.count - there.count
    rest = f" Left out: {counted(absent, 'run')} without scores there." if absent else ""
    return caption(there, what) + rest
