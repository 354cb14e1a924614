"""EWC: weights are held by the Fisher information of earlier tasks."""

from dataclasses import dataclass, field

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from polarbear.methods.anchored import Anchored, mean_over_images


class EWC(Anchored):
    """Elastic weight consolidation, online: one Fisher information and one θ* for all tasks.

    When a task ends, Ω ← decay · Ω + F, with F the mean over its images of the squared gradient of
    −log p(labels), divided by the number of its classes as the loss is.
    """

    summary = "holds each weight by its Fisher information in earlier tasks; keeps no image"

    @dataclass(frozen=True)
    class Options(Anchored.Options):
        """Settings of EWC."""

        strength: float = field(default=40.0, metadata={"at_least": 0})
        """λ: how firmly weights are held, beside the loss."""
        decay: float = field(default=1.0, metadata={"at_least": 0})
        """γ: what is left of earlier tasks' Fisher information when a task ends."""

    options: Options

    def end_task(self) -> None:
        """Find out how much each weight matters to this task."""
        new = self.context.new
        classes = new.stop - new.start

        def surprise(logits: Tensor, targets: Tensor) -> Tensor:
            return binary_cross_entropy_with_logits(logits[new], targets[new], reduction="sum")

        fisher = mean_over_images(self, surprise, lambda gradient: gradient**2)
        self.consolidate(self.options.decay, fisher / classes)
