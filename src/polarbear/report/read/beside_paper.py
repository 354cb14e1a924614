"""A group of runs held against the paper's numbers: task by task, over all tasks, and a verdict."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from polarbear.report.read.differences import Beside, mean_r, r_after
from polarbear.report.read.groups import Group
from polarbear.report.read.paper import Published
from polarbear.score.intervals import CONFIDENCE, Difference, Sample, welch

#: The paper prints means with two digits: what it measured may lie so far from what it prints.
PAPERS_ROUNDING = 0.005

Verdict = Literal["differs", "within chance"]


@dataclass(frozen=True)
class BesidePaper:
    """A group and the paper after each task that both have, and their means over these tasks."""

    tasks: Mapping[int, Beside]
    over_all: Beside

    @property
    def told(self) -> int:
        """How many tasks have an interval."""
        return sum(not math.isnan(one.difference.half_width) for one in self.tasks.values())

    @property
    def apart(self) -> int:
        """How many of these have it on one side of zero."""
        return sum(one.difference.significant for one in self.tasks.values())

    @property
    def verdict(self) -> Verdict | None:
        """Whether more lies between the two than chance puts there; None without intervals.

        They differ if zero is outside of the interval over all tasks, or outside of more tasks'
        intervals than it would be once in twenty times, were the tasks independent. Few runs
        have wide intervals, within which much lies.
        """
        if not self.told:
            return None
        many = at_least(self.apart, self.told) < 1 - CONFIDENCE
        return "differs" if many or self.over_all.difference.significant else "within chance"


def beside_paper(group: Group, paper: Published) -> BesidePaper:
    """Compare a group's R_j with the paper's, which has means and deviations over its runs."""
    both = np.flatnonzero(np.asarray(group.counts()) * ~np.isnan(paper.mean)).tolist()
    return BesidePaper({task: after_task(group, paper, task) for task in both}, over(group, paper))


def after_task(group: Group, paper: Published, task: int) -> Beside:
    """Compare R_j after one task; the paper's rounding widens the interval."""
    ours = Sample.of([r_after(run, task) for run in group.runs])
    theirs = Sample(float(paper.mean[task]), float(paper.std[task]), paper.runs)
    return _rounded(ours, theirs, PAPERS_ROUNDING)


def over(group: Group, paper: Published) -> Beside:
    """Compare the means of R_j over the tasks that both have.

    How far the paper's runs vary in this mean is not printed. It is at most the mean of their
    tasks' deviations, which is taken, so that the interval is rather too wide. Roundings of tasks
    are independent, and partly cancel.
    """
    both = np.flatnonzero(np.asarray(group.counts()) * ~np.isnan(paper.mean))
    ours = Sample.of([mean_r(run, both.tolist()) for run in group.runs])
    if not both.size:
        nothing = Sample(math.nan, math.nan, paper.runs)
        return _rounded(ours, nothing, PAPERS_ROUNDING)
    theirs = Sample(float(paper.mean[both].mean()), float(paper.std[both].mean()), paper.runs)
    return _rounded(ours, theirs, PAPERS_ROUNDING / math.sqrt(both.size))


def at_least(count: int, of: int, chance: float = 1 - CONFIDENCE) -> float:
    """Return how often so many of some independent cases, or more, come of chance alone.

    >>> [round(at_least(count, 22), 2) for count in (2, 3, 4)]
    [0.3, 0.09, 0.02]
    """
    fewer = (math.comb(of, k) * chance**k * (1 - chance) ** (of - k) for k in range(count))
    return 1 - sum(fewer)


def _rounded(ours: Sample, theirs: Sample, rounding: float) -> Beside:
    found: Difference = welch(ours, theirs)
    # No p: the means as they are printed are not those that were measured.
    wider = replace(found, half_width=found.half_width + rounding, p=math.nan)
    return Beside(ours.mean, theirs.mean, wider)
