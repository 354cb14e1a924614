"""A named benchmark: a data source, a hierarchy and class orders under one versioned name."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from polarbear.base.errors import ScheduleError, counted
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.schedule import Schedule
from polarbear.benchmark.source import Source
from polarbear.benchmark.split import SplitRule
from polarbear.data.colours import Colours
from polarbear.named.published_images import PublishedImages

#: What the name of a benchmark ends with where images of it are missing.
PARTIAL = "-partial"


@dataclass(frozen=True)
class Benchmark:
    """A name and what stands behind it; ``version`` rises when results would change.

    ``open_source(root, hierarchy)`` opens the data. ``images_per_leaf`` is (training, test) where
    every leaf has the same number, so that counts can be told without the data; where leaves
    differ, ``images`` are their limits. Data with fewer or more are refused by :func:`load`. A
    ``partial`` benchmark is one with fewer, which its name then says. Rows of leaves in
    ``ignore`` are in the data but not in the benchmark. ``reference_sequence`` lists the leaves as
    ``iirc==1.0.1`` goes through them, where that decides the order of rows. ``preparation`` names
    how the engine augments and normalises the images: cifar, cifar-bright, imagenet, plain or the
    dotted path of one of your own; ``colours``, where given, are the mean and deviation it
    normalises by instead. ``folder`` is where :func:`find` read one of your own.
    """

    name: str
    version: int
    summary: str
    hierarchy: Callable[[], Hierarchy]
    orders: Callable[[], tuple[Schedule, ...]]
    rule: SplitRule
    open_source: Callable[[Path, Hierarchy], Source]
    images_per_leaf: tuple[int, int] | None = None
    ignore: tuple[str, ...] = ()
    reference_sequence: Callable[[Hierarchy], tuple[str, ...]] | None = None
    preparation: str = "plain"
    folder: Path | None = None
    colours: Colours | None = None
    images: PublishedImages | None = None
    partial: bool = False

    @property
    def id(self) -> str:
        """Name with version: ``iirc-cifar-v1``, of partial data ``iirc-cifar-v1-partial``."""
        return f"{self.name}-v{self.version}" + PARTIAL * self.partial

    @property
    def published_images(self) -> PublishedImages | None:
        """How many images each leaf is to have; None where nobody says."""
        if self.images is None and self.images_per_leaf is not None:
            train, test = self.images_per_leaf
            return PublishedImages(train, train, test)
        return self.images

    def schedule(self, order: int) -> Schedule:
        """Return one of the published class orders."""
        orders = self.orders()
        if not isinstance(order, int | np.integer) or not 0 <= order < len(orders):
            there = "is 0" if len(orders) == 1 else f"are 0 to {len(orders) - 1}"
            raise ScheduleError(
                f"{self.name} has no order {order!r}: its {counted(len(orders), 'published order')}"
                f" {there} (Schedule.draw makes new ones)"
            )
        return orders[order]
