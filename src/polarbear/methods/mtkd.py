"""MTKD: two teachers, the previous network and the first, which knew superclasses best."""

from dataclasses import dataclass, field

from torch import Tensor

from polarbear.engine.contract.batch import Batch
from polarbear.engine.contract.method import Method, bce, frozen_copy, teacher_targets
from polarbear.methods.icarl_cnn import ICarlCNN, distilled_targets


class MTKD(ICarlCNN):
    """As iCaRL-CNN, and the network of the first task's end teaches that task's classes too.

    With z the logits, z° those of the first network, of its own classes alone::

        loss = BCE(z, labels; old classes: sigmoid of the previous network)
             + weight · BCE(z of the first classes, sigmoid(z°))

    Of the classes whose logit is not negative, at most the k likeliest are predicted.
    """

    summary = "distils from the previous network and from the first; predicts at most k classes"

    @dataclass(frozen=True)
    class Options(Method.Options):
        """Settings of MTKD."""

        first_weight: float = field(default=1.0, metadata={"at_least": 0})
        """Weight of what the first network teaches."""
        top_k: int = field(default=2, metadata={"at_least": 1})
        """Classes that are predicted for an image, at most."""

    options: Options

    def end_task(self) -> None:
        """Keep the network of the first task."""
        if self.context.task == 0:
            self.networks["first"] = frozen_copy(self.model)

    def loss(self, batch: Batch) -> Tensor:
        """Return BCE with the previous network's word, and with the first one's."""
        logits = self.model(batch.images)
        loss = bce(logits, distilled_targets(self.teacher, batch))
        if self.teacher is None:
            return loss
        first = teacher_targets(self.networks["first"], batch.images).to(batch.targets)
        return loss + self.options.first_weight * bce(logits[:, : first.shape[1]], first)

    def decide(self, scores: Tensor) -> Tensor:
        """Return the k likeliest of the classes whose score is not negative: (n, seen)."""
        count = min(self.options.top_k, scores.shape[1])
        likeliest = scores.new_zeros(scores.shape).scatter(1, scores.topk(count).indices, 1)
        return (scores >= 0) & (likeliest > 0)
