"""Decision rules: which classes are named, given one score for each seen class.

A rule is a pure function of scores, so any rule can be tried on the scores of a finished run.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polarbear.base.arrays import Bools, Ints
from polarbear.base.errors import unknown_name

Scores = NDArray[np.floating[Any]]
Rule = Callable[[Scores, bool, Ints], Bools]


def threshold(scores: Scores, inclusive: bool, levels: Ints) -> Bools:
    """Name every class whose score (n, s) is over 0, or at 0 if ``inclusive``: the paper's rule."""
    return scores >= 0 if inclusive else scores > 0


def top1(scores: Scores, inclusive: bool, levels: Ints) -> Bools:
    """Name the likeliest class alone.

    >>> top1(np.array([[0.1, 0.9, 0.5]]), False, np.array([0, 1, 1])).tolist()
    [[False, True, False]]
    """
    named = np.zeros(scores.shape, dtype=bool)
    named[np.arange(len(scores)), scores.argmax(axis=1)] = True
    return named


def top1_per_level(scores: Scores, inclusive: bool, levels: Ints) -> Bools:
    """Name the likeliest class at each level; ``levels`` (s,) numbers each class's level.

    >>> top1_per_level(np.array([[0.1, 0.9, 0.5]]), False, np.array([0, 1, 1])).tolist()
    [[True, True, False]]
    """
    named = np.zeros(scores.shape, dtype=bool)
    for level in np.unique(levels):
        columns = np.flatnonzero(levels == level)
        named[:, columns] = top1(scores[:, columns], inclusive, levels[columns])
    return named


DECISIONS: Mapping[str, Rule] = MappingProxyType(
    {"threshold": threshold, "top1": top1, "top1-per-level": top1_per_level}
)


def decision(name: str) -> Rule:
    """Give a rule by name."""
    try:
        return DECISIONS[name]
    except KeyError:
        raise unknown_name("decision rule", name, DECISIONS) from None
