"""What a method is given at a step and at the start of a task."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Literal, Protocol

from torch import Tensor

from polarbear.settings.settings import Settings

Which = Literal["task", "memory", "valid"]


@dataclass(frozen=True)
class Batch:
    """Images with the labels a learner may see.

    ``images`` (n, 3, h, w) float, augmented and normalised; ``targets`` (n, seen) float, 0 or 1;
    ``replayed`` (n,) bool, true for images from memory; ``rows`` (n,) int64, each image's row of
    the training file, below :attr:`TaskContext.rows_in_all`: a table of a method's own can have
    one entry per row.

    ``stored[name]`` (n, …) is what :meth:`Method.store` gave when the image went into memory, and
    zeros for images that are not from there. It is empty while nothing has been stored yet.

    ``other_views`` are the same images, varied anew: none unless ``Method.views`` asks for them.

    ``weight`` matters where a step is taken in shares (:class:`.World`) and memory images come
    beside it: a mean over them times their weight counts them as in a whole step. It is 1 but where
    a share of them is another than of the step's own images. ``in_all`` counts such memory images
    of all shares, those here being at ``places`` among them; None where all of them are here.
    """

    images: Tensor
    targets: Tensor
    replayed: Tensor
    rows: Tensor
    stored: Mapping[str, Tensor] = field(default_factory=dict)
    other_views: tuple[Tensor, ...] = ()
    weight: float = 1.0
    in_all: int | None = None
    places: range = range(0)

    @property
    def views(self) -> tuple[Tensor, ...]:
        """Every view of the images, each (n, 3, h, w); the first is ``images``."""
        return (self.images, *self.other_views)


class LookUp(Protocol):
    """Images of a class (n, 3, h, w), normalised, not augmented, at most ``limit`` of them."""

    def __call__(self, column: int, limit: int | None = None) -> Tensor:
        """Return images of the class in a column."""
        ...


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
    ``stored_images(column, limit)`` returns those in memory that carry a label, each once, the
    first ``limit`` of them; where memory was filled by herding, these are the best ones.
    ``batches(which)`` goes through the images of the task, of memory or of in-task validation, once
    each, not augmented either. ``rows_in_all`` counts the rows of the training file.
    Steps run in the arithmetic of the run; ``with context.autocast():`` brings it to look-ups.
    """

    task: int
    old: int
    seen: int
    classes: tuple[str, ...]
    settings: Settings
    class_counts: Tensor
    epoch: Tensor
    step: Tensor
    class_images: LookUp
    stored_images: LookUp
    batches: Callable[[Which], Iterator[Batch]]
    rows_in_all: int
    autocast: Callable[[], AbstractContextManager[object]] = nullcontext

    @property
    def new(self) -> slice:
        """Columns of this task's classes."""
        return slice(self.old, self.seen)
