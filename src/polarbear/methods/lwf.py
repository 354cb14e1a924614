"""LwF: new classes from labels, old ones from the previous network; no image is stored."""

from dataclasses import dataclass, field

from torch import Tensor

from polarbear.engine.contract.batch import Batch
from polarbear.methods.softmax import SoftmaxMethod, cross_entropy, soft_cross_entropy


class LwF(SoftmaxMethod):
    """Cross-entropy among the task's classes, and distillation among the old ones.

    With s* the previous network's logits::

        loss = CE(s_new, labels) + weight · CE(softmax(s_old / T), softmax(s* / T))

    The two softmaxes meet at the test alone, where the likeliest of all classes is predicted.
    """

    summary = "distils old classes from the previous network; stores no image"
    wants_teacher = True

    @dataclass(frozen=True)
    class Options(SoftmaxMethod.Options):
        """Settings of LwF."""

        distillation: float = field(default=1.0, metadata={"at_least": 0})
        """Weight of the distillation."""
        temperature: float = field(default=2.0, metadata={"at_least": 1e-3})
        """Temperature T of the distillation."""

    options: Options

    def loss(self, batch: Batch) -> Tensor:
        """Return cross-entropy among new classes and distillation among old ones."""
        before = self.asked_before(batch.images)
        return self.taught_and_kept(self.model(batch.images), batch.targets, before)

    def taught_and_kept(self, logits: Tensor, targets: Tensor, before: Tensor | None) -> Tensor:
        """Return both losses of logits and targets (n, seen), with ``before`` (n, old) for s*."""
        new = self.context.new
        taught = cross_entropy(logits[:, new], targets[:, new])
        if before is None:
            return taught
        old = logits[:, : self.context.old]
        kept = soft_cross_entropy(old, before, self.options.temperature)
        return taught + self.options.distillation * kept
