"""What EEIL and SS-IL share: each task's classes are distilled by themselves."""

from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from polarbear.engine.contract.batch import TaskContext
from polarbear.engine.nets.model import Model
from polarbear.methods.softmax import SoftmaxMethod, soft_cross_entropy


class ByTask(SoftmaxMethod):
    """A softmax method that knows which classes came together."""

    borders: Tensor

    def __init__(self, model: Model, options: Any = None) -> None:
        """Know no task yet."""
        super().__init__(model, options)
        self.register_buffer("borders", torch.zeros(1, dtype=torch.long))

    def begin_task(self, context: TaskContext) -> None:
        """Note where the task's classes end."""
        before = self.borders[: context.task + 1]
        self.register_buffer("borders", torch.cat([before, before.new_tensor([context.seen])]))
        self.spans = list(pairwise(self.borders.tolist()))

    def distilled(self, logits: Tensor, before: Tensor, temperature: float) -> Tensor:
        """Return the sum over tasks of the distillations at T, each among its own classes.

        ``logits`` (n, seen) learn from ``before`` (n, c), of the tasks that the teacher knows.
        """
        parts = [
            soft_cross_entropy(logits[:, start:stop], before[:, start:stop], temperature)
            for start, stop in self.spans
            if stop <= before.shape[1]
        ]
        return torch.stack(parts).sum()
