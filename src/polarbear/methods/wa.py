"""WA: distillation, then the new classes' weights are brought to the old ones' length."""

from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor

from polarbear.engine.contract.batch import Batch
from polarbear.engine.nets.heads import LinearHead
from polarbear.methods.softmax import SoftmaxMethod, distilled_cross_entropy


class WA(SoftmaxMethod):
    """Cross-entropy and distillation, weighed by the numbers of old and new classes; alignment.

    With λ the part of the seen classes that is old, s* the previous network's logits and w the
    rows of the head::

        loss = (1 − λ) · CE(s, labels) + λ · CE(softmax(s_old / T), softmax(s* / T))
        after the task: w_new ← w_new · mean |w_old| / mean |w_new|
    """

    summary = "distils, then brings new classes' weights to the length of the old ones"
    replay = "mixed"
    selection = "herding"
    wants_teacher = True

    @dataclass(frozen=True)
    class Options(SoftmaxMethod.Options):
        """Settings of WA."""

        temperature: float = field(default=2.0, metadata={"at_least": 1e-3})
        """Temperature T of the distillation."""

    options: Options

    def loss(self, batch: Batch) -> Tensor:
        """Return cross-entropy and distillation."""
        before = self.asked_before(batch.images)
        logits = self.model(batch.images)
        return distilled_cross_entropy(logits, batch.targets, before, self.options.temperature)

    @torch.no_grad()
    def end_task(self) -> None:
        """Align the rows of the task's classes with those of earlier ones."""
        old, new = self.context.old, self.context.new
        if old:
            align(cast(LinearHead, self.model.head).weight, old, new)


def align(weight: Tensor, old: int, new: slice) -> None:
    """Scale the new rows of weights (classes, d) so that their mean length is the old rows'."""
    weight[new] *= weight[:old].norm(dim=1).mean() / weight[new].norm(dim=1).mean()
