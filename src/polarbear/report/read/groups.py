"""Runs, and groups of runs that differ in class order and seed alone."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from polarbear.base.arrays import Bools, Floats, frozen
from polarbear.base.errors import DataError, PolarbearError, unknown_name
from polarbear.base.names import readable
from polarbear.methods.catalogue import METHODS, title
from polarbear.runs.cost import Cost
from polarbear.runs.folder import RunFolder
from polarbear.score.decide import ORACLE
from polarbear.score.intervals import quantile
from polarbear.settings.settings import fits

#: What kinds of values a run has, in its settings or beside them.
KINDS: Mapping[str, Any] = {
    "method": str,
    "benchmark": str,
    "order": int | None,
    "seed": int | None,
    "root": str | None,
    "tasks": int | None,
    "title": str,
    "options": dict,
    "tree": dict | None,
}
#: No score is as large; the squares of larger ones are infinite.
LARGEST = 1e100


@dataclass(frozen=True, eq=False)
class Run:
    """One run, finished or not, of a benchmark of T tasks.

    ``scores`` has (T,) arrays and ``by_task`` (T, T) arrays by name, NaN where there is none;
    a summary may have few of them. ``classes`` are the class names of each task, empty for a
    summary. A ``joint`` run, of one task, has its scores at the benchmark's last task. ``tree`` has
    the parent of each class, as the method infers it, None if it does not. ``title`` is
    what the method's class calls itself, if anything; an ``oracle`` is told what no learner is.
    ``told`` has what a summary says and a run folder is asked for when it is needed, (T,) by name:
    the cases of ratios (:mod:`.cases`) and forward transfer (:mod:`.transfer`); ``told_cost`` is
    what the run took and keeps.
    """

    path: Path
    method: str
    benchmark: str
    order: int | None
    seed: int | None
    scores: Mapping[str, Floats] = field(repr=False)
    by_task: Mapping[str, Floats] = field(repr=False)
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    classes: tuple[tuple[str, ...], ...] = field(default=(), repr=False)
    root: str | None = None
    finished: bool = False
    joint: bool = False
    tree: Mapping[str, str] | None = field(default=None, repr=False)
    title: str = ""
    oracle: bool = False
    told: Mapping[str, Floats] = field(default_factory=dict, repr=False)
    told_cost: Cost | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Refuse what no run says of itself: it comes from a damaged file."""
        names = ("method", "benchmark", "order", "seed", "root", "tree", "title")
        about = {name: getattr(self, name) for name in names}
        for name, value in (*about.items(), *self.settings.items()):
            if not fits(value, KINDS.get(name, Any)):
                raise DataError(f"{self.path} is damaged: its {name} is {value!r:.100}")
        if not all(isinstance(name, str) for task in self.classes for name in task):
            raise DataError(f"{self.path} is damaged: not all of its classes have names")
        for name, scores in (*self.scores.items(), *self.by_task.items()):
            if np.any(np.abs(scores) > LARGEST):
                raise DataError(f"{self.path} is damaged: it has infinite scores {name!r}")
            frozen(scores)

    @property
    def is_oracle(self) -> bool:
        """Whether its method or its decision rule is told what no learner is."""
        return self.oracle or str(self.settings.get("decision")).endswith(ORACLE)

    @cached_property
    def cost(self) -> Cost:
        """What it took and keeps, as far as that can be read: no figure of scores depends on it."""
        try:
            return self.told_cost or Cost.of(RunFolder(self.path))
        except PolarbearError:
            return Cost()

    @property
    def tasks(self) -> int:
        """Number of tasks of the benchmark."""
        return len(self.scores["pw_jaccard"])

    @property
    def which(self) -> str:
        """The class order and seed, in words."""
        return f"order {self.order}, seed {self.seed}"

    @cached_property
    def done(self) -> tuple[int, ...]:
        """Tasks after which the run has scores."""
        return tuple(int(j) for j in np.flatnonzero(~np.isnan(self.scores["pw_jaccard"])))

    def moment(self, after: int) -> int:
        """Return the number that a task of the benchmark has in the run's own folder."""
        return 0 if self.joint else after

    def predictions(self, after: int) -> Bools | None:
        """Return the test predictions (n, s) after a task of the benchmark, or None."""
        if after not in self.done:
            return None
        return RunFolder(self.path).predictions(self.moment(after))


