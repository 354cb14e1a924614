"""How much there is to learn in a run, in images, and how much of it is done: the time left."""

import math
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from polarbear.engine.trainer import Progress, Trainer

SPEED_OVER = 20.0  # seconds


@dataclass(frozen=True)
class Workload:
    """Epochs of each task and images of one of its epochs.

    >>> Workload(epochs=(2, 1), images=(100, 60), batch_size=32).total
    260
    """

    epochs: tuple[int, ...]
    images: tuple[int, ...]
    batch_size: int

    @classmethod
    def of(cls, trainer: "Trainer") -> "Workload":
        """Reckon what a run will look at."""
        from polarbear.launch.workload import work_of

        settings = trainer.settings
        work = work_of(trainer.learner.method, settings, trainer.stream)
        epochs = tuple(task.epochs for task in work)
        return cls(epochs, tuple(task.images + task.memory for task in work), settings.batch_size)

    @property
    def total(self) -> int:
        """Image passes of the whole run."""
        return sum(e * n for e, n in zip(self.epochs, self.images, strict=True))

    def done(self, progress: "Progress") -> int:
        """Return the image passes a run has behind it."""
        task = progress.task
        earlier = zip(self.epochs[:task], self.images[:task], strict=True)
        passed = sum(e * n for e, n in earlier)
        if task >= len(self.images):
            return passed
        size = self.images[task]
        if progress.phase > 0:  # later phases are short, and not reckoned
            return passed + self.epochs[task] * size
        return passed + progress.epoch * size + min(progress.step * self.batch_size, size)


class Pace:
    """Turns work done at times into a speed of late and the time left."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self.first: tuple[float, int] | None = None
        self.late: deque[tuple[float, int]] = deque()

    def update(self, now: float, done: int) -> None:
        """Take note of the work done by now."""
        if self.first is None or done == self.first[1]:
            self.first = now, done  # to decode images before the first step is no pace
        self.late.append((now, done))
        while now - self.late[0][0] > SPEED_OVER and len(self.late) > 2:
            self.late.popleft()

    @property
    def speed(self) -> float:
        """Images per second over the last seconds, NaN at first."""
        return _per_second(self.late[0], self.late[-1]) if self.late else math.nan

    def left(self, total: int) -> float:
        """Seconds left, at the average speed so far, pauses for evaluation included."""
        if self.first is None:
            return math.nan
        return (total - self.late[-1][1]) / _per_second(self.first, self.late[-1])


def _per_second(start: tuple[float, int], end: tuple[float, int]) -> float:
    seconds, images = end[0] - start[0], end[1] - start[1]
    return images / seconds if seconds > 0 and images > 0 else math.nan
