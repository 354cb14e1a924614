"""The trees that methods infer: which class they put below which, beside the truth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from polarbear.base.errors import PolarbearError
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.named.registry import find
from polarbear.report.read.groups import Group, Run, Runs


@dataclass(frozen=True, eq=False)
class Inferred:
    """The parent that a run gave each class, and the ``true`` one, of the classes ``seen``."""

    group: Group
    run: Run
    seen: tuple[str, ...]
    true: Mapping[str, str]
    found: Mapping[str, str]

    @property
    def right(self) -> int:
        """How many true parents were found."""
        return sum(self.found.get(child) == parent for child, parent in self.true.items())

    @property
    def needless(self) -> int:
        """How many classes were given a parent that have none."""
        return sum(child not in self.true for child in self.found)

    @property
    def wrong(self) -> int:
        """How many classes were given another parent than theirs."""
        return len(self.found) - self.right - self.needless


def inferred(runs: Runs, hierarchy: Hierarchy) -> list[Inferred]:
    """Return, for each group that infers a tree, that of its run that came farthest."""
    trees: list[Inferred] = []
    for group in runs.groups:
        having = [run for run in group.runs if run.tree is not None]
        if having:
            trees.append(_of(group, max(having, key=lambda run: len(run.done)), hierarchy))
    return trees


def _of(group: Group, run: Run, hierarchy: Hierarchy) -> Inferred:
    came = {c for task in _tasks(run)[: run.done[-1] + 1] for c in task} or set(hierarchy.names)
    seen = tuple(name for name in hierarchy.names if name in came)
    true = {name: up for name in seen if (up := hierarchy.parent(name)) in came}
    return Inferred(group, run, seen, true, run.tree or {})


def _tasks(run: Run) -> Sequence[tuple[str, ...]]:
    """Return the classes of each task; a summary's are those of its published order, if any."""
    if run.classes or run.order is None:
        return run.classes
    try:
        return find(run.benchmark).schedule(run.order).tasks
    except PolarbearError:
        return ()
