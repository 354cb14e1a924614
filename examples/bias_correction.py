"""BiC: after a task, a logit z of its classes becomes α z + β, learnt on images held out for it."""

import torch
from torch import Tensor, nn

from polarbear.learn import Batch, Method, Phase, TaskContext, bce


class BiC(Method):
    summary = "replays and distils; corrects the newest classes' logits on images held out"
    title, replay, keep, wants_teacher = "BiC", "mixed", "last", True
    held_out = 2  # images of each class, of the task and of memory, that the main phase lacks

    def __init__(self, *given: object) -> None:
        super().__init__(*given)
        self.correction = nn.Parameter(torch.tensor([1.0, 0.0]))  # α and β

    def begin_task(self, context: TaskContext) -> None:
        self.register_buffer("before", self.correction.detach().clone())  # the teacher's
        self.correction.data.copy_(torch.tensor([1.0, 0.0]))

    def parameter_groups(self) -> list[dict]:
        return [{"params": self.model.parameters()}]  # the main phase leaves α and β alone

    def phases(self) -> list[Phase]:
        how = {"loss": self.bias_loss, "parameters": [self.correction], "evaluation": True}
        return [Phase("bias", 10, 0.05, on="held_out", **how)] if self.context.task else []

    def loss(self, batch: Batch) -> Tensor:
        logits, old = self.model(batch.images), self.context.old
        if (teacher := self.teacher) is None:
            return bce(logits, batch.targets)
        then = corrected(teacher(batch.images), teacher.head.sizes[0], *self.before)
        kept, share = bce(logits[:, :old], torch.sigmoid(then)), old / self.context.seen
        return share * kept + (1 - share) * bce(logits, batch.targets)

    def bias_loss(self, batch: Batch) -> Tensor:
        return bce(self.scores(batch.images), batch.targets)

    def scores(self, images: Tensor) -> Tensor:
        return corrected(self.model(images), self.context.old, *self.correction)


def corrected(logits: Tensor, old: int, alpha: Tensor, beta: Tensor) -> Tensor:
    return torch.cat([logits[:, :old], alpha * logits[:, old:] + beta], dim=1)
