"""MAS: weights are held by how much they move the network's outputs."""

from torch import Tensor

from polarbear.methods.anchored import Anchored, mean_over_images


class MAS(Anchored):
    """Memory aware synapses: what changes the outputs most is held most, whatever the labels.

    When a task ends, Ω grows by the mean over its images of |∂ ‖z‖² / ∂θ|, with z the logits of all
    seen classes.
    """

    summary = "holds each weight by how much it moves the outputs; keeps no image"

    def end_task(self) -> None:
        """Find out how much each weight moves the outputs on this task's images."""

        def length(logits: Tensor, targets: Tensor) -> Tensor:
            return (logits**2).sum()

        self.consolidate(1.0, mean_over_images(self, length, Tensor.abs))
