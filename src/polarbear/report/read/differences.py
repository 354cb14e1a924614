"""Two groups of runs, or a group and the paper's numbers, held against each other."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from polarbear.report.read.groups import Group, Run
from polarbear.report.read.paper import Published
from polarbear.score.intervals import Difference, Sample, difference, paired, welch

#: What is compared of a run, such as its R_j after some task; NaN where it has none.
Value = Callable[[Run], float]

#: The paper prints means with two digits: what it measured may lie so far from what it prints.
PAPERS_ROUNDING = 0.005


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


def beside_paper(group: Group, paper: Published, task: int) -> Beside:
    """Compare a group's R_j after a task with the paper's; its rounding widens the interval."""
    ours = Sample.of([float(run.scores["pw_jaccard"][task]) for run in group.runs])
    theirs = Sample(float(paper.mean[task]), float(paper.std[task]), paper.runs)
    found = welch(ours, theirs)
    # No p: the means as they are printed are not those that were measured.
    wider = replace(found, half_width=found.half_width + PAPERS_ROUNDING, p=math.nan)
    return Beside(ours.mean, theirs.mean, wider)


def _of_order(group: Group, order: int, value: Value) -> float:
    return Sample.of([value(run) for run in group.runs if run.order == order]).mean
