"""One epoch: the order of its images and their augmentation, decided before its first step."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from polarbear.base.arrays import Ints
from polarbear.engine.contract.batch import Batch
from polarbear.engine.generator import generator_for
from polarbear.engine.images.transform import Jitter, augment
from polarbear.engine.task.learner import Learner
from polarbear.engine.task.training_set import TrainingSet

Place = tuple[int, ...]
"""A task, an epoch of it and, after the main one, a phase."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """Images in the ``order`` (m,) in which steps take ``size`` of them, and how each is varied."""

    training_set: TrainingSet
    order: Ints
    jitter: Jitter
    size: int

    def of_step(self, step: int) -> TrainingSet:
        """Return the images of a step, with their labels."""
        return self.training_set.take(self.order[step * self.size : (step + 1) * self.size])

    def batch(self, step: int, images: Tensor, learner: Learner) -> Batch:
        """Return a step's batch, given its images as they are stored."""
        device, labelled = images.device, self.of_step(step)
        jitter = self.jitter[step * self.size : (step + 1) * self.size]
        return Batch(
            augment(images, jitter.to(device), learner.transform),
            torch.tensor(labelled.targets, dtype=torch.float32, device=device),
            torch.tensor(labelled.replayed, device=device),
        )


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """What an epoch's steps take: images of the training set and, if wanted, of memory beside.

    ``place`` is the task and the epoch it is for.
    """

    learner: Learner
    place: Place
    steps: int
    drawn: Drawn
    beside: Drawn | None

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
        seed, size, images = learner.settings.seed, learner.settings.batch_size, len(training_set)
        order = generator_for(seed, "shuffle", *place).permutation(images)
        jitter = learner.transform.crop.draw(images, generator_for(seed, "augment", *place))
        steps = -(-images // size)
        beside = None if reference is None else _draw_beside(learner, reference, steps, place)
        return cls(learner, place, steps, Drawn(training_set, order, jitter, size), beside)

    def batches(self, first: int = 0) -> Iterator[tuple[Batch, Batch | None]]:
        """Yields each step's batch, and its batch of memory images, from step ``first`` on."""
        learner, steps = self.learner, range(first, self.steps)
        pixels = learner.train_pixels.batches([self.drawn.of_step(step).rows for step in steps])
        for step, images in zip(steps, pixels, strict=True):
            reference = None
            if self.beside is not None:
                (stored,) = learner.train_pixels.batches([self.beside.of_step(step).rows])
                reference = self.beside.batch(step, stored, learner)
            yield self.drawn.batch(step, images, learner), reference


def _draw_beside(learner: Learner, stored: TrainingSet, steps: int, place: Place) -> Drawn:
    """Draw as many images as the method wants for each step, none twice in a batch."""
    settings, wanted = learner.settings, learner.method.reference_batch_size
    size = min(wanted or settings.batch_size, len(stored))
    random = generator_for(settings.seed, "reference", *place)
    drawn = [random.permutation(len(stored))[:size] for _ in range(steps)]
    order = np.concatenate(drawn) if drawn else np.empty(0, dtype=np.intp)
    return Drawn(stored, order, learner.transform.crop.draw(len(order), random), size)
