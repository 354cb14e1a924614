"""What a run's kept raw scores score by other decision rules: knowledge and decision told apart."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np

from polarbear.base.arrays import Floats
from polarbear.base.errors import DataError, PolarbearError
from polarbear.report.read.answers import refuse_other_data, stream_of
from polarbear.report.read.groups import Group, Run, Runs
from polarbear.runs.decided import ASKED, parents_after, score_by_rule
from polarbear.runs.folder import RunFolder
from polarbear.score.decide import OWN_RULE, USUAL, Seen, decision
from polarbear.score.intervals import Sample

#: Which pw-JS of a run is meant: R_j after the last task, or the mean of R_0 to that.
Over = Literal["last", "tasks"]

#: The rules that are asked, and before them what the run itself has predicted.
RULES = (OWN_RULE, *ASKED)
ORACLES = tuple(name for name in ASKED if decision(name).oracle)


@dataclass(frozen=True, eq=False)
class Decided:
    """pw-JS by each rule of :data:`RULES`, of the runs that have kept their raw scores.

    ``values`` has an array (runs,) by the group's name and the rule's, NaN where a rule cannot be
    asked, or was not by whoever wrote a summary; ``left_out`` says why other runs are not in it.
    """

    groups: tuple[Group, ...]
    values: Mapping[str, Mapping[str, Floats]]
    over: Over
    last: int
    left_out: Mapping[Path, str]

    @property
    def words(self) -> str:
        """What the numbers are."""
        return f"pw-JS {'after task' if self.over == 'last' else 'over tasks 0 to'} {self.last}"

    def of(self, group: Group, rule: str) -> Sample:
        """Return a rule's mean and deviation over the runs that have it, and their number."""
        return Sample.of(self.values[group.name][rule])

    def is_oracle(self, group: Group, rule: str) -> bool:
        """Whether what a rule predicts for a group's runs is told what no learner is."""
        told = any(run.is_oracle for run in group.runs)
        return rule in ORACLES or (rule == OWN_RULE and told)

    def knowledge(self, group: Group) -> str:
        """Return the oracle that scores best: it shows what the raw scores know."""
        return max(ORACLES, key=lambda rule: np.nan_to_num(self.of(group, rule).mean, nan=-1.0))


@lru_cache(maxsize=4)
def decided(runs: Runs, root: str | Path | None = None, over: Over = "last") -> Decided:
    """Return what every rule makes of the raw scores of all runs that have kept them.

    ``root`` is the folder with the data (default: where the runs found them).
    """
    if runs.split != "test":
        raise DataError("raw scores are kept of test images alone")
    if not any_kept(runs):
        raise DataError("no run has kept its raw scores: `polarbear run` does with --keep-scores")
    left_out = {run.path: why for run in _every(runs.groups) if (why := _not_kept(run))}
    last = replace(runs, groups=_without(runs.groups, left_out)).last
    moments = (last,) if over == "last" else tuple(range(last + 1))
    found: dict[Path, dict[str, float]] = {}
    for run in _every(_without(runs.groups, left_out)):
        try:
            scored = [_scored(run, after, root) for after in moments]
        except PolarbearError as error:
            left_out[run.path] = str(error)
            continue
        found[run.path] = {rule: float(np.mean([one[rule] for one in scored])) for rule in RULES}
    groups = _without(runs.groups, left_out)
    if not groups:
        raise DataError(f"no run's raw scores can be used: {next(iter(left_out.values()))}")
    values = {
        group.name: {
            rule: np.array([found[run.path][rule] for run in group.runs]) for rule in RULES
        }
        for group in groups
    }
    return Decided(groups, values, over, last, left_out)


def any_kept(runs: Runs) -> bool:
    """Whether any run has raw scores that rules could be asked of."""
    return not all(map(_not_kept, _every(runs.groups)))


def _every(groups: Iterable[Group]) -> list[Run]:
    return [run for group in groups for run in group.runs]


def _without(groups: Iterable[Group], paths: Iterable[Path]) -> tuple[Group, ...]:
    kept = ((group, tuple(run for run in group.runs if run.path not in paths)) for group in groups)
    return tuple(replace(group, runs=members) for group, members in kept if members)


def _in_summary(run: Run) -> bool:
    """Whether a run is a summary that says what some rule made of its raw scores."""
    return not run.classes and any(f"pw_jaccard/{rule}" in run.scores for rule in ASKED)


def _not_kept(run: Run) -> str:
    """Say why a run has nothing that other rules could be asked of; nothing where it has."""
    if _in_summary(run):
        return ""
    if not run.classes:
        return "its summary was written without its raw scores"
    return "" if (run.path / "raw").is_dir() else "it was run without --keep-scores"


def _scored(run: Run, after: int, root: str | Path | None) -> dict[str, float]:
    """Return pw-JS after a task of the benchmark by each rule."""
    if after not in run.done:
        why = "joint training has the last alone" if run.joint else "it has not come so far"
        raise DataError(f"it has no scores after task {after}: {why}")
    own = float(run.scores["pw_jaccard"][after])
    usual = {USUAL: own} if run.settings.get("decision") == USUAL else {}
    if _in_summary(run):
        told = {rule: run.scores.get(f"pw_jaccard/{rule}") for rule in ASKED}
        by_rule = {rule: float(r[after]) for rule, r in told.items() if r is not None}
        return dict.fromkeys(RULES, np.nan) | {OWN_RULE: own} | usual | by_rule
    scores = RunFolder(run.path).raw(run.moment(after))
    if scores is None:
        raise DataError(f"it has no raw scores after task {after}: they were not kept, or deleted")
    stream = stream_of(run, root)
    view = stream.test(run.moment(after))
    refuse_other_data(run, f"the raw scores after task {after}", scores.shape, view)
    parents = parents_after(RunFolder(run.path), run.moment(after), len(view.classes))
    about = Seen.of(stream.hierarchy, view.classes, parents=parents)
    # Whether a score of exactly 0 is a yes, the run knows, and its folder does not: so ``usual``.
    return {OWN_RULE: own} | score_by_rule(scores, about, view.targets) | usual
