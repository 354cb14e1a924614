"""What a run's kept raw scores would have scored by other decision rules."""

import math

from polarbear.base.arrays import Bools, Ints
from polarbear.base.guarded import undamaged
from polarbear.runs.folder import RunFolder
from polarbear.score.decide import NEEDS_PARENTS, RawScores, Seen, decision
from polarbear.score.metrics import pw_jaccard
from polarbear.score.parents import as_parents

#: The rules that are asked.
ASKED = ("threshold", "top1", "top1-parent", "expected", "expected-tree")


def score_by_rule(scores: RawScores, about: Seen, targets: Bools) -> dict[str, float]:
    """Return the pw-JS of what each rule makes of scores (n, s); NaN where it cannot be asked."""
    return {rule: _ask(rule, scores, about, targets) for rule in ASKED}


def _ask(rule: str, scores: RawScores, about: Seen, targets: Bools) -> float:
    if rule in NEEDS_PARENTS and about.parents is None:
        return math.nan
    return float(pw_jaccard(decision(rule)(scores, about), targets).mean())


def parents_after(folder: RunFolder, after: int, seen: int) -> Ints | None:
    """Return the parents that a run has inferred after a task, None where it infers none."""
    for record in folder.scores():
        if (record.after, record.split) == (after, "test"):
            if record.parents is None:
                return None
            with undamaged(folder.path / "scores.jsonl"):
                return as_parents(record.parents, seen)
    return None
