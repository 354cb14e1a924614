"""Scores of a tree that a method infers: which class lies below which."""

import numpy as np

from polarbear.base.arrays import Ints
from polarbear.base.errors import PredictionError


def parent_scores(inferred: object, true: Ints) -> dict[str, float]:
    """Return the shares of right, wrong and false parents among those that could be found.

    Both (s,) have the column of each seen class's parent, -1 for none. A parent is *wrong* where
    there is another, *false* where there is none; all three are divided by how many there are.

    >>> parent_scores(np.array([-1, 0, 1, -1]), np.array([-1, 0, 0, 0]))["parents_right"]
    0.3333333333333333
    """
    found = as_parents(inferred, len(true))
    due, given = true >= 0, found >= 0
    counts = {
        "parents_right": due & (found == true),
        "parents_wrong": due & given & (found != true),
        "parents_false": given & ~due,
    }
    total = due.sum()
    return {name: float(of.sum() / total) if total else np.nan for name, of in counts.items()}


def as_parents(inferred: object, seen: int) -> Ints:
    """Return parents as whole numbers (seen,); what can be no tree is refused."""
    found = np.asarray(inferred)
    if found.shape != (seen,) or found.dtype.kind not in "iu":
        raise PredictionError(
            f"inferred parents must be whole numbers ({seen},), the column of each seen class's "
            f"parent or -1, not {found.dtype} {found.shape}"
        )
    above = np.arange(seen)
    for _ in range(seen + 1):  # as long as the longest way up could be
        above = np.where(above >= 0, found[above], -1)
    if found.min(initial=-1) < -1 or found.max(initial=-1) >= seen or (above >= 0).any():
        raise PredictionError("inferred parents must be columns of seen classes, and no circle")
    return found.astype(np.intp)
