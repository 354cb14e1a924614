"""RWalk: weights are held by a running Fisher information and by what their way was worth."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from polarbear.engine.contract.batch import TaskContext
from polarbear.methods.anchored import Following


class RWalk(Following):
    """Riemannian walk: EWC++ and path integrals over distances between distributions, and replay.

    Every ``interval`` steps, in which a weight has moved by Δθ and lowered the loss by ω::

        s ← s + max(0, ω / (F Δθ² / 2 + damping)),    F ← (1 − alpha) F + alpha · mean of g²

    and ω begins anew. When a task ends, its s is averaged with that of the tasks before it, and
    Ω = (F / max F + s / max s) / seen classes.
    """

    summary = "replays random stored images; holds each weight by a running Fisher and its path"
    replay = "mixed"

    @dataclass(frozen=True)
    class Options(Following.Options):
        """Settings of RWalk."""

        strength: float = field(default=2.0, metadata={"at_least": 0})
        """2λ: how firmly weights are held, beside the loss."""
        alpha: float = field(default=0.9, metadata={"at_least": 0})
        """α: the part of the running Fisher information that the last interval makes; to 1."""
        interval: int = field(default=50, metadata={"at_least": 1})
        """Δt: steps after which the scores and the Fisher information are brought up to date."""
        damping: float = field(default=1e-3, metadata={"at_least": 1e-8})
        """ε: keeps weights that hardly moved from mattering without limit."""

    options: Options
    fisher: Tensor
    earlier: Tensor
    found: Tensor
    squares: Tensor
    origin: Tensor
    steps: Tensor

    def begin_task(self, context: TaskContext) -> None:
        """Begin an interval; the Fisher information runs on through all tasks."""
        super().begin_task(context)
        anew = ("found", "squares") if context.task else ("found", "squares", "fisher", "earlier")
        for name in anew:
            self.register_buffer(name, torch.zeros_like(self.before))
        self.register_buffer("origin", self.before.clone())
        # The first look back, at the first step, finds none before it.
        self.register_buffer("steps", torch.full((), -1, device=self.before.device))

    @torch.no_grad()
    def follow(self) -> None:
        """Look back at the last step, and at the interval if that was its last."""
        super().follow()
        self.squares += self.gradient**2
        self.steps += 1
        self.settle(self.steps == self.options.interval)

    @torch.no_grad()
    def settle(self, due: Tensor) -> None:
        """End an interval where that is ``due``, a number on the device: else nothing changes."""
        apart = self.fisher * (self.before - self.origin) ** 2 / 2
        self.found += due * (self.path / (apart + self.options.damping)).clamp(min=0)
        mean = self.squares / self.steps.clamp(min=1)
        self.fisher.lerp_(mean, self.options.alpha * due)
        self.origin.copy_(torch.where(due, self.before, self.origin))
        for sums in (self.path, self.squares, self.steps):
            sums.masked_fill_(due, 0)

    @torch.no_grad()
    def end_task(self) -> None:
        """Weigh the Fisher information and the scores alike, and hold weights by both."""
        self.follow()
        self.settle(self.steps > 0)
        self.earlier.lerp_(self.found, 0.5 if self.context.task else 1.0)
        both = of_the_greatest(self.fisher) + of_the_greatest(self.earlier)
        # The loss is −log p of an image's labels over the number of classes: so are the springs.
        self.consolidate(0.0, both / (self.asked.stop - self.asked.start))


def of_the_greatest(sizes: Tensor) -> Tensor:
    """Return sizes, none negative, as parts of the greatest; where all are 0, so are these.

    >>> of_the_greatest(torch.tensor([0.0, 1.0, 4.0])).tolist()
    [0.0, 0.25, 1.0]
    """
    return sizes / sizes.max().clamp(min=torch.finfo(sizes.dtype).tiny)
