"""A method's own tensors around the steps before a capture, which must leave no trace in them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from polarbear.engine.contract.method import Method


@dataclass(frozen=True, eq=False)
class MethodState:
    """Copies of a method's own tensors, and those of them that it keeps on the device.

    Others it makes when asked for them, numbers that it has in Python, or keeps on the host.
    """

    values: dict[str, Tensor]
    kept: dict[str, Tensor]  # held on to, so that no other tensor gets their addresses
    device: torch.device

    @classmethod
    def of(cls, method: Method, device: torch.device) -> "MethodState":
        """Copy them."""
        values = {name: tensor.clone() for name, tensor in method.state().items()}
        return cls(values, _kept(method, device), device)

    def can_be_replayed(self, method: Method) -> bool:
        """Whether a step has left all tensors in their places, and the other numbers as they were.

        A replay would not come by the line of Python that changes them.
        """
        state = method.state()
        if state.keys() != self.values.keys():
            return False
        if _addresses(_kept(method, self.device)) != _addresses(self.kept):
            return False
        made = self.values.keys() - self.kept.keys()
        return all(torch.equal(state[name], self.values[name]) for name in made)

    def put_back(self, method: Method) -> None:
        """Bring the values back, to the same addresses where there are captured steps."""
        if not self.can_be_replayed(method):
            method.load_state(self.values)
            return
        for name, tensor in self.kept.items():
            tensor.copy_(self.values[name])


def _kept(method: Method, device: torch.device) -> dict[str, Tensor]:
    # Both at once: a tensor that is made when asked for is then made twice. A replay is the
    # device's work alone: it changes nothing that a step changes on the host.
    first, second = method.state(), method.state()
    here = [name for name, tensor in first.items() if tensor.device.type == device.type]
    return {n: first[n] for n in here if first[n].data_ptr() == second[n].data_ptr()}


def _addresses(tensors: dict[str, Tensor]) -> dict[str, int]:
    return {name: tensor.data_ptr() for name, tensor in tensors.items()}
