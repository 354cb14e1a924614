"""What an epoch trains on: the task's images and, mixed in, every memory image once."""

from dataclasses import dataclass

import numpy as np

from polarbear.base.arrays import Bools, Ints
from polarbear.benchmark.stream import Stream, View
from polarbear.engine.contract.method import Method
from polarbear.engine.task.replay_memory import ReplayMemory


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Training rows (n,), their labels (n, seen), and which come from memory (n,)."""

    rows: Ints
    targets: Bools
    replayed: Bools

    @classmethod
    def of(cls, view: View, memory: ReplayMemory | None = None) -> "TrainingSet":
        """Join a view and a memory, whose stored labels say nothing about later classes."""
        if memory is None or not len(memory.rows):
            return cls(view.rows, view.targets, np.zeros(len(view), dtype=bool))
        stored = memory.targets(len(view.classes))
        return cls(
            np.concatenate([view.rows, memory.rows]),
            np.concatenate([view.targets, stored]),
            np.repeat([False, True], [len(view), len(stored)]),
        )

    @classmethod
    def of_memory(cls, memory: ReplayMemory, seen: int) -> "TrainingSet":
        """Return the memory alone."""
        return cls(memory.rows, memory.targets(seen), np.ones(len(memory.rows), dtype=bool))

    def __len__(self) -> int:
        """Count the images of an epoch."""
        return len(self.rows)

    def take(self, index: Ints | slice) -> "TrainingSet":
        """Return some of it, in another order."""
        return TrainingSet(self.rows[index], self.targets[index], self.replayed[index])


@dataclass(frozen=True, eq=False)
class TaskImages:
    """What a task trains on, what its steps' memory batches are drawn from, if any, and validates.

    The same in every epoch.
    """

    training_set: TrainingSet
    reference: TrainingSet | None
    valid: View

    @classmethod
    def of(cls, stream: Stream, task: int, method: Method, memory: ReplayMemory) -> "TaskImages":
        """Gather a task's images, or those of the union so far with complete labels."""
        view = training_view(stream, task, method.complete)
        mixed = memory if method.replay == "mixed" else None
        beside = method.replay == "reference" and len(memory) > 0
        return cls(
            TrainingSet.of(view, mixed),
            TrainingSet.of_memory(memory, len(view.classes)) if beside else None,
            stream.valid(after=task) if method.complete else stream[task].valid,
        )


def training_view(stream: Stream, task: int, complete: bool) -> View:
    """Return what a learner trains on: the task, or the union so far with complete labels."""
    return stream.train(after=task) if complete else stream[task].train
