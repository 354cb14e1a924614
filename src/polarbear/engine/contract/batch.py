"""What a method is given at a step and at the start of a task."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from polarbear.settings.settings import Settings

Which = Literal["task", "memory", "valid"]


@dataclass(frozen=True)
class Batch:
    """Images with the labels a learner may see.

    ``images`` (n, 3, h, w) float, augmented and normalised; ``targets`` (n, seen) float, 0 or 1;
    ``replayed`` (n,) bool, true for images from memory.
    """

    images: Tensor
    targets: Tensor
    replayed: Tensor


@dataclass(frozen=True, eq=False)
class TaskContext:
    """Where in the stream a learner stands, and what it may look up there: never the hierarchy.

    Columns 0 to ``old`` are classes of earlier tasks, ``old`` to ``seen`` those of this task;
    ``classes`` are their names. ``class_counts`` (seen,) counts the images of an epoch, of the task
    and of memory, that carry each label.

    ``epoch`` and ``step`` are numbers on the device that change as training goes on. Reckon with
    them in a loss; an ``if`` would wait for the device, and such steps are not captured.

    ``class_images(column, limit)`` returns images of a class of this task (n, 3, h, w), normalised,
    not augmented, at most ``limit`` of them, drawn at random where there are more.
    ``batches(which)`` goes through the images of the task, of memory or of in-task validation, once
    each, not augmented either.
    """

    task: int
    old: int
    seen: int
    classes: tuple[str, ...]
    settings: Settings
    class_counts: Tensor
    epoch: Tensor
    step: Tensor
    class_images: Callable[[int, int | None], Tensor]
    batches: Callable[[Which], Iterator[Batch]]

    @property
    def new(self) -> slice:
        """Columns of this task's classes."""
        return slice(self.old, self.seen)