@dataclass(frozen=True, eq=False)
class Group:
    """Runs of one method with the same settings, over class orders and seeds.

    ``settings`` are those that tell the group from others of the method, such as
    ``{"memory_per_class": 50}``. Means and standard deviations are over the runs that have the
    score, so that unfinished runs count as far as they are. The deviation is the sample's
    (n - 1), NaN for a single run. Groups that would look ``alike``, of two classes of one name, are
    shown by their whole names.
    """

    name: str
    method: str
    benchmark: str
    runs: tuple[Run, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    alike: bool = False

    @property
    def count(self) -> int:
        """Number of runs."""
        return len(self.runs)

    @property
    def title(self) -> str:
        """Name for people: ``ER``, ``ER, memory 50``; an oracle's says so."""
        if self.alike:
            return readable(self.name, 400) + self._told
        return self.method_title + readable(self.name.removeprefix(self.method), 400)

    @property
    def method_title(self) -> str:
        """The method's name for people: the catalogue's, else what its class calls itself."""
        own = next((run.title for run in self.runs if run.title), "")
        known = self.method in METHODS or not own
        return (title(self.method) if known else readable(own)) + self._told

    @property
    def _told(self) -> str:
        return ORACLE if any(run.oracle for run in self.runs) else ""

    @property
    def is_oracle(self) -> bool:
        """Whether any of its runs is told what no learner is."""
        return any(run.is_oracle for run in self.runs)

    @property
    def orders(self) -> tuple[int, ...]:
        """The class orders of its runs, each once; a loop of one's own may have none."""
        return tuple(sorted({run.order for run in self.runs if run.order is not None}))

    @property
    def seeds(self) -> tuple[int, ...]:
        """The seeds of its runs, each once."""
        return tuple(sorted({run.seed for run in self.runs if run.seed is not None}))

    def cost(self, part: str) -> float:
        """Return the mean of a part of :class:`Cost` over the runs that know it, NaN for none.

        Runs that are under way have cost less than they will, and count where no other does.
        """
        known = self._costs(part)
        return float(np.mean(known)) if known else float("nan")

    def cost_count(self, part: str) -> int:
        """Return of how many runs a part of the cost is the mean."""
        return len(self._costs(part))

    def _costs(self, part: str) -> list[float]:
        whole = [run for run in self.runs if run.finished] or self.runs
        return [value for run in whole if (value := getattr(run.cost, part)) is not None]

    @property
    def tasks(self) -> int:
        """Number of tasks of the benchmark."""
        return self.runs[0].tasks

    @cached_property
    def score_names(self) -> tuple[str, ...]:
        """Names of the scores that any run has."""
        return tuple(dict.fromkeys(name for run in self.runs for name in run.scores))

    def mean(self, score: str) -> Floats:
        """Return the mean of a score after each task: (T,)."""
        return column_mean(self._stack(score))

    def std(self, score: str) -> Floats:
        """Return the standard deviation of a score after each task: (T,)."""
        return column_std(self._stack(score))

    def half_width(self, score: str) -> Floats:
        """Return half of the mean's 95 % interval after each task: (T,), NaN for a single run."""
        return column_half_width(self._stack(score))

    def counts(self, score: str = "pw_jaccard") -> tuple[int, ...]:
        """Return how many runs have a score after each task: (T,)."""
        return tuple(int(n) for n in column_count(self._stack(score)))

    def by_task_mean(self, score: str = "pw_jaccard") -> Floats:
        """Return the mean of R_jk: after task j (row) on the images of task k (column): (T, T)."""
        return column_mean(self._stack(score, by_task=True))

    def by_task_std(self, score: str = "pw_jaccard") -> Floats:
        """Return the standard deviation of R_jk: (T, T)."""
        return column_std(self._stack(score, by_task=True))

    def by_task_half_width(self, score: str = "pw_jaccard") -> Floats:
        """Return half of the 95 % interval of R_jk: (T, T)."""
        return column_half_width(self._stack(score, by_task=True))

    def _stack(self, score: str, *, by_task: bool = False) -> Floats:
        absent = np.full((self.tasks, self.tasks) if by_task else self.tasks, np.nan)
        given = [run.by_task if by_task else run.scores for run in self.runs]
        return np.stack([scores.get(score, absent) for scores in given])


@dataclass(frozen=True, eq=False)
class Runs:
    """What a report is about: groups of runs on one benchmark (a name with version)."""

    benchmark: str
    groups: tuple[Group, ...]
    split: str = "test"

    @property
    def count(self) -> int:
        """Number of runs in all groups."""
        return sum(group.count for group in self.groups)

    @property
    def tasks(self) -> int:
        """Number of tasks of the benchmark."""
        return self.groups[0].tasks

    @property
    def last(self) -> int:
        """The task after which groups are compared: the benchmark's last, if one has come so far.

        Else the last that all have come to, save groups that are not half as far as the furthest:
        one short run cuts nobody else's scores. Joint training, which has the benchmark's last
        alone, decides nothing.
        """
        stepwise = [g for g in self.groups if not all(run.joint for run in g.runs)] or self.groups
        reached = [max(run.done[-1] for run in group.runs) for group in stepwise]
        if (furthest := max(reached)) == self.tasks - 1:
            return furthest
        return min(after for after in reached if 2 * (after + 1) >= furthest + 1)

    @property
    def compared(self) -> tuple[Group, ...]:
        """The groups that have scores after the last task."""
        last = self.last
        return tuple(g for g in self.groups if any(last in run.done for run in g.runs))

    @property
    def at_last(self) -> tuple[Group, ...]:
        """The same with the runs alone that have scores there."""
        last = self.last
        return tuple(
            replace(g, runs=tuple(run for run in g.runs if last in run.done)) for g in self.compared
        )

    @property
    def short(self) -> dict[Path, str]:
        """The runs that have no scores after the last task, each with the reason."""
        last = self.last
        return {
            run.path: _why_short(run)
            for group in self.groups
            for run in group.runs
            if last not in run.done
        }

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the groups."""
        return tuple(group.name for group in self.groups)

    def group(self, name: str) -> Group:
        """Return a group by its name."""
        if name not in self.names:
            raise unknown_name("group of runs", name, self.names)
        return self.groups[self.names.index(name)]


def _why_short(run: Run) -> str:
    if run.joint:
        return "joint training has scores after the benchmark's last task alone"
    return f"it {'ends with' if run.finished else 'has come to'} task {run.done[-1]}"


def column_count(stack: Floats) -> Floats:
    """Return how many rows have a value: (n, …) → (…)."""
    counts: Floats = np.sum(~np.isnan(stack), axis=0, dtype=np.float64)
    return counts


def column_mean(stack: Floats) -> Floats:
    """Return the mean over the rows that have a value, NaN where none has."""
    # Not nanmean, which warns where no run has a value.
    count, mean = column_count(stack), np.full(stack.shape[1:], np.nan)
    np.divide(np.nansum(stack, axis=0), count, out=mean, where=count > 0)
    return mean


def column_std(stack: Floats) -> Floats:
    """Return the sample's standard deviation over the rows that have a value, NaN of one."""
    count, variance = column_count(stack), np.full(stack.shape[1:], np.nan)
    squares = np.nansum((stack - column_mean(stack)) ** 2, axis=0)
    np.divide(squares, count - 1, out=variance, where=count > 1)
    deviation: Floats = np.sqrt(variance)
    return deviation


def column_half_width(stack: Floats) -> Floats:
    """Return half of the 95 % interval of the mean over the rows that have a value, NaN of one."""
    count, width = column_count(stack), column_std(stack)
    for n in np.unique(count[count > 1]).tolist():
        width[count == n] *= quantile(n - 1) / n**0.5
    return width
