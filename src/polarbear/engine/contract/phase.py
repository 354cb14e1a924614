"""A phase of training that comes after a task's main one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from polarbear.base.errors import PolarbearError
from polarbear.engine.contract.batch import Batch
from polarbear.settings.settings import RateSchedule

On = Literal["all", "task", "memory", "balanced", "held_out"]


@dataclass(frozen=True, eq=False)
class Phase:
    """Epochs after a task's main ones, with images, a rate, a loss and weights of their own.

    ``on`` says which images: ``all`` of the task and of memory, as the main phase has them; the
    ``task``'s alone; those of ``memory``; a ``balanced`` set, the memory as it would be if the task
    ended now; those ``held_out`` of the main phase (see ``Method.held_out``). ``loss`` is the
    method's own unless another is given; ``parameters`` are those that learn, all if None. With
    ``evaluation``, the network stays in evaluation mode: its running statistics do not move.
    ``begin`` is called once, before the first step, with the weights that the phase begins with:
    what it sets is a teacher, a network or a buffer, which checkpoints keep. A phase ends with its
    last weights.
    """

    name: str
    epochs: int
    learning_rate: float
    on: On = "balanced"
    loss: Callable[[Batch], Tensor] | None = None
    parameters: Sequence[nn.Parameter] | None = None
    schedule: RateSchedule = "constant"
    evaluation: bool = False
    begin: Callable[[], None] | None = None

    def backward(self, own: Callable[..., Tensor], batch: Batch, beside: Batch | None) -> Tensor:
        """Add a step's gradients to those of the parameters and return the loss, detached.

        ``own`` is the method's way, which a phase without a loss of its own goes.
        """
        if self.loss is None:
            return own(batch, beside)
        loss = self.loss(batch)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def __post_init__(self) -> None:
        """Refuse what cannot be trained."""
        if self.parameters is not None:  # also where they come from a generator, asked once
            object.__setattr__(self, "parameters", tuple(self.parameters))
        if self.epochs < 1 and self.name:  # the main phase, without a name, may be left out
            raise PolarbearError(f"the phase {self.name!r} must have at least 1 epoch")
        if not self.learning_rate > 0:
            raise PolarbearError(
                f"the phase {self.name!r} needs a learning_rate over 0, not {self.learning_rate}"
            )
