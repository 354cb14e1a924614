"""The table of scores of a run: R_j, R_jk, per level, forgetting."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from polarbear.base.arrays import Floats, frozen
from polarbear.base.errors import DataError
from polarbear.base.guarded import parse_json
from polarbear.score.catalogue import score_names
from polarbear.score.record import BY_TASK, ScoreRecord


@dataclass(frozen=True, eq=False, repr=False)
class ScoreTable:
    """Every score after every task of a stream of T tasks; NaN where there is none.

    ``scores`` has (T,) arrays: each metric's mean over the union of the images of the tasks so
    far, such as ``"pw_jaccard"``; the same for one level's labels, over the images that carry any
    of them, ``"pw_jaccard/superclass"`` and ``"pw_jaccard/subclass"`` (all leaves); and
    ``"label_ratio"``, ``"implication"``, ``"sibling_error"``, ``"late_recall"``.
    ``by_task`` has (T, T) tables for ``"pw_jaccard"`` and ``"jaccard"``: after task j, on the
    images of task k.

    >>> r = {name: np.array([1.0, np.nan]) for name in BY_TASK}
    >>> r_jk = {name: np.full((2, 2), np.nan) for name in BY_TASK}
    >>> ScoreTable("iirc-cifar-v1", 0, "test", r, r_jk)
    ScoreTable(iirc-cifar-v1, order 0, test: 1 of 2 tasks, R_0 = 1.000)
    """

    name: str
    order: int | None
    split: str
    scores: Mapping[str, Floats]
    by_task: Mapping[str, Floats]

    @classmethod
    def of(
        cls, name: str, order: int | None, split: str, tasks: int, records: Iterable[ScoreRecord]
    ) -> "ScoreTable":
        """Return the table of ``tasks`` tasks that a split's records fill."""
        scores = {score: np.full(tasks, np.nan) for score in score_names()}
        by_task = {score: np.full((tasks, tasks), np.nan) for score in BY_TASK}
        for record in records:
            for score, value in record.scores.items():
                scores.setdefault(score, np.full(tasks, np.nan))[record.after] = value
            for score, row in record.by_task.items():
                table = by_task.setdefault(score, np.full((tasks, tasks), np.nan))
                table[record.after, : len(row)] = row
        for array in (*scores.values(), *by_task.values()):
            frozen(array)
        return cls(name, order, split, scores, by_task)

    def __repr__(self) -> str:
        """Return what was scored, how many of its tasks, and the last R_j."""
        done = np.flatnonzero(~np.isnan(self.r))
        last = f", R_{done[-1]} = {self.r[done[-1]]:.3f}" if done.size else ""
        name = self.name if self.order is None else f"{self.name}, order {self.order}"
        return f"ScoreTable({name}, {self.split}: {done.size} of {len(self.r)} tasks{last})"

    def __post_init__(self) -> None:
        """Refuse arrays that do not belong together."""
        for name in BY_TASK:
            if name not in self.scores or name not in self.by_task:
                raise DataError(f"a score table needs {name!r} in its scores and by task")
        tasks = len(self.r)
        for kind, shape in (("scores", (tasks,)), ("by_task", (tasks, tasks))):
            for name, array in getattr(self, kind).items():
                if array.shape != shape:
                    raise DataError(
                        f"{kind}[{name!r}] of a table of {tasks} tasks must be {shape}; "
                        f"it is {array.shape}"
                    )

    @property
    def r(self) -> Floats:
        """R_j: mean pw-JS over the union of the images of tasks 0 to j, each once: (T,)."""
        return self.scores["pw_jaccard"]

    @property
    def r_jk(self) -> Floats:
        """R_jk: mean pw-JS after task j (row) on the images of task k (column): (T, T)."""
        return self.by_task["pw_jaccard"]

    @property
    def forgetting(self) -> Floats:
        """After task j, the mean over k < j of max_{k ≤ l < j} R_lk − R_jk: (T,), NaN for j = 0.

        Task k's images get more labels as their subclasses arrive, so that a fall is not only
        forgetting: a learner that stays as it is falls too. Tasks that were not added are left
        out of the maximum and of the mean.
        """
        return forgetting(self.r_jk)

    @property
    def average_incremental(self) -> Floats:
        """After task j, the mean of R_0 to R_j: (T,). Tasks that were not added are left out."""
        return average_incremental(self.r)

    @property
    def backward_transfer(self) -> Floats:
        """After task j, the mean over k < j of R_jk − R_kk: (T,), NaN for j = 0."""
        return backward_transfer(self.r_jk)

    def at(self, score: str, after: int) -> float:
        """Return a score after a task, NaN where it was not worked out."""
        return float(self.scores[score][after]) if score in self.scores else float("nan")

    def to_json(self) -> str:
        """Return the table as JSON text, with null for NaN."""
        content = {"name": self.name, "order": self.order, "split": self.split}
        arrays = {
            kind: {
                name: np.where(np.isnan(array), np.array(None), array).tolist()
                for name, array in getattr(self, kind).items()
            }
            for kind in ("scores", "by_task")
        }
        return json.dumps(content | arrays, allow_nan=False)

    @classmethod
    def from_json(cls, text: str) -> "ScoreTable":
        """Read what :meth:`to_json` gave."""
        try:
            content = parse_json(text)
            scores, by_task = _arrays(content["scores"]), _arrays(content["by_task"])
            about = (content["name"], content["order"], content["split"])
            return cls(*about, scores, by_task)
        except Exception as error:  # there are as many kinds as ways to damage a text
            raise DataError(
                f"this is not a score table ({type(error).__name__}: {error}): it has the keys "
                "name, order, split, scores and by_task, as ScoreTable.to_json writes them"
            ) from error


def forgetting(r_jk: Floats) -> Floats:
    """Return :attr:`ScoreTable.forgetting` of R_jk (T, T)."""
    fall = np.full_like(r_jk, np.nan)
    fall[1:] = np.fmax.accumulate(r_jk, axis=0)[:-1] - r_jk[1:]
    return _row_means(fall)


def average_incremental(r: Floats) -> Floats:
    """Return :attr:`ScoreTable.average_incremental` of R_j (T,).

    >>> average_incremental(np.array([1.0, 0.5, np.nan, 0.6])).tolist()
    [1.0, 0.75, nan, 0.7000000000000001]
    """
    before = np.where(np.tri(len(r), dtype=bool), r, np.nan)
    return np.where(np.isnan(r), np.nan, _row_means(before))


def backward_transfer(r_jk: Floats) -> Floats:
    """Return :attr:`ScoreTable.backward_transfer` of R_jk (T, T).

    >>> backward_transfer(np.array([[0.9, np.nan], [0.5, 0.8]])).round(2).tolist()
    [nan, -0.4]
    """
    change = r_jk - np.diagonal(r_jk)
    return _row_means(np.where(np.tri(len(r_jk), k=-1, dtype=bool), change, np.nan))


def _row_means(values: Floats) -> Floats:
    return np.array([mean(row[~np.isnan(row)]) for row in values])


def mean(values: Floats) -> float:
    """Return the mean, NaN of nothing."""
    return float(values.mean()) if values.size else float("nan")


def _arrays(values: Mapping[str, Any]) -> dict[str, Floats]:
    # NumPy reads null as NaN.
    return {name: frozen(np.array(row, dtype=np.float64)) for name, row in values.items()}
