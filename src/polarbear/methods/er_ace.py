"""ER-ACE: new images ask about the classes of their batch alone, stored ones about all."""

from torch import Tensor

from polarbear.engine.contract.batch import Batch
from polarbear.methods.softmax import NEVER, BesideMethod, cross_entropy


class ERACE(BesideMethod):
    """Asymmetric cross-entropy: a softmax over the classes present, and one over all seen ones.

    New images compete among the classes of their batch, so that they push no old class down;
    a batch of stored images, beside each step, teaches all seen classes together.
    """

    summary = "replays from a reservoir; new images compete among their batch's classes alone"

    def loss(self, batch: Batch) -> Tensor:
        """Return the cross-entropy among the classes that the batch has; in the first task, all."""
        images = self.world.sum(batch.targets.sum(dim=0))
        logits = self.model(batch.images)
        if self.context.old:
            logits = logits.masked_fill(images == 0, NEVER)
        return cross_entropy(logits, batch.targets)

    def replay_loss(self, reference: Batch) -> Tensor:
        """Return the cross-entropy of stored images over all seen classes."""
        return cross_entropy(self.model(reference.images), reference.targets)
