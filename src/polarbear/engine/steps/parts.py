"""A step's batch in parts, one after the other, where all of it would not fit onto the device.

Losses and gradients are those of the whole batch: each part counts by its images, and what a method
asks of ``self.world`` is of all parts, as it is of all processes. Batch norm alone sees one part.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

import torch
from torch import Tensor, nn

from polarbear.base.errors import PolarbearError
from polarbear.engine.contract.batch import Batch
from polarbear.engine.task.learner import Learner
from polarbear.engine.task.optimiser import drop_gradients
from polarbear.engine.world import Asked, Later

Backward = Callable[[Batch, Batch | None], Tensor]


def backward_in_parts(
    learner: Learner,
    backward: Backward,
    batch: Batch,
    reference: Batch | None,
    parts: int,
    drawing: Callable[[int], AbstractContextManager[object]],
) -> Tensor:
    """Leave the gradients of a whole step in the parameters and return its loss.

    ``drawing`` returns the context in which a part, by its number, draws random numbers.
    """
    drop_gradients(learner.method)
    autocast = learner.machine.autocast
    if parts == 1:
        with drawing(0), autocast():
            return backward(batch, reference)
    method, world, asked = learner.method, learner.world, Asked(parts)
    left, step = deque(range(parts)), _Step(learner)
    while left:
        part = left.popleft()
        own, beside, fraction = _part(batch, reference, part, parts)
        step.begin_part()
        try:
            with drawing(part), autocast(), world.part(fraction, asked):
                loss = backward(own, beside)
        except Later:
            step.undo_log()
            left.append(part)
        else:
            step.add(loss, fraction)
        if asked.waiting and step.done:
            raise PolarbearError(
                f"parts of a step ask {type(method).__name__}'s self.world for different sums: "
                "each must ask for the same ones in the same order, whatever its images are"
            )
    return step.end()


def _part(
    batch: Batch, reference: Batch | None, part: int, parts: int
) -> tuple[Batch, Batch | None, float]:
    """Return a part of both batches, and its fraction of the first one's images.

    It has every so many of them, as processes do.
    """
    at = slice(part, None, parts)
    fraction = len(batch.rows[at]) / len(batch.rows)
    own = _taken(batch, at, batch.weight)
    if reference is None:
        return own, None, fraction
    count = len(reference.rows)
    places = range(count) if reference.in_all is None else reference.places
    beside = len(places[at]) / count
    taken = _taken(reference, at, reference.weight * beside / fraction)
    return own, replace(taken, in_all=reference.in_all or count, places=places[at]), fraction


def _taken(batch: Batch, at: slice, weight: float) -> Batch:
    views = [view[at].contiguous(memory_format=torch.channels_last) for view in batch.views]
    stored = {name: tensor[at] for name, tensor in batch.stored.items()}
    labelled = (batch.targets[at], batch.replayed[at], batch.rows[at])
    return Batch(views[0], *labelled, stored, tuple(views[1:]), weight)


class _Step:
    """What the parts of a step have left so far: loss, gradients, logged numbers and buffers.

    Every part begins with the buffers as they were before the step. Afterwards those of real
    numbers, such as running statistics, are the mean of what the parts have made of them.
    """

    def __init__(self, learner: Learner) -> None:
        """Note how all stands before the first part."""
        self.method = method = learner.method
        self.parameters = [*learner.model.parameters(), *method.parameters()]
        self.buffers = _buffers(learner.model, always=True) + _buffers(method, always=False)
        self.gradients: dict[nn.Parameter, Tensor] = {}
        self.losses: list[Tensor] = []
        self.logged: dict[str, Tensor] = {}
        self.done = 0.0

    @torch.no_grad()
    def begin_part(self) -> None:
        """Bring back what a part has changed; what was learnt of it is noted already."""
        drop_gradients(self.method)
        for buffer in self.buffers:
            buffer.put_back()
        self.logged = {name: total.clone() for name, total in self.method.logged.items()}

    @torch.no_grad()
    def undo_log(self) -> None:
        """Forget the numbers of a part that was left."""
        for name, total in self.method.logged.items():
            total.copy_(self.logged.get(name, torch.zeros_like(total)))

    @torch.no_grad()
    def add(self, loss: Tensor, fraction: float) -> None:
        """Count what a part has found by its fraction of the images."""
        self.done += fraction
        for buffer in self.buffers:
            buffer.note(fraction / self.done)
        found = {p: p.grad for p in self.parameters if p.grad is not None}
        known = [p for p in found if p in self.gradients]
        if known:
            sums, more = ([of[p] for p in known] for of in (self.gradients, found))
            torch._foreach_add_(sums, more, alpha=fraction)
        new = {p: gradient * fraction for p, gradient in found.items() if p not in self.gradients}
        self.gradients |= new
        self.losses.append(loss.float() * fraction)

    @torch.no_grad()
    def end(self) -> Tensor:
        """Put gradients and buffers in place, and return the loss."""
        for parameter in self.parameters:
            parameter.grad = self.gradients.get(parameter)
        for buffer in self.buffers:
            buffer.take_mean()
        return torch.stack(self.losses).sum()


class _Buffer:
    """A buffer before a step, and the mean of what the parts leave in it.

    PyTorch counts changes, but not those of running statistics: a model's buffers are taken to
    change ``always``.
    """

    def __init__(self, place: dict[str, Tensor | None], name: str, *, always: bool) -> None:
        self.place, self.name, self.always = place, name, always
        self.tensor = self._now()
        self.before, self.version = self.tensor.clone(), self.tensor._version
        self.mean: Tensor | None = None

    def _now(self) -> Tensor:
        now = self.place[self.name]
        assert now is not None
        return now

    def _changed(self) -> bool:
        moved = self._now() is not self.tensor or self.tensor._version != self.version
        return self.always or moved

    def put_back(self) -> None:
        if self._changed():
            self.place[self.name] = self.tensor
            self.tensor.copy_(self.before)
            self.version = self.tensor._version

    def note(self, share: float) -> None:
        """Let the mean so far move towards what is there now, by a share."""
        now, mean = self._now(), self.before if self.mean is None else self.mean
        same_kind = now.is_floating_point() and now.shape == mean.shape
        if same_kind and (self._changed() or self.mean is not None):
            # What no part changes stays as it is to the last digit, infinities too.
            self.mean = torch.where(now == mean, mean, mean.lerp(now, share))

    def take_mean(self) -> None:
        if self.mean is not None:
            self._now().copy_(self.mean)


def _buffers(of: nn.Module, *, always: bool) -> list[_Buffer]:
    places: Sequence[dict[str, Tensor | None]] = [module._buffers for module in of.modules()]
    named = [(place, name) for place in places for name in place if place[name] is not None]
    return [_Buffer(place, name, always=always) for place, name in named]
