"""A memory that changes at every step: each training image is offered, chance decides (Vitter).

Where an image lands depends on the order alone, so an epoch's landings are planned by key before
its first step. What is stored with an image is only known at the step, so the slots are on the
device, where captured steps change them in place.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polarbear.base.arrays import Ints, frozen
from polarbear.engine.contract.batch import Batch
from polarbear.engine.images.transform import Jitter
from polarbear.engine.task.replay_memory import ANY_CLASS, ClassList, ReplayMemory
from polarbear.engine.task.stored import Shapes, on_host, stored_shapes, tables

SPARE = 2  # rows after the slots: one takes what is not kept, the last stays zero


@dataclass(frozen=True, eq=False)
class Reservoir:
    """Slots on the device: ``rows`` of the training file, -1 where none is yet, and ``targets``.

    ``stored`` is what the method keeps with each, by name, and ``shapes`` what it gives for an
    image in this task. Each tensor has two more rows than there are slots: images that are not
    kept land in the first of them, and the last holds zeros for images that are not from memory.
    ``offered`` images were offered before this task.
    """

    rows: Tensor
    targets: Tensor
    stored: Mapping[str, Tensor]
    shapes: Shapes
    offered: int

    @classmethod
    def of(
        cls,
        memory: ReplayMemory,
        slots: int,
        seen: int,
        trial: Mapping[str, NDArray[Any]],
        device: torch.device,
    ) -> "Reservoir":
        """Put a memory into slots; ``trial`` is what the method stores with some image now."""
        rows = np.full(slots + SPARE, -1)
        rows[: len(memory)] = memory.rows
        targets = np.zeros((slots + SPARE, seen), dtype=bool)
        targets[: len(memory)] = memory.targets(seen)
        # One list more, of an empty slot, brings every name and the widest shape along.
        empty = np.zeros((1, seen), dtype=bool)
        wider = ClassList(ANY_CLASS, np.zeros(1, np.intp), 0, empty, trial)
        widest = ReplayMemory((*memory.lists, wider)).stored
        stored = {
            name: np.zeros_like(array, shape=(slots + 1, *array.shape[1:]))
            for name, array in widest.items()
        }
        for name, array in stored.items():
            array[: len(memory)] = widest[name][:-1]
        return cls(
            torch.tensor(rows, device=device),
            torch.tensor(targets, device=device),
            tables(stored, device),
            {name: array.shape[1:] for name, array in trial.items()},
            memory.offered,
        )

    @property
    def slots(self) -> int:
        """Images it has room for."""
        return len(self.rows) - SPARE

    def tensors(self) -> list[Tensor]:
        """Return all that a step changes."""
        return [self.rows, self.targets, *self.stored.values()]

    @torch.no_grad()
    def put(self, slots: Tensor, batch: Batch, found: Mapping[str, Tensor], method: str) -> None:
        """Let a step's images land in slots (n,), with what the method stores: ``found``."""
        stored_shapes(found, len(batch.rows), method, self.shapes)
        self.rows[slots] = batch.rows
        self.targets[slots] = batch.targets.bool()
        for name, table in self.stored.items():
            new = table.new_zeros((len(slots), *table.shape[1:]))
            if name in found:
                new[(slice(None), *map(slice, self.shapes[name]))] = found[name].to(table.dtype)
            table[slots] = new

    def memory(self, trained: int = 0) -> ReplayMemory:
        """Return the images as they stand, on the host; ``trained`` more were offered meanwhile."""
        rows = self.rows[:-SPARE].cpu().numpy().astype(np.intp)
        count = int((rows >= 0).sum())  # slots are filled in their order
        stored = {name: frozen(on_host(t[:count]).copy()) for name, t in self.stored.items()}
        targets = self.targets[:count].cpu().numpy().copy()
        held = ClassList(ANY_CLASS, frozen(rows[:count]), 0, frozen(targets), stored)
        return ReplayMemory((held,), self.offered + trained)


@dataclass(frozen=True, eq=False)
class SlotPlan:
    """What an epoch's steps draw from a reservoir, and where its images land there.

    Step i draws the first ``counts[i]`` of the slots ``order[i·size : (i + 1)·size]``, varied by
    ``jitters``, one for each view: fewer than ``size`` while fewer are stored. ``landing`` (n,) is
    the slot of each image of the epoch, in its order.
    """

    order: Ints
    jitters: tuple[Jitter, ...]
    size: int
    counts: Ints
    landing: Ints


def landing_slots(
    count: int, offered: int, slots: int, step: int, random: np.random.Generator
) -> Ints:
    """Return where each of ``count`` images lands, after ``offered`` others: algorithm R.

    The first fill the slots in order. Image number i, from 0, then draws one of i + 1 numbers and
    lands in that slot, if there is such a one; else in slot ``slots``, which nobody reads. Of
    images of one step (``step`` at a time) that draw the same slot, the last one stays.

    >>> landing_slots(5, 0, 3, 5, np.random.default_rng(1)).tolist()
    [0, 1, 2, 3, 3]
    """
    number = offered + np.arange(count)
    drawn = np.minimum(random.integers(0, number + 1), slots)
    landing: Ints = np.where(number < slots, number, drawn)
    for begin in range(0, count, step):
        part = landing[begin : begin + step]
        _, last = np.unique(part[::-1], return_index=True)
        replaced = np.ones(len(part), dtype=bool)
        replaced[len(part) - 1 - last] = False
        part[replaced] = slots
    return landing
