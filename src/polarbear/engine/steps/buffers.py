"""A pool of images and an epoch's plan on the device, where captured steps find their batches."""

from dataclasses import dataclass

import torch
from torch import Tensor

from polarbear.base.arrays import Ints
from polarbear.engine.contract.batch import Batch
from polarbear.engine.images.pixels import ResidentPixels
from polarbear.engine.images.transform import Jitter, augment
from polarbear.engine.task.learner import Learner
from polarbear.engine.task.training_set import Pool


@dataclass(frozen=True, eq=False)
class PoolBuffers:
    """A pool on the device, and what an epoch does with it: order (m,), jitter of (m,) places."""

    rows: Tensor
    targets: Tensor
    replayed: Tensor
    order: Tensor
    jitter: Jitter

    @classmethod
    def of(cls, pool: Pool, order: Ints, jitter: Jitter, device: torch.device) -> "PoolBuffers":
        """Copy a pool to the device, with room for plans of this size."""
        return cls(
            torch.tensor(pool.rows, device=device),
            torch.tensor(pool.targets, device=device),
            torch.tensor(pool.replayed, device=device),
            torch.tensor(order.ravel(), device=device),
            jitter.to(device),
        )

    def plan(self, order: Ints, jitter: Jitter) -> None:
        """Take an epoch's order and jitter, in the order of this stream's work."""
        self.order.copy_(torch.from_numpy(order.ravel()).pin_memory(), non_blocking=True)
        self.jitter.place.copy_(jitter.place.pin_memory(), non_blocking=True)
        self.jitter.flip.copy_(jitter.flip.pin_memory(), non_blocking=True)

    def batch(self, start: Tensor, size: int, learner: Learner) -> Batch:
        """Give the batch of ``size`` images at a cursor (a device number)."""
        at = start + torch.arange(size, device=start.device)
        chosen = self.order[at]
        pixels: ResidentPixels = learner.train_pixels  # type: ignore[assignment]
        images = pixels.data[self.rows[chosen]]
        jitter = Jitter(self.jitter.place[at], self.jitter.flip[at])
        compiled = size == learner.model.compiled_batch
        return Batch(
            augment(images, jitter, learner.preparation, compiled=compiled),
            self.targets[chosen].float(),
            self.replayed[chosen],
        )
