"""Incremental joint training: task by task, on everything so far with all its labels."""

from torch import Tensor

from polarbear.engine.contract.batch import Batch
from polarbear.engine.contract.method import Method, bce


class IncrementalJoint(Method):
    """Binary cross-entropy over the seen classes on the union of all data so far.

    Labels are complete among the seen classes: an image stored as a bear becomes a polar bear too
    when that class arrives. Weights carry over from task to task.
    """

    summary = "trains on all data so far with complete labels; the upper bound task by task"
    complete = True

    def loss(self, batch: Batch) -> Tensor:
        """Return BCE over the seen classes."""
        return bce(self.model(batch.images), batch.targets)
