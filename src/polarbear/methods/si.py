"""SI: weights are held by how much their way has lowered the loss."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from polarbear.engine.contract.batch import Batch, TaskContext
from polarbear.methods.anchored import Anchored
from polarbear.methods.vectors import add_gradients, flat


class SI(Anchored):
    """Synaptic intelligence: a weight matters by its share of the loss's fall, its path integral.

    Every step adds −g · Δθ to each weight's ω, with g the gradient of BCE alone and Δθ what the
    optimiser made of it. When a task ends, Ω grows by max(0, ω) / ((θ − θ*)² + damping).
    """

    summary = "holds each weight by its share in lowering earlier losses; keeps no image"

    @dataclass(frozen=True)
    class Options(Anchored.Options):
        """Settings of SI."""

        strength: float = field(default=0.2, metadata={"at_least": 0})
        """2c: how firmly weights are held, beside the loss."""
        damping: float = field(default=0.1, metadata={"at_least": 1e-8})
        """ξ: keeps weights that hardly moved from mattering without limit."""

    options: Options
    path: Tensor
    gradient: Tensor
    before: Tensor

    def begin_task(self, context: TaskContext) -> None:
        """Begin a way of no length."""
        super().begin_task(context)
        here = self.weights()
        self.register_buffer("path", torch.zeros_like(here))
        self.register_buffer("gradient", torch.zeros_like(here))
        self.register_buffer("before", here)

    def backward(self, batch: Batch, reference: Batch | None) -> Tensor:
        """Note what the step before this one has made of its gradient, then add this step's."""
        self.follow()
        loss, parameters = self.loss(batch), list(self.learning().values())
        # The springs reach every weight, so that each has a gradient; theirs is known.
        found = torch.autograd.grad(loss, parameters)
        self.gradient.copy_(flat(found) - self.stiffness() * (self.before - self.anchor))
        add_gradients(parameters, found)
        return loss.detach()

    @torch.no_grad()
    def follow(self) -> None:
        """Add to ω what the last step was worth: it is known once the optimiser has moved."""
        here = self.weights()
        self.path -= self.gradient * (here - self.before)
        self.before.copy_(here)

    def end_task(self) -> None:
        """Find out how much each weight's way was worth."""
        self.follow()
        moved = (self.before - self.anchor) ** 2 + self.options.damping
        self.consolidate(1.0, self.path.clamp(min=0) / moved)
