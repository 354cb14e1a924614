"""Two groups of runs held against each other."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from polarbear.report.read.groups import Group, Run
from polarbear.score.intervals import Difference, Sample, difference, paired

#: What is compared of a run, such as its R_j after some task; NaN where it has none.
Value = Callable[[Run], float]


@dataclass(frozen=True)
class Beside:
    """Two means and the first less the second; where they are paired, the means are the pairs'."""

    a: float
    b: float
    difference: Difference


def shared_orders(a: Group, b: Group) -> tuple[int, ...]:
    """Return the class orders by which two groups are paired: those both have, if there are two."""
    known = [{run.order for run in group.runs if run.order is not None} for group in (a, b)]
    both = known[0] & known[1]
    return tuple(sorted(both)) if len(both) > 1 else ()


def between(a: Group, b: Group, value: Value) -> Beside:
    """Compare two groups: order by order where they share class orders, else run against run.

    Of several seeds of an order, their mean counts: what is drawn anew is the order.
    """
    orders = shared_orders(a, b)
    if not orders:
        ours, theirs = ([value(run) for run in group.runs] for group in (a, b))
        return Beside(Sample.of(ours).mean, Sample.of(theirs).mean, difference(ours, theirs))
    means = ([_of_order(group, order, value) for order in orders] for group in (a, b))
    pairs = [(x, y) for x, y in zip(*means, strict=True) if x == x and y == y]  # NaN is not itself
    ours, theirs = [x for x, _ in pairs], [y for _, y in pairs]
    return Beside(Sample.of(ours).mean, Sample.of(theirs).mean, paired(ours, theirs))


def r_after(run: Run, task: int) -> float:
    """Return a run's R_j after a task, NaN where it has not come so far."""
    return float(run.scores["pw_jaccard"][task])


def mean_r(run: Run, tasks: Sequence[int]) -> float:
    """Return the mean of R_j over tasks, NaN for a run that has not come through all of them."""
    return float(np.mean(run.scores["pw_jaccard"][list(tasks)])) if tasks else math.nan


def _of_order(group: Group, order: int, value: Value) -> float:
    return Sample.of([value(run) for run in group.runs if run.order == order]).mean
