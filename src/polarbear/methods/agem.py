"""A-GEM: a step on the task that does not go against a step on the memory."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from polarbear.engine.contract.batch import Batch
from polarbear.engine.contract.method import Method, bce
from polarbear.methods.vectors import add_gradients, flat


class AGEM(Method):
    """Binary cross-entropy over the task's classes, its gradient bent away from forgetting.

    With g the task's gradient and r that of BCE over the old classes on random memory images:
    g ← g − (g·r / r·r) r where g·r < 0, over all parameters together.
    """

    summary = "projects the gradient so that the loss on stored images does not grow"
    keep = "last"
    replay = "reference"

    @dataclass(frozen=True)
    class Options(Method.Options):
        """Settings of A-GEM."""

        reference_batch_size: int = field(default=128, metadata={"at_least": 1})
        """Memory images that give the reference gradient of a step."""

    reference_batch_size = property(lambda self: self.options.reference_batch_size)

    def loss(self, batch: Batch) -> Tensor:
        """Return BCE over this task's classes."""
        new = self.context.new
        return bce(self.model(batch.images)[:, new], batch.targets[:, new])

    def backward(self, batch: Batch, reference: Batch | None) -> Tensor:
        """Add the projected gradient, of all the step's images, and give the task's loss."""
        if reference is None:
            return super().backward(batch, None)
        parameters = [p for p in self.model.parameters() if p.requires_grad]
        loss = self.loss(batch)
        gradient = torch.autograd.grad(loss, parameters, materialize_grads=True)
        logits, old = self.model(reference.images), slice(self.context.old)
        kept = bce(logits[:, old], reference.targets[:, old]) * reference.weight
        against = torch.autograd.grad(kept, parameters, materialize_grads=True)
        means, count = self.world.means([*gradient, *against]), len(parameters)
        add_gradients(parameters, project(means[:count], means[count:]))
        return loss.detach()


def project(gradient: tuple[Tensor, ...], against: tuple[Tensor, ...]) -> list[Tensor]:
    """Return the gradient g, or the nearest to it that does not oppose r, over all parameters."""
    g, r = (flat(parts) for parts in (gradient, against))
    # Sums of products, not g @ r: autocast would round a matrix product to bf16. And a choice on
    # the device: asking for the number would make the host wait at every step.
    dot = (g * r).sum()
    along = torch.where(dot < 0, dot / (r * r).sum(), 0)
    return [a - along * b for a, b in zip(gradient, against, strict=True)]
