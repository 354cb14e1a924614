"""How well each superclass with all that lies below it is labelled, by each group."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from polarbear.base.arrays import Bools, Floats
from polarbear.base.errors import DataError, PolarbearError
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.report.read.answers import answers, known_hierarchy
from polarbear.report.read.groups import Group, Run, Runs, column_count, column_mean
from polarbear.score.metrics import pw_jaccard

#: The images of leaves that have no superclass, together.
ALONE = "no superclass"


@dataclass(frozen=True, eq=False)
class Families:
    """pw-JS of the test images of each superclass after a task, as means over runs.

    ``names`` are the superclasses, those with the most subclasses first, then ``ALONE`` where there
    are such leaves; ``values`` is (names, groups), NaN where a superclass has not come yet, and
    ``n`` (names, groups) says over how many runs; ``counts`` (groups,), how many runs have kept
    their predictions.
    """

    names: tuple[str, ...]
    groups: tuple[Group, ...]
    values: Floats
    n: Floats
    counts: tuple[int, ...]
    last: int


@lru_cache(maxsize=4)
def families(runs: Runs, root: str | Path | None = None) -> Families:
    """Return the scores by superclass of the runs that have kept their predictions.

    All orders count: after the benchmark's last task, classes are the same in each; before it, a
    superclass has the mean over the orders in which it has come. ``root`` is the folder with the
    data (default: where the runs found them).
    """
    tree, last = known_hierarchy(runs.benchmark), runs.last
    if not tree.superclasses:
        raise DataError(f"{runs.benchmark} has no superclasses")
    size = {name: int(tree.leaf_counts[tree.index(name)]) for name in tree.superclasses}
    names = tuple(sorted(size, key=lambda name: (-size[name], name)))
    names += (ALONE,) if _alone(tree).any() else ()
    found: dict[str, list[Floats]] = {group.name: [] for group in runs.groups}
    why: PolarbearError = DataError("no run has kept its predictions")
    for group in runs.groups:
        for run in (one for one in group.runs if (one.path / "predictions").is_dir()):
            try:
                found[group.name].append(_by_family(run, last, root, names))
            except PolarbearError as error:
                why = error
    groups = tuple(group for group in runs.groups if found[group.name])
    if not groups:
        raise why
    stacks = [np.stack(found[group.name]) for group in groups]
    values, n = (np.stack([*map(of, stacks)], axis=1) for of in (column_mean, column_count))
    counts = tuple(len(found[group.name]) for group in groups)
    return Families(names, groups, values, n, counts, last)


def _by_family(run: Run, after: int, root: str | Path | None, names: tuple[str, ...]) -> Floats:
    given = answers(run, after, root)
    tree, view = given.hierarchy, given.view
    scores = pw_jaccard(given.predicted, view.targets)
    values = np.full(len(names), np.nan)
    for place, name in enumerate(names):
        family = _alone(tree) if name == ALONE else tree.closure[:, tree.index(name)]
        mine = family[view.leaf]
        if mine.any():
            values[place] = scores[mine].mean()
    return values


def _alone(tree: Hierarchy) -> Bools:
    return tree.is_leaf & (tree.parent_array < 0)
