"""Which classes came together; and what EEIL and SS-IL share, distillation task by task."""

from itertools import pairwise

import torch
from torch import Tensor

from polarbear.engine.contract.batch import TaskContext
from polarbear.engine.contract.method import Method
from polarbear.methods.softmax import SoftmaxMethod, soft_cross_entropy


class ByTask(SoftmaxMethod):
    """A softmax method that knows which classes came together."""

    def begin_task(self, context: TaskContext) -> None:
        """Note where the task's classes end."""
        self.spans = task_spans(self, "borders", context)

    def distilled(self, logits: Tensor, before: Tensor, temperature: float) -> Tensor:
        """Return the sum over tasks of the distillations at T, each among its own classes.

        ``logits`` (n, seen) learn from ``before`` (n, c), of the tasks that the teacher knows.
        """
        parts = [
            soft_cross_entropy(logits[:, span], before[:, span], temperature)
            for span in self.spans
            if span.stop <= before.shape[1]
        ]
        return torch.stack(parts).sum()


def task_spans(method: Method, buffer: str, context: TaskContext) -> list[slice]:
    """Return the columns of each task so far, this one's last.

    Their borders are kept in a buffer of the method's: of earlier tasks it knows no other way.
    """
    # A resumed run finds this task's borders there already.
    before = getattr(method, buffer, torch.empty(0, dtype=torch.long))[: context.task]
    borders = torch.cat([before, before.new_tensor([context.old, context.seen])])
    method.register_buffer(buffer, borders)
    return [slice(*ends) for ends in pairwise(borders.tolist())]
