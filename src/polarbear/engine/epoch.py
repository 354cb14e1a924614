"""One epoch: its images in their drawn order, with their augmentation, as batches."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from polarbear.arrays import Ints
from polarbear.engine.augment import Jitter, augment, draw
from polarbear.engine.batch import Batch
from polarbear.engine.keys import keyed
from polarbear.engine.learner import Learner
from polarbear.engine.pixels import split_rows
from polarbear.engine.pool import Pool


@dataclass(frozen=True, eq=False)
class Epoch:
    """Everything an epoch will do, decided from its key before the first step.

    ``pool`` is in the order of training; ``reference`` is what each step's batch of memory images
    is drawn from, for methods that want one.
    """

    learner: Learner
    pool: Pool
    jitter: Jitter
    reference: Pool | None
    place: tuple[int, int]

    @classmethod
    def plan(
        cls, learner: Learner, pool: Pool, reference: Pool | None, place: tuple[int, int]
    ) -> "Epoch":
        """Shuffle a pool and draw its augmentation for (task, epoch)."""
        seed = learner.settings.seed
        order = keyed(seed, "shuffle", *place).permutation(len(pool))
        jitter = draw(learner.preparation, len(pool), keyed(seed, "augment", *place))
        return cls(learner, pool.take(order), jitter, reference, place)

    def batches(self, first: int = 0) -> Iterator[tuple[Batch, Batch | None]]:
        """Give each step's batch, and its batch of memory images, from step ``first`` on."""
        size = self.learner.settings.batch_size
        steps = split_rows(self.pool.rows, size)[first:]
        for i, images in enumerate(self.learner.train_pixels.batches(steps), start=first):
            part = slice(i * size, i * size + len(images))
            batch = self._batch(images, self.pool, part, self.jitter[part])
            yield batch, self._reference(i)

    def _batch(self, images: torch.Tensor, pool: Pool, part: slice, jitter: Jitter) -> Batch:
        device = images.device
        return Batch(
            augment(images, jitter.to(device), self.learner.preparation),
            torch.tensor(pool.targets[part], dtype=torch.float32, device=device),
            torch.tensor(pool.replayed[part], device=device),
        )

    def _reference(self, step: int) -> Batch | None:
        if self.reference is None:
            return None
        random = keyed(self.learner.settings.seed, "reference", *self.place, step)
        options, settings = self.learner.method.options, self.learner.settings
        count = getattr(options, "reference_batch_size", settings.batch_size)
        chosen: Ints = random.permutation(len(self.reference))[:count]
        pool = self.reference.take(chosen)
        (images,) = self.learner.train_pixels.batches([pool.rows])
        jitter = draw(self.learner.preparation, len(pool), random)
        return self._batch(images, pool, slice(None), jitter)
