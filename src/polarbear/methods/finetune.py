"""Finetuning: train on each task as it comes, nothing kept."""

from torch import Tensor

from polarbear.engine.contract.batch import Batch
from polarbear.engine.contract.method import Method, bce


class Finetune(Method):
    """Binary cross-entropy over all seen classes on the task's images alone."""

    summary = "trains on each task as it comes; the lower bound"

    def loss(self, batch: Batch) -> Tensor:
        """Return BCE over the seen classes."""
        return bce(self.model(batch.images), batch.targets)
