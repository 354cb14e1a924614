"""How many cases a ratio is of, where that depends on what is predicted.

A method that predicts two subclasses, both with their superclass, has an implication of 1: nobody
should read that number without its 2.
"""

from collections.abc import Sequence

import numpy as np

from polarbear.base.arrays import Bools
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.score.catalogue import pair_scores

#: A ratio over fewer cases than this share of the images says little of them.
FEW = 0.05


def varying_scores() -> tuple[str, ...]:
    """Return the names of the scores whose cases depend on what is predicted.

    >>> varying_scores()
    ('implication',)
    """
    return tuple(score.name for score in pair_scores() if score.cases is not None)


def count_cases(predicted: Bools, hierarchy: Hierarchy, classes: Sequence[str]) -> dict[str, int]:
    """Return the cases of each such score in predictions (n, s) of the seen ``classes``.

    >>> tree = Hierarchy.from_children({"bear": ["polar bear", "brown bear"]})
    >>> count_cases(np.array([[1, 1], [0, 1], [1, 0]], bool), tree, ["bear", "polar bear"])
    {'implication': 2}
    """
    column = {name: place for place, name in enumerate(classes)}
    parent = np.array([column.get(hierarchy.parent(name) or "", -1) for name in classes])
    return {s.name: s.cases(predicted, parent) for s in pair_scores() if s.cases is not None}
