"""What a task's steps work on, as it was before those that are tried out for a capture."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from polarbear.engine.task.learner import Learner


@dataclass(frozen=True, eq=False)
class Before:
    """Weights, buffers and momentum of a learner, and copies to bring them back from."""

    learner: Learner
    optimiser: torch.optim.SGD
    tensors: list[Tensor]
    copies: list[Tensor]
    buffers: list[tuple[nn.Module, dict[str, Tensor | None]]]

    @classmethod
    @torch.no_grad()
    def of(cls, learner: Learner, optimiser: torch.optim.SGD) -> "Before":
        """Copy all that steps change.

        Copies that know what they were copied from would keep the places where gradients are
        summed, and with them this stream: a capture on another one would not be allowed there.
        """
        tensors = _tensors(learner, optimiser)
        modules = [part for module in _modules(learner) for part in module.modules()]
        buffers = [(module, dict(module._buffers)) for module in modules]
        return cls(learner, optimiser, tensors, [t.clone() for t in tensors], buffers)

    def are_in_place(self) -> bool:
        """Whether every tensor is still where it was, and none has come: a replay sees no other."""
        now = [tensor.data_ptr() for tensor in _tensors(self.learner, self.optimiser)]
        return now == [tensor.data_ptr() for tensor in self.tensors]

    @torch.no_grad()
    def put_back(self) -> None:
        """Bring all values back to where they were."""
        # A step may have put others in the place of buffers, of another shape, or one more.
        for module, buffers in self.buffers:
            module._buffers.clear()
            module._buffers.update(buffers)
        for tensor, copy in zip(self.tensors, self.copies, strict=True):
            tensor.copy_(copy)


def _tensors(learner: Learner, optimiser: torch.optim.SGD) -> list[Tensor]:
    groups = optimiser.param_groups
    momentum = [optimiser.state[p]["momentum_buffer"] for g in groups for p in g["params"]]
    return [t for m in _modules(learner) for t in (*m.parameters(), *m.buffers())] + momentum


def _modules(learner: Learner) -> list[nn.Module]:
    method = learner.method
    return [m for m in (learner.model, method.teacher, method) if m is not None]
