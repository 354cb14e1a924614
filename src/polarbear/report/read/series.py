"""What is shown over the tasks: a number of each run, and of a group its mean with an interval."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from polarbear.base.arrays import Floats
from polarbear.report.read.groups import (
    Group,
    Run,
    Runs,
    column_count,
    column_half_width,
    column_mean,
    column_std,
)
from polarbear.report.read.words import ENOUGH


class Course(NamedTuple):
    """A group's number after each task: mean, deviation, half of the 95 % interval, of n runs."""

    mean: Floats
    std: Floats
    half_width: Floats
    n: Floats

    @property
    def drawn(self) -> Floats:
        """Half of the interval where it is drawn: of runs enough for it, NaN elsewhere."""
        return np.where(self.n >= ENOUGH, self.half_width, np.nan)


@dataclass(frozen=True)
class Series:
    """A number that runs have after each task; called with a group, its course: (T,) each."""

    of_run: Callable[[Run], Floats]

    def __call__(self, group: Group) -> Course:
        """Return mean, deviation and interval over the runs that have it."""
        stack = np.stack([self.of_run(run) for run in group.runs])
        spread = column_std(stack), column_half_width(stack)
        return Course(column_mean(stack), *spread, column_count(stack))

    def known(self, run: Run) -> bool:
        """Whether a run has it after any task."""
        return not np.isnan(self.of_run(run)).all()


def average(score: str) -> Series:
    """Return a score over all images seen so far."""
    return Series(lambda run: run.scores[score] if score in run.scores else _none(run))


def _none(run: Run) -> Floats:
    return np.full(run.tasks, np.nan)


def course(task: int) -> Series:
    """Return R_jk of one task k over time."""
    return Series(lambda run: _r_jk(run)[:, task])


def _r_jk(run: Run) -> Floats:
    return run.by_task.get("pw_jaccard", np.full((run.tasks, run.tasks), np.nan))


#: R_jj: pw-JS on each task's images right after it.
own_images = Series(lambda run: np.diagonal(_r_jk(run)))


def having(runs: Runs, *shown: Series) -> Runs:
    """Return the runs that have any of what is shown: numbers and captions are of these alone.

    A group of which no run has any of it stays as it is.
    """
    groups = (
        replace(g, runs=tuple(r for r in g.runs if any(one.known(r) for one in shown)) or g.runs)
        for g in runs.groups
    )
    return replace(runs, groups=tuple(groups))


def most(group: Group, *shown: Series) -> tuple[int, ...]:
    """Return of how many runs a group's courses are, over the tasks at most: each number once."""
    counts = {int(one(group).n.max()) for one in shown} - {0}
    return tuple(sorted(counts)) or (group.count,)
