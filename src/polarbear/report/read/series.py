"""What is shown over the tasks: a number of each run, and of a group its mean with an interval."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from polarbear.base.arrays import Floats
from polarbear.report.read.groups import (
    Group,
    Run,
    column_half_width,
    column_mean,
    column_std,
)


class Course(NamedTuple):
    """A group's number after each task: mean, standard deviation, half of the 95 % interval."""

    mean: Floats
    std: Floats
    half_width: Floats


@dataclass(frozen=True)
class Series:
    """A number that runs have after each task; called with a group, its course: (T,) each."""

    of_run: Callable[[Run], Floats]

    def __call__(self, group: Group) -> Course:
        """Return mean, deviation and interval over the runs that have it."""
        stack = np.stack([self.of_run(run) for run in group.runs])
        return Course(column_mean(stack), column_std(stack), column_half_width(stack))


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
