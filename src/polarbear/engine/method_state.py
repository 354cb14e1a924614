"""A method's own tensors around the steps before a capture, which must leave no trace in them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from polarbear.methods.method import Method


@dataclass(frozen=True, eq=False)
class MethodState:
    """A method's own tensors as they were, and the addresses of those that it keeps.

    Others it makes when asked for them: numbers that it has in Python.
    """

    values: dict[str, Tensor]
    addresses: dict[str, int]

    @classmethod
    def of(cls, method: Method) -> "MethodState":
        """Copy them."""
        values = {name: tensor.clone() for name, tensor in method.state().items()}
        return cls(values, _addresses(method))

    def can_be_replayed(self, method: Method) -> bool:
        """Whether a step has left all tensors in their places, and the other numbers as they were.

        A replay would not come by the line of Python that changes them.
        """
        state = method.state()
        if state.keys() != self.values.keys() or _addresses(method) != self.addresses:
            return False
        made = self.values.keys() - self.addresses.keys()
        return all(torch.equal(state[name], self.values[name]) for name in made)

    def put_back(self, method: Method) -> None:
        """Bring the values back, to the same addresses where there are captured steps."""
        if not self.can_be_replayed(method):
            method.load_state(self.values)
            return
        state = method.state()
        for name in self.addresses:
            state[name].copy_(self.values[name])


def _addresses(method: Method) -> dict[str, int]:
    # Both at once: a tensor that is made when asked for is then made twice.
    first, second = method.state(), method.state()
    kept = [name for name in first if first[name].data_ptr() == second[name].data_ptr()]
    return {name: first[name].data_ptr() for name in kept}
