"""What a reader may choose in a report."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from polarbear.base.errors import DataError, PolarbearError, unknown_name
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.methods.catalogue import is_bound
from polarbear.report.read.answers import known_hierarchy
from polarbear.report.read.groups import Group, Runs


@dataclass(frozen=True)
class Size:
    """Where figures will stand: their width there in inches, and how much larger than print."""

    width: float
    scale: float = 1.0


#: A column of a paper in two columns, its whole page, and a slide.
SIZES: Mapping[str, Size] = {
    "column": Size(3.3),
    "page": Size(6.9),
    "talk": Size(12.0, scale=2.2),
}


@dataclass(frozen=True)
class Options:
    """Choices of a report; what is left empty is chosen for the runs at hand.

    ``tasks`` are those whose course and confusion are shown, ``superclass`` the one of the label
    river, ``compare`` two groups side by side. ``paper`` draws the paper's own curves dotted.
    ``root`` is the folder with the data (default: where the runs found them). ``size`` is what the
    figures are for, one of ``SIZES``; ``methods`` are the groups that are shown, by the name of the
    group or of the method.
    """

    tasks: tuple[int, ...] = ()
    superclass: str | None = None
    compare: tuple[str, ...] = ()
    paper: bool = False
    root: Path | None = None
    size: str = "page"
    methods: tuple[str, ...] = ()

    @property
    def width(self) -> float:
        """Inches across in which a figure is laid out, before all of it is enlarged."""
        return SIZES[self.size].width / SIZES[self.size].scale

    def chosen(self, runs: Runs) -> Runs:
        """Return the runs of the chosen methods, in the order they have in every report."""
        if not self.methods:
            return runs
        valid = dict.fromkeys(name for group in runs.groups for name in (group.method, group.name))
        for name in self.methods:
            if name not in valid:
                raise unknown_name("method in these runs", name, valid)
        wanted = set(self.methods)
        return replace(runs, groups=tuple(g for g in runs.groups if wanted & {g.method, g.name}))

    def check(self, runs: Runs) -> None:
        """Refuse sizes that there are not, and tasks and groups that the runs do not have."""
        if self.size not in SIZES:
            raise unknown_name("size", self.size, SIZES)
        for task in self.tasks:
            if not 0 <= task < runs.tasks:
                raise PolarbearError(
                    f"there is no task {task} to show: {runs.benchmark} has tasks 0 to "
                    f"{runs.tasks - 1}"
                )
        shown = self.chosen(runs)
        for name in self.compare:
            shown.group(name)
        if self.superclass is not None:
            named_superclass(known_hierarchy(runs.benchmark), self.superclass)
        if len(self.compare) not in (0, 2):
            raise PolarbearError(
                f"two groups are compared side by side, not {len(self.compare)}: choose from "
                + ", ".join(runs.names)
            )


def named_superclass(tree: Hierarchy, name: str) -> str:
    """Return the superclass with a name or title."""
    titles = {tree.title(known): known for known in tree.superclasses}
    names = titles | {known: known for known in tree.superclasses}
    if name not in names:
        raise unknown_name("superclass", name, names)
    return names[name]


def chosen_tasks(options: Options, tasks: int) -> tuple[int, ...]:
    """Return the tasks to follow over time: the paper's 0, 5, 10, 15, or a quarter apart.

    >>> chosen_tasks(Options(), 22), chosen_tasks(Options(), 7), chosen_tasks(Options(), 1)
    ((0, 5, 10, 15), (0, 1, 3, 5), (0,))
    """
    paper = (0, 5, 10, 15)
    quarters = tuple(dict.fromkeys(tasks * i // 4 for i in range(4)))
    return options.tasks or (paper if tasks > 20 else quarters)


def chosen_moments(options: Options, done: Iterable[int]) -> tuple[int, ...]:
    """Return the tasks after which to look, of those done: the paper's 0, 1, 5, 10 and the last.

    Where none of the tasks asked for is done, it is an error.

    >>> chosen_moments(Options(), range(22)), chosen_moments(Options(tasks=(3, 9)), range(5))
    ((0, 1, 5, 10, 21), (3,))
    """
    there = sorted(done)
    wanted = options.tasks or (0, 1, 5, 10, there[-1])
    moments = tuple(sorted(set(wanted) & set(there)))
    if not moments:
        raise DataError("no run with predictions has come to the chosen tasks")
    return moments


def chosen_pair(options: Options, groups: list[Group]) -> tuple[Group, ...]:
    """Return the two groups to set side by side: those named, else the two with the best scores.

    Scores are means after the last task; groups that have not come so far, bounds, which see
    complete labels or keep every image, and oracles come after the others.
    """
    if options.compare:
        return tuple(group for name in options.compare for group in groups if group.name == name)
    last = Runs(groups[0].benchmark, tuple(groups)).last

    def rank(group: Group) -> tuple[bool, bool, float]:
        score = float(group.mean("pw_jaccard")[last])
        apart = is_bound(group.method) or group.is_oracle
        return apart, math.isnan(score), -score

    return tuple(sorted(groups, key=rank)[:2])
