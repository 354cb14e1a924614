"""Scores that continual learning knows: average incremental score, backward and forward transfer.

What each of them is here, docs/explanation/scores.md says.
"""

from functools import lru_cache
from pathlib import Path

import numpy as np

from polarbear.base.arrays import Floats
from polarbear.base.errors import PolarbearError
from polarbear.report.read.answers import answers
from polarbear.report.read.groups import Run
from polarbear.report.read.series import Series
from polarbear.score.table import average_incremental, backward_transfer, forgetting
from polarbear.score.transfer import before_arrival, mean_so_far


def _average(run: Run) -> Floats:
    """Return the mean of R_0 to R_j; joint training has the last alone, which is no such mean."""
    r = run.scores["pw_jaccard"]
    return np.full(len(r), np.nan) if run.joint else average_incremental(r)


AVERAGE = Series(_average)
BACKWARD = Series(lambda run: backward_transfer(run.by_task["pw_jaccard"]))
FORGETTING = Series(lambda run: forgetting(run.by_task["pw_jaccard"]))


def forward(root: str | Path | None = None) -> Series:
    """Return forward transfer, of predictions and the data, in ``root`` or where they were."""
    return Series(lambda run: _forward(run, root))


@lru_cache(maxsize=1024)
def _forward(run: Run, root: str | Path | None) -> Floats:
    if "forward_transfer" in run.told:
        return run.told["forward_transfer"]
    before = np.full(run.tasks, np.nan)
    try:
        for after in run.done if run.classes and not run.joint else ():
            if after + 1 < run.tasks:
                given = answers(run, after, root)
                before[after + 1] = before_arrival(given.stream, after + 1, given.predicted)
    except PolarbearError:  # no predictions, or no data: the figures that show them say so
        return np.full(run.tasks, np.nan)
    return mean_so_far(before, run.done)
