"""SS-IL: a softmax among old classes, one among new ones, and distillation task by task."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from polarbear.engine.contract.batch import Batch
from polarbear.methods.by_task import ByTask
from polarbear.methods.softmax import cross_entropy


class SSIL(ByTask):
    """Separated softmax: a new image competes among new classes, a stored one among old ones.

    Every step has ``beside`` stored images beside its new ones. With s* the previous network's
    logits, and t each earlier task with its classes alone::

        loss = CE(s_new or s_old, labels) + Σ_t T² · CE(softmax(s_t / T), softmax(s*_t / T))
    """

    summary = "separate softmaxes of old and new classes; distils task by task"
    replay = "reference"
    selection = "random"
    wants_teacher = True

    @dataclass(frozen=True)
    class Options(ByTask.Options):
        """Settings of SS-IL."""

        beside: int = field(default=32, metadata={"at_least": 1})
        """Stored images beside each step."""
        temperature: float = field(default=2.0, metadata={"at_least": 1e-3})
        """Temperature T of the distillation."""

    options: Options
    reference_batch_size = property(lambda self: self.options.beside)

    def backward(self, batch: Batch, reference: Batch | None) -> Tensor:
        """Add the gradients of both batches, which go through the network together."""
        loss = self.loss(batch) if reference is None else self.joint_loss(batch, reference)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def loss(self, batch: Batch) -> Tensor:
        """Return the cross-entropy among the task's classes: that of a step without memory."""
        new = self.context.new
        return cross_entropy(self.model(batch.images)[:, new], batch.targets[:, new])

    def joint_loss(self, batch: Batch, reference: Batch) -> Tensor:
        """Return the separate cross-entropies, and the distillation of each earlier task."""
        images, count = torch.cat([batch.images, reference.images]), len(batch.images)
        before, logits = self.asked_before(images), self.model(images)
        old, new = slice(self.context.old), self.context.new
        taught = cross_entropy(logits[:count, new], batch.targets[:, new]) * count
        recalled = cross_entropy(logits[count:, old], reference.targets[:, old])
        loss = (taught + recalled * len(reference.images)) / len(images)
        if before is not None:
            heat = self.options.temperature
            loss = loss + heat**2 * self.distilled(logits, before, heat)
        # A process counts by its part of both batches together, not of the task's alone.
        return loss * (len(images) / (count + len(reference.images) / reference.weight))
