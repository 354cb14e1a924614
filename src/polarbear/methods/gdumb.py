"""GDumb: a network trained from scratch, on memory alone, whenever a task ends."""

from torch import Tensor

from polarbear.engine.contract.batch import Batch, TaskContext
from polarbear.engine.contract.method import Method, bce, frozen_copy


class GDumb(Method):
    """Binary cross-entropy over the seen classes on a balanced memory, from the first weights.

    Nothing of the network is carried over from task to task: what it knows is what 20 images of
    each class teach. A method that keeps as many images should come further.
    """

    summary = "trains from scratch on memory alone after every task"
    title = "GDumb"
    keep = "last"
    replay = "mixed"
    trains_on = "balanced"

    def begin_task(self, context: TaskContext) -> None:
        """Put the weights back to those of the start."""
        if context.task == 0:
            self.networks["fresh"] = frozen_copy(self.model)
        self.model.load_state_dict(self.networks["fresh"].state_dict())

    def loss(self, batch: Batch) -> Tensor:
        """Return BCE over the seen classes."""
        return bce(self.model(batch.images), batch.targets)
