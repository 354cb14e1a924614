"""Decision rules: which classes are predicted, given one logit for each seen class.

A rule is a pure function of logits, so any rule can be tried on the logits of a finished run.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polarbear.base.arrays import Bools, Ints
from polarbear.base.errors import unknown_name

Logits = NDArray[np.floating[Any]]
Rule = Callable[[Logits, bool, Ints], Bools]


def threshold(logits: Logits, inclusive: bool, levels: Ints) -> Bools:
    """Predict each class whose logit (n, s) is over 0, or 0 if ``inclusive``: the paper's rule."""
    return logits >= 0 if inclusive else logits > 0


def top1(logits: Logits, inclusive: bool, levels: Ints) -> Bools:
    """Predict the likeliest class alone.

    >>> top1(np.array([[0.1, 0.9, 0.5]]), False, np.array([0, 1, 1])).tolist()
    [[False, True, False]]
    """
    predicted = np.zeros(logits.shape, dtype=bool)
    predicted[np.arange(len(logits)), logits.argmax(axis=1)] = True
    return predicted


def top1_per_level(logits: Logits, inclusive: bool, levels: Ints) -> Bools:
    """Predict the likeliest class at each level; ``levels`` (s,) numbers each class's level.

    >>> top1_per_level(np.array([[0.1, 0.9, 0.5]]), False, np.array([0, 1, 1])).tolist()
    [[True, True, False]]
    """
    predicted = np.zeros(logits.shape, dtype=bool)
    for level in np.unique(levels):
        columns = np.flatnonzero(levels == level)
        predicted[:, columns] = top1(logits[:, columns], inclusive, levels[columns])
    return predicted


DECISIONS: Mapping[str, Rule] = MappingProxyType(
    {"threshold": threshold, "top1": top1, "top1-per-level": top1_per_level}
)


def decision(name: str) -> Rule:
    """Return a rule by name."""
    try:
        return DECISIONS[name]
    except KeyError:
        raise unknown_name("decision rule", name, DECISIONS) from None
