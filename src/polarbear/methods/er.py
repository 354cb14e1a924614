"""Experience replay: train on the task and on a few stored images of every earlier class."""

from torch import Tensor

from polarbear.engine.contract.batch import Batch
from polarbear.engine.contract.method import Method, bce


class ER(Method):
    """Binary cross-entropy over all seen classes, on task and memory images alike.

    Labels are those visible when an image arrived: on a new image old classes count as absent,
    on a stored image new ones do.
    """

    summary = "replays random stored images"
    replay = "mixed"

    def loss(self, batch: Batch) -> Tensor:
        """Return BCE over the seen classes."""
        return bce(self.model(batch.images), batch.targets)
