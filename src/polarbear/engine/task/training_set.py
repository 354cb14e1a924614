"""What an epoch trains on: the task's images and, mixed in, every memory image once."""

from dataclasses import dataclass

import numpy as np

from polarbear.base.arrays import Bools, Ints
from polarbear.benchmark.stream import Stream, View
from polarbear.engine.task.replay_memory import Memory


@dataclass(frozen=True, eq=False)
class Pool:
    """Training rows (n,), their labels (n, seen), and which come from memory (n,)."""

    rows: Ints
    targets: Bools
    replayed: Bools

    @classmethod
    def of(cls, view: View, memory: Memory | None = None) -> "Pool":
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
    def of_memory(cls, memory: Memory, seen: int) -> "Pool":
        """Give the memory alone."""
        return cls(memory.rows, memory.targets(seen), np.ones(len(memory.rows), dtype=bool))

    def __len__(self) -> int:
        """Count the images of an epoch."""
        return len(self.rows)

    def take(self, index: Ints) -> "Pool":
        """Give some of it, in another order."""
        return Pool(self.rows[index], self.targets[index], self.replayed[index])


def training_view(stream: Stream, task: int, complete: bool) -> View:
    """Give what a learner trains on: the task, or the union so far with complete labels."""
    return stream.train(after=task) if complete else stream[task].train


def validation_view(stream: Stream, task: int, complete: bool) -> View:
    """Give what a learner is validated on while it trains, likewise."""
    return stream.valid(after=task) if complete else stream[task].valid
