"""Joint training: all classes at once with all their labels."""

from torch import Tensor

from polarbear.engine.contract.batch import Batch
from polarbear.engine.contract.method import Method, bce


class Joint(Method):
    """Binary cross-entropy over all classes with complete labels, in one task."""

    summary = "trains on all classes at once with complete labels; the upper bound"
    complete = True
    joint = True

    def loss(self, batch: Batch) -> Tensor:
        """Return BCE over all classes."""
        return bce(self.model(batch.images), batch.targets)
