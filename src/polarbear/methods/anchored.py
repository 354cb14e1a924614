"""What EWC, SI, MAS and RWalk share: weights are held where they were, as firmly as they matter."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from polarbear.engine.contract.batch import Batch, TaskContext
from polarbear.engine.contract.method import Method, bce
from polarbear.methods.vectors import add_gradients, flat

HELD = 2**26  # numbers at most in the gradients held at the same time, each a network's


class Anchored(Method):
    """Binary cross-entropy, and a spring at every weight.

    Without a memory the task's own classes have a loss, with one all seen classes.

    With θ* the weights as the last task left them and Ω how much each has mattered so far::

        loss = BCE + strength / 2 · Σ Ω (θ − θ*)²

    A spring is at most as stiff as 1 / learning rate: a stiffer one would throw a weight beyond
    θ* in one step. Both Ω and θ* are vectors over all parameters that learn, the head's too; rows
    of classes to come have Ω = 0.
    """

    keep = "last"

    @dataclass(frozen=True)
    class Options(Method.Options):
        """Settings of methods that hold weights."""

        strength: float = field(default=1.0, metadata={"at_least": 0})
        """How firmly weights are held, beside the loss."""

    options: Options
    importance: Tensor
    anchor: Tensor

    def begin_task(self, context: TaskContext) -> None:
        """Hold nothing in the first task."""
        if context.task == 0:
            here = self.weights()
            self.register_buffer("importance", torch.zeros_like(here))
            self.register_buffer("anchor", here)

    @property
    def asked(self) -> slice:
        """Columns of the classes that have a loss."""
        return self.context.new if self.replay == "none" else slice(0, self.context.seen)

    def learning(self) -> dict[str, nn.Parameter]:
        """Return the model's parameters that learn, by name: a network may have others, too."""
        return {name: p for name, p in self.model.named_parameters() if p.requires_grad}

    def weights(self) -> Tensor:
        """Return all that learns as one vector, detached."""
        return flat(self.learning().values()).detach()

    def stiffness(self) -> Tensor:
        """Return how firmly each weight is held: (parameters,)."""
        most = 1 / self.context.settings.learning_rate
        return (self.options.strength * self.importance).clamp(max=most)

    def loss(self, batch: Batch) -> Tensor:
        """Return BCE over the classes that are asked about, and what the springs hold."""
        asked = self.asked
        learnt = bce(self.model(batch.images)[:, asked], batch.targets[:, asked])
        away = flat(self.learning().values()) - self.anchor
        return learnt + (self.stiffness() * away**2).sum() / 2

    @torch.no_grad()
    def consolidate(self, before: float, found: Tensor) -> None:
        """Hold weights where they are now, with ``before`` · Ω and what was ``found``."""
        self.importance.mul_(before).add_(found)
        self.anchor.copy_(self.weights())


class Following(Anchored):
    """Weights are held by the way they took: every step adds −g · Δθ to each weight's ω.

    g is the gradient of BCE alone, Δθ what the optimiser made of all gradients, springs included.
    """

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


def mean_over_images(
    method: Anchored, output: Callable[[Tensor, Tensor], Tensor], size: Callable[[Tensor], Tensor]
) -> Tensor:
    """Return the mean over the task's images of the sizes of their gradients: (parameters,).

    ``output(logits, targets)`` makes a number of an image's (seen,), whose gradient is taken, with
    the network in evaluation mode; ``size`` makes each entry one that is not negative.
    """
    model = method.model.eval()  # the next task's first step puts it back
    parameters = {name: p.detach() for name, p in method.learning().items()}

    def number(at: dict[str, Tensor], image: Tensor, targets: Tensor) -> Tensor:
        return output(functional_call(model, at, (image[None],))[0], targets)

    of_each = vmap(grad(number), in_dims=(None, 0, 0))
    total, count = torch.zeros_like(flat(parameters.values())), 0
    at_once = max(1, HELD // len(total))
    for batch in method.context.batches("task"):
        parts = (torch.split(each, at_once) for each in (batch.images, batch.targets))
        for images, targets in zip(*parts, strict=True):
            found = of_each(parameters, images, targets)
            total += flat(size(part).sum(dim=0) for part in found.values())
        count += len(batch.images)
    return total / max(count, 1)
