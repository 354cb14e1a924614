"""What a run measures: the lines of ``scores.jsonl`` and of ``epochs.jsonl``."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from polarbear.base.arrays import Floats

#: Metrics that are also worked out for each task's images: R_jk.
BY_TASK = ("pw_jaccard", "jaccard")


@dataclass(frozen=True, eq=False)
class ScoreRecord:
    """Scores on a split after task j: ``scores`` by name, ``by_task`` (j + 1,) for each task k.

    ``parents`` (s,) are what the method infers the classes above the seen ones to be, by their
    columns, -1 for none; None if it infers nothing.

    >>> record = ScoreRecord(0, "test", {"pw_jaccard": 0.5}, {"pw_jaccard": np.array([0.5])})
    >>> ScoreRecord.from_json(record.to_json(), tasks=1).r
    0.5
    """

    after: int
    split: str
    scores: Mapping[str, float]
    by_task: Mapping[str, Floats]
    parents: tuple[int, ...] | None = None

    @property
    def r(self) -> float:
        """R_j: the mean pw-JS over the images of tasks 0 to j."""
        return self.scores["pw_jaccard"]

    def to_json(self) -> dict[str, Any]:
        """Return the line's content; what is no number is null."""
        by_task = {name: [_plain(value) for value in row] for name, row in self.by_task.items()}
        scores = {name: _plain(value) for name, value in self.scores.items()}
        own = {} if self.parents is None else {"parents": list(self.parents)}
        return {
            "after": self.after,
            "split": self.split,
            "scores": scores,
            "by_task": by_task,
        } | own

    @classmethod
    def from_json(cls, line: Mapping[str, Any], tasks: int) -> "ScoreRecord":
        """Return what a line of a run of so many tasks says; anything else is an error.

        Scores that this version does not know are kept too.
        """
        after, split = line["after"], line["split"]
        if type(after) is not int or not 0 <= after < tasks:
            raise ValueError(f"there is no task {after!r} of {tasks}")
        scores = {name: as_number(value) for name, value in line["scores"].items()}
        by_task = {name: np.array([*map(as_number, row)]) for name, row in line["by_task"].items()}
        for name, row in by_task.items():
            if len(row) != after + 1:
                raise ValueError(f"{len(row)} values of {name} by task after task {after}")
        parents = line.get("parents")
        return cls(after, split, scores, by_task, None if parents is None else tuple(parents))


@dataclass(frozen=True)
class EpochRecord:
    """An epoch: its mean ``loss``, learning ``rate``, in-task validation score and cost.

    ``images`` are those of the training set, ``memory_images`` what a method such as A-GEM takes
    from memory beside them. ``own`` are numbers that the method logged; ``phase`` is empty in a
    task's main one.

    >>> record = EpochRecord(0, 1, loss=0.5, rate=1.0, valid=0.25, images=300, seconds=2.0)
    >>> EpochRecord.from_json(record.to_json()) == record
    True
    """

    task: int
    epoch: int
    loss: float
    rate: float
    valid: float
    images: int
    seconds: float
    phase: str = ""
    own: Mapping[str, float] = field(default_factory=dict)
    memory_images: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the line's content, without what most epochs have not."""
        seldom = ("phase", "own", "memory_images")
        return {k: v for k, v in asdict(self).items() if k not in seldom or v}

    @classmethod
    def from_json(cls, line: Mapping[str, Any]) -> "EpochRecord":
        """Return what a line says; anything else is an error."""
        numbers = ("loss", "rate", "valid", "seconds")
        counts = [line[name] for name in ("task", "epoch", "images")]
        counts.append(line.get("memory_images", 0))
        if not all(type(count) is int for count in counts):
            raise ValueError(f"its task, epoch, images and memory_images are {counts!r:.60}")
        task, epoch, images, memory = counts
        own = {str(name): as_number(value) for name, value in line.get("own", {}).items()}
        loss, rate, valid, seconds = (as_number(line[name]) for name in numbers)
        phase = str(line.get("phase", ""))
        return cls(task, epoch, loss, rate, valid, images, seconds, phase, own, memory)


def _plain(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def as_number(value: Any) -> float:
    """Return a number that JSON holds, NaN for null; anything else is a ValueError."""
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise ValueError(f"{str(value)[:40]!r} is no number")
    return float(value)
