"""Replay: softmax cross-entropy on the task and on herded images of every earlier class."""

from torch import Tensor

from polarbear.engine.contract.batch import Batch
from polarbear.methods.softmax import SoftmaxMethod, cross_entropy


class Replay(SoftmaxMethod):
    """Cross-entropy of a softmax over all seen classes, on task and memory images alike.

    The baseline of class-incremental learning, where an image is of one class; ER is the same
    with a sigmoid for each class.
    """

    summary = "replays herded images under one softmax; the class-incremental baseline"
    replay = "mixed"
    selection = "herding"

    def loss(self, batch: Batch) -> Tensor:
        """Return the cross-entropy over the seen classes."""
        return cross_entropy(self.model(batch.images), batch.targets)
