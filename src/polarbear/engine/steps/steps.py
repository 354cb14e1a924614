"""What the trainer asks of a task's steps, whichever way they are done."""

from collections.abc import Iterator
from typing import Protocol

from polarbear.base.arrays import Floats
from polarbear.engine.task.epoch_plan import EpochPlan
from polarbear.score.decide import RawScores


class Steps(Protocol):
    """The training steps of a phase, and its validation: eager, or captured as CUDA graphs."""

    def epoch(self, plan: EpochPlan, rates: Floats, first: int, losses: Floats) -> Iterator[int]:
        """Train from step ``first`` on; ``losses`` (first,) are those of the steps before.

        ``rates`` (steps,) are the learning rates of all the epoch's steps.

        Yields how many steps the epoch has taken wherever the run may be left for a while, the
        same number again while nothing but the device is at work.
        """
        ...

    def loss_values(self, steps: int) -> Floats:
        """Return the losses of the epoch's first steps: (steps,)."""
        ...

    def validation_scores(self) -> RawScores:
        """Return the method's scores for the validation images after the epoch: (v, seen)."""
        ...

    @property
    def replays_validation(self) -> bool:
        """Whether validation runs no line of Python, which might replace a tensor."""
        ...

    def overtaken_by(self) -> str | None:
        """Return the name of an attribute that has changed since, if these steps do not see it."""
        ...

    def weights_are_finite(self) -> bool:
        """Whether every weight is a number."""
        ...

    def close(self) -> None:
        """Free what the task's steps hold on the device."""
        ...
