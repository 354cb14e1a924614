"""Which means of a row are marked as the best: where methods can be compared, and alone there.

Methods are compared where all of them have the same class orders and seeds, three orders at least.
The best mean is marked, and with it every method that a paired t-test over the orders cannot tell
from it (p >= 0.05): ties are shown as ties. Bounds, oracles and ratios over few cases never win.
"""

from collections.abc import Collection, Sequence

import numpy as np

from polarbear.base.arrays import Floats
from polarbear.methods.catalogue import is_bound
from polarbear.report.read.cases import cases
from polarbear.report.read.groups import Group
from polarbear.report.read.series import Series
from polarbear.report.read.words import ENOUGH
from polarbear.score.intervals import paired

RULE = (
    "Bold: the best mean and all that a paired t-test over the orders cannot tell from it "
    "(p ≥ 0.05); bounds (complete labels or every image kept) and oracles are not compared."
)
NO_RULE = (
    "Nothing is bold: methods are compared where all have the same orders and seeds, "
    f"{ENOUGH} orders at least."
)


def is_compared(group: Group) -> bool:
    """Whether a group may be the best: bounds and oracles may not."""
    return not is_bound(group.method) and not group.is_oracle


def best(
    groups: Sequence[Group],
    series: Series,
    task: int,
    *,
    lower: bool = False,
    without: Collection[int] = (),
) -> set[int]:
    """Return the places of the groups whose mean after a task is the best, or as good as that.

    None where they cannot be compared. ``without`` are places that cannot win; a group that has
    nothing there is no reason not to compare the others.
    """
    asked = [i for i, group in enumerate(groups) if is_compared(group) and i not in without]
    each = {i: _by_order_and_seed(groups[i], series, task) for i in asked}
    values = {i: found for i, found in each.items() if found}
    places = list(values)
    if len(places) < 2 or len({frozenset(one) for one in values.values()}) > 1:
        return set()
    by_order = {i: _by_order(one) for i, one in values.items()}
    if len(by_order[places[0]]) < ENOUGH:
        return set()
    sign = -1 if lower else 1
    top = max(places, key=lambda i: sign * float(by_order[i].mean()))
    return {i for i in places if i == top or not paired(by_order[top], by_order[i]).significant}


def weak(groups: Sequence[Group], score: str, task: int) -> list[int]:
    """Return the places of the groups whose ratio is of few cases, or of nobody knows how many."""
    found = [cases(group, score, task) for group in groups]
    return [i for i, of in enumerate(found) if of is not None and (of.few or not of.known)]


def _by_order_and_seed(
    group: Group, series: Series, task: int
) -> dict[tuple[int | None, int | None], list[float]]:
    """Return the values that there are; a run that has none is missing from its group."""
    found: dict[tuple[int | None, int | None], list[float]] = {}
    for run in group.runs:
        value = float(series.of_run(run)[task])
        if not np.isnan(value):
            found.setdefault((run.order, run.seed), []).append(value)
    return found


def _by_order(values: dict[tuple[int | None, int | None], list[float]]) -> Floats:
    """Return the mean of each order over its seeds: seeds of one order share what makes it easy."""
    found: dict[int, list[float]] = {}
    for (order, _), each in values.items():
        if order is not None:
            found.setdefault(order, []).extend(each)
    return np.array([np.mean(each) for _, each in sorted(found.items())])
