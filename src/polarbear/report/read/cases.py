"""How many cases the ratios of a group are of, and whether they are enough to compare."""

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from polarbear.base.arrays import Bools
from polarbear.base.errors import PolarbearError
from polarbear.report.read.answers import known_hierarchy
from polarbear.report.read.groups import Group, Run
from polarbear.report.read.words import of_fewer
from polarbear.score.cases import FEW, count_cases, varying_scores


class Cases(NamedTuple):
    """What a ratio is of, as a mean over n runs, and of how many images; NaN of none."""

    of: float
    images: float
    n: int = 1

    @property
    def known(self) -> bool:
        """Whether they were counted."""
        return not np.isnan(self.of)

    @property
    def few(self) -> bool:
        """Whether they are fewer than 5 % of the images."""
        return self.of < FEW * self.images


#: Of a ratio whose cases nobody counted.
UNKNOWN = Cases(np.nan, np.nan, 0)


def cases(group: Group, score: str, after: int) -> Cases | None:
    """Return what a group's ratio is of after a task; None where that is the same for all."""
    if score not in varying_scores():
        return None
    found = [_cases(run, score, after) for run in group.runs]
    counted = [one for one in found if one.known]
    if not counted:
        return UNKNOWN
    of, images, _ = (float(np.mean(column)) for column in zip(*counted, strict=True))
    return Cases(of, images, len(counted))


def few_cases(group: Group, score: str) -> Bools:
    """Say after which tasks a group's ratio is known to be of few cases: (T,)."""
    every = (cases(group, score, after) for after in range(group.tasks))
    return np.array([one is not None and one.few for one in every], bool)


@lru_cache(maxsize=4096)
def _cases(run: Run, score: str, after: int) -> Cases:
    if {score, "images"} <= run.told.keys():
        return Cases(float(run.told[score][after]), float(run.told["images"][after]))
    try:
        predicted = run.predictions(after) if run.classes else None
        if predicted is None:
            return UNKNOWN
        classes = [name for task in run.classes[: run.moment(after) + 1] for name in task]
        counted = count_cases(predicted, known_hierarchy(run.benchmark), classes)
    except (PolarbearError, KeyError):  # damaged, or of classes that are not known here
        return UNKNOWN
    return Cases(counted[score], len(predicted))


def shown_cases(found: Cases | None, count: int) -> str:
    """Return how a table says what a ratio is of, of a group of so many runs.

    >>> shown_cases(Cases(1234.4, 5000), 1), shown_cases(UNKNOWN, 1), shown_cases(None, 1)
    (' of 1,234', '', '')
    >>> shown_cases(Cases(1234.4, 5000, n=2), 5)
    ' of 1,234 (n = 2)'
    """
    if found is None or not found.known:
        return ""
    return f" of {found.of:,.0f}{of_fewer(found.n, count)}"
