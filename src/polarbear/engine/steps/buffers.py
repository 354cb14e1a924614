"""A training set and an epoch's plan on the device, where captured steps find their batches."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from polarbear.engine.contract.batch import Batch
from polarbear.engine.images.feed import Feed
from polarbear.engine.images.pixels import ResidentPixels
from polarbear.engine.images.task_pixels import feed_of, resident
from polarbear.engine.images.transform import Jitter, augment_views
from polarbear.engine.task.epoch_plan import Drawn
from polarbear.engine.task.learner import Learner
from polarbear.engine.task.reservoir import Reservoir, SlotPlan


@dataclass(frozen=True, eq=False)
class TrainingSetBuffers:
    """A training set on the device, and what an epoch does with it: order (m,), jitters of (m,).

    An image has the labels of its kind, a row of ``table``, and its place is its row of the
    ``stored`` tables. A whole step takes ``size`` images. Where these are not on the device, a
    ``feed`` brings them there for every step.
    """

    rows: Tensor
    table: Tensor
    kinds: Tensor
    places: Tensor
    stored: Mapping[str, Tensor]
    order: Tensor
    jitters: tuple[Jitter, ...]
    size: int
    feed: Feed | None = None

    @classmethod
    def of(cls, drawn: Drawn, learner: Learner) -> "TrainingSetBuffers":
        """Copy a training set to the device, with room for what an epoch draws of it."""
        device = learner.machine.device
        return cls(
            torch.tensor(drawn.training_set.rows, device=device),
            torch.tensor(drawn.training_set.labels.table, device=device),
            torch.tensor(drawn.training_set.labels.kind, device=device),
            torch.tensor(drawn.training_set.places, device=device),
            drawn.training_set.stored,
            torch.tensor(drawn.order, device=device),
            tuple(jitter.to(device) for jitter in drawn.jitters),
            drawn.size,
            feed_of(learner.train_pixels, drawn.size, device),
        )

    @classmethod
    def of_slots(cls, plan: SlotPlan, reservoir: Reservoir) -> "TrainingSetBuffers":
        """Draw from a reservoir's own tensors, as steps change them."""
        device = reservoir.rows.device
        return cls(
            reservoir.rows,
            reservoir.targets,
            torch.arange(len(reservoir.rows), device=device),
            torch.arange(len(reservoir.rows), device=device),
            reservoir.stored,
            torch.tensor(plan.order, device=device),
            tuple(jitter.to(device) for jitter in plan.jitters),
            plan.size,
        )

    def take(self, drawn: Drawn | SlotPlan) -> None:
        """Take over an epoch's order and jitters, in the order of this stream's work."""
        self.order.copy_(torch.from_numpy(drawn.order).pin_memory(), non_blocking=True)
        for here, new in zip(self.jitters, drawn.jitters, strict=True):
            here.place.copy_(new.place.pin_memory(), non_blocking=True)
            here.flip.copy_(new.flip.pin_memory(), non_blocking=True)

    def batch(self, step: Tensor, images: int, learner: Learner) -> Batch:
        """Return the batch of a step (a device number), whose ``images`` may be fewer than all."""
        at = self.at(step, images)
        chosen = self.order[at]
        places, rows = self.places[chosen], self.rows[chosen]
        if self.feed is not None:
            pixels = self.feed.arrived[:images]
        else:
            pixels = cast(ResidentPixels, resident(learner.train_pixels)).at(rows)
        compiled = learner.model.compilation is not None and images == self.size
        jitters = [jitter[at] for jitter in self.jitters]
        first, others = augment_views(pixels, jitters, learner.transform, compiled=compiled)
        return Batch(
            first,
            self.table[self.kinds[chosen]].float(),
            places >= 0,
            rows,
            {name: table[places] for name, table in self.stored.items()},
            others,
        )

    def at(self, step: Tensor, images: int) -> Tensor:
        """Return where in an epoch's order the images of a step are: (images,)."""
        return step * self.size + torch.arange(images, device=step.device)
