"""What an epoch trains on: the task's images and, mixed in, every memory image once."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from torch import Tensor

from polarbear.base.arrays import Bools, Ints
from polarbear.benchmark.stream import Stream, View
from polarbear.engine.task.labels import Labels
from polarbear.engine.task.learner import Learner
from polarbear.engine.task.replay_memory import ReplayMemory
from polarbear.engine.task.stored import tables


@dataclass(frozen=True, eq=False)
class TrainingSet:
    """Training rows (n,), their labels, and where in memory each is (n,), -1 if nowhere.

    ``stored`` are tables on the device of what the method keeps with memory images, by name: an
    image has the row of its place there, and the last row is zeros.
    """

    rows: Ints
    labels: Labels
    places: Ints
    stored: Mapping[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, view: View, memory: ReplayMemory | None = None) -> "TrainingSet":
        """Join a view and a memory, whose stored labels say nothing about later classes."""
        if memory is None or not len(memory.rows):
            return cls(view.rows, Labels.of_view(view), np.full(len(view), -1))
        return cls(
            np.concatenate([view.rows, memory.rows]),
            Labels.joined([Labels.of_view(view), memory.labels(len(view.classes))]),
            np.concatenate([np.full(len(view), -1), np.arange(len(memory))]),
        )

    @classmethod
    def of_memory(cls, memory: ReplayMemory, seen: int) -> "TrainingSet":
        """Return the memory alone."""
        return cls(memory.rows, memory.labels(seen), np.arange(len(memory.rows)))

    @property
    def targets(self) -> Bools:
        """Labels as a matrix: (n, seen)."""
        return self.labels.targets

    @property
    def replayed(self) -> Bools:
        """Which come from memory: (n,)."""
        return self.places >= 0

    def __len__(self) -> int:
        """Count the images of an epoch."""
        return len(self.rows)

    def take(self, index: Ints | slice) -> "TrainingSet":
        """Return some of it, in another order."""
        labels = self.labels.take(index)
        return TrainingSet(self.rows[index], labels, self.places[index], self.stored)


@dataclass(frozen=True, eq=False)
class TaskImages:
    """What a task trains on, what its steps' memory batches are drawn from, if any, and validates.

    The same in every epoch. A reservoir's batches are drawn from its slots instead.
    """

    training_set: TrainingSet
    reference: TrainingSet | None
    valid: View

    @classmethod
    def of(cls, stream: Stream, task: int, learner: Learner) -> "TaskImages":
        """Gather a task's images, or those of the union so far with complete labels."""
        method, memory, reservoir = learner.method, learner.memory, learner.reservoir
        view = training_view(stream, task, method.complete)
        mixed = memory if method.replay == "mixed" else None
        beside = method.replay == "reference" and reservoir is None and len(memory) > 0
        device = learner.machine.device
        stored = reservoir.stored if reservoir else tables(memory.stored, device)
        reference = TrainingSet.of_memory(memory, len(view.classes)) if beside else None
        return cls(
            replace(TrainingSet.of(view, mixed), stored=stored),
            reference and replace(reference, stored=stored),
            stream.valid(after=task) if method.complete else stream[task].valid,
        )


def training_view(stream: Stream, task: int, complete: bool) -> View:
    """Return what a learner trains on: the task, or the union so far with complete labels."""
    return stream.train(after=task) if complete else stream[task].train
