"""One epoch: the order of its images and their augmentation, decided before its first step."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from polarbear.base.arrays import Ints
from polarbear.engine.contract.batch import Batch
from polarbear.engine.generator import generator_for
from polarbear.engine.images.pixels import split_rows
from polarbear.engine.images.transform import Jitter, augment
from polarbear.engine.task.learner import Learner
from polarbear.engine.task.training_set import TrainingSet

Place = tuple[int, int]
"""A task and an epoch of it."""


@dataclass(frozen=True, eq=False)
class Beside:
    """A batch of memory images for each step: row i of ``order`` (steps, k) is that of step i."""

    training_set: TrainingSet
    order: Ints
    jitter: Jitter

    @classmethod
    def plan(cls, learner: Learner, stored: TrainingSet, steps: int, place: Place) -> "Beside":
        """Draw k images for each step, none twice in a batch."""
        settings = learner.settings
        count = min(learner.method.reference_batch_size or settings.batch_size, len(stored))
        random = generator_for(settings.seed, "reference", *place)
        order = np.empty((steps, count), dtype=np.intp)
        for one in order:
            one[:] = random.permutation(len(stored))[:count]
        return cls(stored, order, learner.transform.crop.draw(order.size, random))


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """What an epoch does with a training set: the ``order`` (n,) of its images, how each is varied.

    ``place`` is the task and the epoch it is for.
    """

    learner: Learner
    place: Place
    training_set: TrainingSet
    order: Ints
    jitter: Jitter
    steps: int
    beside: Beside | None

    @classmethod
    def plan(
        cls,
        learner: Learner,
        training_set: TrainingSet,
        reference: TrainingSet | None,
        place: Place,
    ) -> "EpochPlan":
        """Shuffle a training set and draw its augmentation.

        ``reference`` is what each step's batch of memory images is drawn from, if one is wanted.
        """
        settings, images = learner.settings, len(training_set)
        order = generator_for(settings.seed, "shuffle", *place).permutation(images)
        random = generator_for(settings.seed, "augment", *place)
        jitter = learner.transform.crop.draw(images, random)
        steps = -(-images // settings.batch_size)
        beside = None if reference is None else Beside.plan(learner, reference, steps, place)
        return cls(learner, place, training_set, order, jitter, steps, beside)

    def batches(self, first: int = 0) -> Iterator[tuple[Batch, Batch | None]]:
        """Give each step's batch, and its batch of memory images, from step ``first`` on."""
        size = self.learner.settings.batch_size
        chosen = split_rows(self.order, size)[first:]
        rows = [self.training_set.rows[part] for part in chosen]
        pixels = self.learner.train_pixels.batches(rows)
        for i, (part, images) in enumerate(zip(chosen, pixels, strict=True), start=first):
            jitter = self.jitter[i * size : i * size + len(part)]
            yield self._batch(images, self.training_set.take(part), jitter), self._reference(i)

    def _batch(self, images: torch.Tensor, labelled: TrainingSet, jitter: Jitter) -> Batch:
        device = images.device
        return Batch(
            augment(images, jitter.to(device), self.learner.transform),
            torch.tensor(labelled.targets, dtype=torch.float32, device=device),
            torch.tensor(labelled.replayed, device=device),
        )

    def _reference(self, step: int) -> Batch | None:
        if self.beside is None:
            return None
        count = self.beside.order.shape[1]
        stored = self.beside.training_set.take(self.beside.order[step])
        (images,) = self.learner.train_pixels.batches([stored.rows])
        return self._batch(images, stored, self.beside.jitter[step * count : (step + 1) * count])
