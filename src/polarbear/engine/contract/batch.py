"""What a method is given at a step and at the start of a task."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """Images with the labels a learner may see.

    ``images`` (n, 3, h, w) float, augmented and normalised; ``targets`` (n, seen) float, 0 or 1;
    ``replayed`` (n,) bool, true for images from memory; ``rows`` (n,) int64, each image's row of
    the training file, below :attr:`TaskContext.rows_in_all`: a table of a method's own can have
    one entry per row.

    ``stored[name]`` (n, …) is what :meth:`Method.store` gave when the image went into memory, and
    zeros for images that are not from there. It is empty while nothing has been stored yet.
    """

    images: Tensor
    targets: Tensor
    replayed: Tensor
    rows: Tensor
    stored: Mapping[str, Tensor] = field(default_factory=dict)


class LookUp(Protocol):
    """Images of a class (n, 3, h, w), normalised, not augmented, at most ``limit`` of them."""

    def __call__(self, column: int, limit: int | None = None) -> Tensor:
        """Return images of the class in a column."""
        ...


@dataclass(frozen=True)
class TaskContext:
    """Where in the stream a learner stands, and what it may look up there.

    Columns 0 to ``old`` are classes of earlier tasks, ``old`` to ``seen`` those of this task.
    ``class_images(column, limit)`` gives images of a class of this task (n, 3, h, w), normalised,
    not augmented, at most ``limit`` of them, drawn at random where there are more.
    ``stored_images(column, limit)`` gives those in memory that carry a label, each once, the first
    ``limit`` of them; where memory was filled by herding, these are the best ones.
    ``rows_in_all`` counts the rows of the training file.
    """

    task: int
    old: int
    seen: int
    class_images: LookUp
    stored_images: LookUp
    rows_in_all: int

    @property
    def new(self) -> slice:
        """Columns of this task's classes."""
        return slice(self.old, self.seen)
