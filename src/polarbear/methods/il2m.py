"""IL2M: a second memory, of how high each class scored when it was learnt, corrects the scores."""

from typing import Any

import torch
from torch import Tensor

from polarbear.engine.contract.batch import TaskContext, Which
from polarbear.engine.nets.model import Model
from polarbear.methods.replay import Replay
from polarbear.methods.softmax import log_odds


class IL2M(Replay):
    """Replay; where a new class scores highest, logits of old ones are brought to what they were.

    At the end of a task, μ(c) is the mean logit of class c on its own images, of the task or, for
    an old class, of memory; μ is the mean of the highest logit on the task's images. With * for
    the task in which c was learnt, an old class's logit z becomes::

        z · (μ*(c) / μ(c)) · (μ / μ*)        if the highest logit is that of a new class
    """

    summary = "replays herded images; corrects old classes' logits by what they were at first"
    first: Tensor
    factors: Tensor

    def __init__(self, model: Model, options: Any = None) -> None:
        """Remember no class yet."""
        super().__init__(model, options)
        self.register_buffer("first", torch.zeros(0))

    def begin_task(self, context: TaskContext) -> None:
        """Correct nothing until the task ends."""
        self.register_buffer("factors", torch.ones(context.seen))

    @torch.no_grad()
    def end_task(self) -> None:
        """Work out μ(c) / μ, remember it for new classes, and the old ones' factors."""
        old, new = self.context.old, self.context.new
        self.model.eval()  # the next task's first step puts it back
        of_task, highest = self.mean_logits("task")
        now, _ = self.mean_logits("memory")
        now[new] = of_task[new]
        now /= highest
        self.register_buffer("first", torch.cat([self.first[:old], now[new]]))
        found = self.first / now
        # Without images, or with one of the means below 0, there is nothing to scale by.
        self.factors.copy_(torch.where(found.isfinite() & (found > 0), found, 1.0))

    def mean_logits(self, which: Which) -> tuple[Tensor, Tensor]:
        """Return the means of each class's logit on its images (seen,), and of the highest."""
        total, count = self.factors.new_zeros(2, self.context.seen)
        highest, images = self.factors.new_zeros(()), 0
        for batch in self.context.batches(which):
            with self.context.autocast():
                logits = self.model(batch.images).float()
            total += (logits * batch.targets).sum(dim=0)
            count += batch.targets.sum(dim=0)
            highest += logits.amax(dim=1).sum()
            images += len(logits)
        return total / count, highest / images

    def scores(self, images: Tensor) -> Tensor:
        """Return the log-odds of corrected logits: (n, seen)."""
        logits = self.model(images).float()
        newest = logits.argmax(dim=1, keepdim=True) >= self.context.old
        return log_odds(torch.where(newest, logits * self.factors, logits))
