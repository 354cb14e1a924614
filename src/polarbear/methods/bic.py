"""BiC: after a task, a logit z of its classes becomes α z + β, learnt on images held out for it."""

from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn

from polarbear.engine.contract.batch import Batch, TaskContext
from polarbear.engine.contract.phase import Phase
from polarbear.engine.nets.heads import LinearHead
from polarbear.engine.nets.model import Model
from polarbear.methods.softmax import (
    SoftmaxMethod,
    cross_entropy,
    distilled_cross_entropy,
    log_odds,
)

UNCHANGED = (1.0, 0.0)  # α and β


class BiC(SoftmaxMethod):
    """Cross-entropy and distillation; then two numbers undo what favours the newest classes.

    The loss is that of WA, with the previous network's logits as they were corrected. A tenth of
    each stored class and as many images of each new one are held out; on them, with the network
    frozen, cross-entropy teaches α and β.
    """

    summary = "distils, then corrects the newest classes' logits on images held out"
    replay = "mixed"
    selection = "herding"
    wants_teacher = True
    held_out = 0.1

    @dataclass(frozen=True)
    class Options(SoftmaxMethod.Options):
        """Settings of BiC."""

        temperature: float = field(default=2.0, metadata={"at_least": 1e-3})
        """Temperature T of the distillation."""
        bias_epochs: int = field(default=100, metadata={"at_least": 1})
        """Epochs of α and β."""
        bias_rate: float = field(default=0.01, metadata={"at_least": 1e-12})
        """Their learning rate, which falls along a cosine."""

    options: Options
    before: Tensor
    older = 0  # classes that were old to the teacher already

    def __init__(self, model: Model, options: Any = None) -> None:
        """Correct nothing yet."""
        super().__init__(model, options)
        self.correction = nn.Parameter(torch.tensor(UNCHANGED))

    def begin_task(self, context: TaskContext) -> None:
        """Keep the correction for the teacher's sake, and begin a new one."""
        self.register_buffer("before", self.correction.detach().clone())
        self.correction.data.copy_(torch.tensor(UNCHANGED))
        if self.teacher is not None:
            self.older = cast(LinearHead, self.teacher.head).sizes[0]

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the model's parameters: the main phase leaves α and β alone."""
        return [{"params": self.model.parameters()}]

    def phases(self) -> list[Phase]:
        """Return the phase in which α and β are learnt; the first task has none."""
        if self.context.task == 0:
            return []
        options = self.options
        return [
            Phase(
                *("bias", options.bias_epochs, options.bias_rate, "held_out", self.bias_loss),
                parameters=[self.correction],
                schedule="cosine",
                evaluation=True,
            )
        ]

    def loss(self, batch: Batch) -> Tensor:
        """Return cross-entropy and distillation from corrected logits."""
        before = self.asked_before(batch.images)
        if before is not None:
            before = corrected(before, self.older, self.before)
        logits = self.model(batch.images)
        return distilled_cross_entropy(logits, batch.targets, before, self.options.temperature)

    def bias_loss(self, batch: Batch) -> Tensor:
        """Return the cross-entropy of corrected logits."""
        return cross_entropy(self.corrected_logits(batch.images), batch.targets)

    def scores(self, images: Tensor) -> Tensor:
        """Return the log-odds of corrected logits: (n, seen)."""
        return log_odds(self.corrected_logits(images))

    def corrected_logits(self, images: Tensor) -> Tensor:
        """Return logits, the newest classes' corrected: (n, seen)."""
        return corrected(self.model(images), self.context.old, self.correction)


def corrected(logits: Tensor, old: int, correction: Tensor) -> Tensor:
    """Return logits (n, c) with α z + β for those from column ``old`` on."""
    alpha, beta = correction
    return torch.cat([logits[:, :old], alpha * logits[:, old:] + beta], dim=1)
