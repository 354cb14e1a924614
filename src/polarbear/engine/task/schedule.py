"""The learning rate of every step of a task."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from polarbear.base.arrays import Floats, Ints
from polarbear.settings.settings import RateSchedule, Settings

# Those of PyTorch's OneCycleLR: the part of a task in which the rate rises, from which part of the
# highest rate, and to which part of that it falls.
RISING, FROM, TO = 0.3, 1 / 25, 1e-4


@dataclass(frozen=True)
class TaskRates:
    """How the rate goes in a task of ``epochs`` epochs, each of ``steps`` steps.

    A later phase of a task has a schedule of its ``own``, and no warm-up.
    """

    settings: Settings
    epochs: int
    steps: int
    own: RateSchedule | None = None

    @property
    def schedule(self) -> RateSchedule:
        """The schedule that counts."""
        return self.own or self.settings.schedule

    @property
    def warm_up(self) -> float:
        """Epochs in which the rate rises."""
        return 0.0 if self.own else self.settings.warm_up

    @property
    def change_by_the_step(self) -> bool:
        """Whether the steps of one epoch may have different rates."""
        return self.schedule not in ("plateau", "constant") or self.warm_up > 0

    def of_epoch(self, epoch: int, highest: float) -> Floats:
        """Return the rates of an epoch's steps: (steps,)."""
        return self.at(epoch * self.steps + np.arange(self.steps), highest)

    def at(self, step: Ints, highest: float) -> Floats:
        """Return the rates of some of the task's steps, counted from its first: (n,).

        ``highest`` is the learning rate, or what a plateau has left of it.
        """
        total, settings = self.epochs * self.steps, self.settings
        warm_up = round(self.warm_up * self.steps)
        shape = np.ones(len(step))
        if self.schedule == "cosine":
            shape = cosine(np.maximum(step - warm_up, 0), total - warm_up)
        if self.schedule == "steps":
            shape = falls(step, total, settings.rate_steps, settings.rate_factor)
        if self.schedule == "onecycle":
            shape = one_cycle(step, total)
        return highest * rise(step, warm_up) * shape


def rise(step: Ints, over: int) -> Floats:
    """Return parts of the highest rate that grow evenly, and are 1 from the last of ``over`` on.

    >>> rise(np.arange(5), over=4).tolist()
    [0.25, 0.5, 0.75, 1.0, 1.0]
    """
    return np.minimum((step + 1) / max(over, 1), 1.0)


def cosine(step: Ints, total: int) -> Floats:
    """Return the falling half of a wave, from 1 to nearly 0 at the last of ``total`` steps.

    >>> cosine(np.arange(4), total=4).round(3).tolist()
    [1.0, 0.854, 0.5, 0.146]
    """
    return _half_wave(step / max(total, 1), 1.0, 0.0)


def falls(step: Ints, total: int, parts: tuple[float, ...], factor: float) -> Floats:
    """Return 1, times ``factor`` for each part of ``total`` steps that is over.

    >>> falls(np.arange(4), 4, parts=(0.5, 0.75), factor=0.1).round(3).tolist()
    [1.0, 1.0, 0.1, 0.01]
    """
    over = sum((step >= round(part * total)).astype(np.float64) for part in parts)
    return np.power(factor, over)


def one_cycle(step: Ints, total: int) -> Floats:
    """Return a half wave up and one down.

    >>> one_cycle(np.array([0, 2, 9]), total=10).round(6).tolist()
    [0.04, 1.0, 4e-06]
    """
    top, last = RISING * total - 1, total - 1
    up = _half_wave(step / top, FROM, 1.0)
    down = _half_wave((step - top) / (last - top), 1.0, FROM * TO)
    return np.where(step <= top, up, down)


def _half_wave(part: NDArray[np.floating], start: float, end: float) -> Floats:
    found: Floats = end + (start - end) / 2 * (1 + np.cos(np.pi * part))
    return found
