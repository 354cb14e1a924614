"""iCaRL-norm: iCaRL-CNN with a cosine head."""

from typing import cast

from torch import Tensor

from polarbear.engine.contract.batch import Batch, TaskContext
from polarbear.engine.contract.method import Method, bce
from polarbear.engine.nets.heads import CosineHead
from polarbear.methods.icarl_cnn import distilled_targets


class ICarlNorm(Method):
    """As iCaRL-CNN, with logits σ · cos(feature, row): no class is louder than another.

    All rows are trained, new ones start at random, and σ starts from 1 again at each task.
    """

    summary = "iCaRL-CNN with a cosine head"
    head = "cosine"
    keep = "last"
    inclusive = True
    replay = "mixed"
    selection = "herding"
    wants_teacher = True

    def begin_task(self, context: TaskContext) -> None:
        """Set σ back to 1."""
        cast(CosineHead, self.model.head).reset_sigma()

    def loss(self, batch: Batch) -> Tensor:
        """Return BCE with the teacher's probabilities as targets of old classes."""
        return bce(self.model(batch.images), distilled_targets(self.teacher, batch))
