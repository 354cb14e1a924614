"""Mask-seen: experience replay that asks about the current task's classes alone."""

from torch import Tensor

from polarbear.engine.contract.batch import Batch
from polarbear.engine.contract.method import Method, bce


class MaskSeen(Method):
    """Binary cross-entropy over the current task's classes, on task and memory images alike.

    Old classes' outputs get no target, so no image asks to forget them; memory images are
    examples of what the new classes are not.
    """

    summary = "replays random stored images; only the current task's classes get a loss"
    keep = "last"
    replay = "mixed"

    def loss(self, batch: Batch) -> Tensor:
        """Return BCE over this task's classes."""
        new = self.context.new
        return bce(self.model(batch.images)[:, new], batch.targets[:, new])
