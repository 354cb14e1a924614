"""What a method is given at a step and at the start of a task."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Images with the labels a learner may see.

    ``images`` (n, 3, h, w) float, augmented and normalised; ``targets`` (n, seen) float, 0 or 1;
    ``replayed`` (n,) bool, true for images from memory.
    """

    images: Tensor
    targets: Tensor
    replayed: Tensor


@dataclass(frozen=True)
class TaskContext:
    """Where in the stream a learner stands, and what it may look up there.

    Columns 0 to ``old`` are classes of earlier tasks, ``old`` to ``seen`` those of this task.
    ``class_images(column, limit)`` gives images of a class of this task (n, 3, h, w), normalised,
    not augmented, at most ``limit`` of them, drawn at random where there are more.
    """

    task: int
    old: int
    seen: int
    class_images: Callable[[int, int | None], Tensor]

    @property
    def new(self) -> slice:
        """Columns of this task's classes."""
        return slice(self.old, self.seen)
