"""One epoch: the order of its images and their augmentation, decided before its first step."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch

from polarbear.base.arrays import Ints
from polarbear.engine.contract.batch import Batch
from polarbear.engine.generator import keyed
from polarbear.engine.images.pixels import split_rows
from polarbear.engine.images.transform import Jitter, augment, draw
from polarbear.engine.task.learner import Learner
from polarbear.engine.task.training_set import Pool


@dataclass(frozen=True, eq=False)
class Beside:
    """A batch of memory images for each step: row i of ``order`` (steps, k) is that of step i."""

    pool: Pool
    order: Ints
    jitter: Jitter

    @classmethod
    def plan(cls, learner: Learner, pool: Pool, steps: int, place: tuple[int, int]) -> "Beside":
        """Draw k images for each step, none twice in a batch."""
        options, settings = learner.method.options, learner.settings
        count = min(getattr(options, "reference_batch_size", settings.batch_size), len(pool))
        random = keyed(settings.seed, "reference", *place)
        order = np.empty((steps, count), dtype=np.intp)
        for one in order:
            one[:] = random.permutation(len(pool))[:count]
        return cls(pool, order, draw(learner.preparation, order.size, random))


@dataclass(frozen=True, eq=False)
class Epoch:
    """What an epoch does with a pool: the ``order`` (n,) of its images and how each is varied."""

    learner: Learner
    pool: Pool
    order: Ints
    jitter: Jitter
    beside: Beside | None

    @classmethod
    def plan(
        cls, learner: Learner, pool: Pool, reference: Pool | None, place: tuple[int, int]
    ) -> "Epoch":
        """Shuffle a pool and draw its augmentation for (task, epoch).

        ``reference`` is what each step's batch of memory images is drawn from, if one is wanted.
        """
        settings = learner.settings
        order = keyed(settings.seed, "shuffle", *place).permutation(len(pool))
        jitter = draw(learner.preparation, len(pool), keyed(settings.seed, "augment", *place))
        steps = -(-len(pool) // settings.batch_size)
        beside = None if reference is None else Beside.plan(learner, reference, steps, place)
        return cls(learner, pool, order, jitter, beside)

    def batches(self, first: int = 0) -> Iterator[tuple[Batch, Batch | None]]:
        """Give each step's batch, and its batch of memory images, from step ``first`` on."""
        size = self.learner.settings.batch_size
        chosen = split_rows(self.order, size)[first:]
        pixels = self.learner.train_pixels.batches([self.pool.rows[part] for part in chosen])
        for i, (part, images) in enumerate(zip(chosen, pixels, strict=True), start=first):
            jitter = self.jitter[i * size : i * size + len(part)]
            yield self._batch(images, self.pool.take(part), jitter), self._reference(i)

    def _batch(self, images: torch.Tensor, pool: Pool, jitter: Jitter) -> Batch:
        device = images.device
        return Batch(
            augment(images, jitter.to(device), self.learner.preparation),
            torch.tensor(pool.targets, dtype=torch.float32, device=device),
            torch.tensor(pool.replayed, device=device),
        )

    def _reference(self, step: int) -> Batch | None:
        if self.beside is None:
            return None
        count = self.beside.order.shape[1]
        pool = self.beside.pool.take(self.beside.order[step])
        (images,) = self.learner.train_pixels.batches([pool.rows])
        return self._batch(images, pool, self.beside.jitter[step * count : (step + 1) * count])
