"""One epoch: the order of its images and their augmentation, decided before its first step."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from polarbear.base.arrays import Ints
from polarbear.engine.contract.batch import Batch
from polarbear.engine.generator import generator_for
from polarbear.engine.images.transform import Jitter, augment_views
from polarbear.engine.task.learner import Learner
from polarbear.engine.task.reservoir import Reservoir, SlotPlan, landing_slots
from polarbear.engine.task.training_set import TrainingSet

Share = Callable[[int, int], slice]
"""What a process takes of images from one place to another: its share, or all."""

Place = tuple[int, ...]
"""A task, an epoch of it and, after the main one, a phase."""


@dataclass(frozen=True, eq=False)
class Drawn:
    """Images in the ``order`` (m,) in which steps take ``size`` of them, and how each is varied.

    There is one jitter for each view.
    """

    training_set: TrainingSet
    order: Ints
    jitters: tuple[Jitter, ...]
    size: int

    def images(self, step: int) -> int:
        """Count a step's images, those of all processes."""
        return min(self.size, len(self.order) - step * self.size)

    def at(self, step: int, share: Share) -> slice:
        """Return where in the order those images of a step are that this process takes."""
        begin = step * self.size
        return share(begin, begin + self.images(step))

    def of_step(self, step: int, share: Share) -> TrainingSet:
        """Return this process's images of a step, with their labels."""
        return self.training_set.take(self.order[self.at(step, share)])

    def batch(self, step: int, share: Share, images: Tensor, learner: Learner) -> Batch:
        """Return a step's batch, given its images as they are stored."""
        device, labelled = images.device, self.of_step(step, share)
        at = self.at(step, share)
        jitters = [jitter[at].to(device) for jitter in self.jitters]
        first, others = augment_views(images, jitters, learner.transform)
        return Batch(
            first,
            torch.tensor(labelled.targets, dtype=torch.float32, device=device),
            torch.tensor(labelled.replayed, device=device),
            torch.tensor(labelled.rows, device=device),
            {name: table[labelled.places] for name, table in labelled.stored.items()},
            others,
        )


@dataclass(frozen=True, eq=False)
class EpochPlan:
    """What an epoch's steps take: images of the training set and, if wanted, of memory beside.

    ``place`` is the task and the epoch it is for; ``slots`` is what a reservoir gives and takes.
    """

    learner: Learner
    place: Place
    steps: int
    drawn: Drawn
    beside: Drawn | None
    slots: SlotPlan | None = None

    @classmethod
    def plan(
        cls,
        learner: Learner,
        training_set: TrainingSet,
        reference: TrainingSet | None,
        place: Place,
    ) -> "EpochPlan":
        """Shuffle a training set and draw its augmentation.

        ``reference`` is what each step's batch of memory images is drawn from, if one is wanted.
        """
        seed, size, images = learner.settings.seed, learner.settings.batch_size, len(training_set)
        order = generator_for(seed, "shuffle", *place).permutation(images)
        random = generator_for(seed, "augment", *place)
        jitters = _draw_views(learner, images, random, "views", place)
        steps = -(-images // size)
        beside = None if reference is None else _draw_beside(learner, reference, steps, place)
        drawn = Drawn(training_set, order, jitters, size)
        return cls(learner, place, steps, drawn, beside, _plan_slots(learner, images, place))

    @property
    def memory_images(self) -> int:
        """Memory images that the steps take beside those of the training set, of all processes."""
        if self.slots is not None:
            return int(self.slots.counts.sum())
        return 0 if self.beside is None else len(self.beside.order)

    def parts(self, step: int) -> int:
        """Return in how many parts each process takes its share of a step: as many in all.

        A part has two images at least, as one has no variance, and two of memory beside them.
        """
        processes, sizes = self.learner.world.size, [self.drawn.images(step)]
        if self.slots is not None:
            sizes.append(int(self.slots.counts[step]))
        elif self.beside is not None:
            sizes.append(self.beside.size)
        least = [size // processes if self._shares(size, step) else size for size in sizes if size]
        return number_of_parts(self.learner.settings.accumulate, *least)

    def batches(self, first: int = 0) -> Iterator[tuple[Batch, Batch | None]]:
        """Yields each step's batch, and its batch of memory images, from step ``first`` on."""
        learner, drawn, steps = self.learner, self.drawn, range(first, self.steps)
        shares = [self._share(drawn.images(step), step) for step in steps]
        rows = [drawn.of_step(*one).rows for one in zip(steps, shares, strict=True)]
        pixels = learner.train_pixels.batches(rows)
        beside = self._beside_pixels(steps)
        for step, share, images in zip(steps, shares, pixels, strict=True):
            yield drawn.batch(step, share, images, learner), self._reference(step, beside)

    def _share(self, images: int, step: int) -> Share:
        """Return what this process takes of some images of a step."""
        return self.learner.world.share if self._shares(images, step) else slice

    def _shares(self, images: int, step: int) -> bool:
        world = self.learner.world
        return world.divides(self.drawn.images(step)) and world.divides(images)

    def _weight(self, beside: int, step: int) -> float:
        """Return what a mean over memory images beside a step must be multiplied by."""
        world, own = self.learner.world, self.drawn.images(step)
        return world.weight_of(beside) / world.weight_of(own) if world.divides(own) else 1.0

    def landing(self, step: int) -> Tensor:
        """Return the slots of a reservoir in which a step's images land: (n,), on the device.

        They are those of all processes' images, as they stand when they are gathered.
        """
        slots, size = cast(SlotPlan, self.slots), self.drawn.size
        landing = slots.landing[step * size : (step + 1) * size]
        world = self.learner.world
        if world.divides(len(landing)):
            landing = np.concatenate([landing[rank :: world.size] for rank in range(world.size)])
        return torch.tensor(landing, device=self.learner.machine.device)

    def _beside_pixels(self, steps: range) -> Iterator[Tensor]:
        """Return the images of memory beside each step, read ahead as the step's own are."""
        if self.beside is None:
            return iter(())
        shares = [self._share(self.beside.size, step) for step in steps]
        rows = [self.beside.of_step(*one).rows for one in zip(steps, shares, strict=True)]
        return self.learner.train_pixels.batches(rows)

    def _reference(self, step: int, pixels: Iterator[Tensor]) -> Batch | None:
        """Return the batch of memory images beside a step; ``pixels`` are those of all steps."""
        if self.slots is not None:
            count = int(self.slots.counts[step])
            batch = _from_slots(self.slots, step, self._share(count, step), self.learner)
        elif self.beside is not None:
            count = self.beside.size
            share = self._share(count, step)
            batch = self.beside.batch(step, share, next(pixels), self.learner)
        else:
            return None
        batch = batch and replace(batch, weight=self._weight(count, step))
        if batch is None or not self._shares(count, step):
            return batch
        world = self.learner.world
        return replace(batch, in_all=count, places=range(world.rank, count, world.size))


def number_of_parts(wanted: int, *images: int) -> int:
    """Return in how many parts batches of ``images`` are taken: with two images in each, at least.

    >>> number_of_parts(4, 128), number_of_parts(4, 128, 6), number_of_parts(4, 1)
    (4, 3, 1)
    """
    return max(1, min(wanted, *(count // 2 for count in images)))


def _from_slots(plan: SlotPlan, step: int, share: Share, learner: Learner) -> Batch | None:
    """Return the batch that a step draws from the reservoir as it now stands, if it has any."""
    reservoir, count = cast(Reservoir, learner.reservoir), int(plan.counts[step])
    if not count:
        return None
    at = share(step * plan.size, step * plan.size + count)
    slots = torch.tensor(plan.order[at], device=reservoir.rows.device)
    rows = reservoir.rows[slots]
    (images,) = learner.train_pixels.batches([rows.cpu().numpy()])
    jitters = [jitter[at].to(rows.device) for jitter in plan.jitters]
    first, others = augment_views(images, jitters, learner.transform)
    return Batch(
        first,
        reservoir.targets[slots].float(),
        torch.ones_like(slots, dtype=torch.bool),
        rows,
        {name: table[slots] for name, table in reservoir.stored.items()},
        others,
    )


def _draw_views(
    learner: Learner, images: int, random: np.random.Generator, purpose: str, place: Place
) -> tuple[Jitter, ...]:
    """Draw how images are varied, once for each view.

    The first view goes on with ``random``, as if it were the only one; the others have keys of
    their own, so that they change nothing else.
    """
    seed, crop = learner.settings.seed, learner.transform.crop
    others = range(1, learner.method.views)
    return (
        crop.draw(images, random),
        *(crop.draw(images, generator_for(seed, purpose, view, *place)) for view in others),
    )


def _draw_beside(learner: Learner, stored: TrainingSet, steps: int, place: Place) -> Drawn:
    """Draw as many images as the method wants for each step, none twice in a batch."""
    settings, wanted = learner.settings, learner.method.reference_batch_size
    size = min(wanted or settings.batch_size, len(stored))
    random = generator_for(settings.seed, "reference", *place)
    drawn = [random.permutation(len(stored))[:size] for _ in range(steps)]
    order = np.concatenate(drawn) if drawn else np.empty(0, dtype=np.intp)
    jitters = _draw_views(learner, len(order), random, "reference views", place)
    return Drawn(stored, order, jitters, size)


def _plan_slots(learner: Learner, images: int, place: Place) -> SlotPlan | None:
    """Draw what the steps of ``images`` take from the reservoir, if any, and put into it.

    A step draws from what is stored before it, none twice.
    """
    reservoir, settings = learner.reservoir, learner.settings
    if reservoir is None:
        return None
    slots, each = reservoir.slots, settings.batch_size
    offered = reservoir.offered + place[1] * images  # every epoch offers every image
    size = min(learner.method.reference_batch_size or each, slots)
    filled = np.minimum(offered + np.arange(0, images, each), slots)
    random = generator_for(settings.seed, "reference", *place)
    order = np.zeros((len(filled), size), dtype=np.intp)
    for drawn, there in zip(order, filled, strict=True):
        drawn[: min(size, there)] = random.permutation(there)[:size]
    jitters = _draw_views(learner, order.size, random, "reference views", place)
    chance = generator_for(settings.seed, "reservoir", *place)
    landing = landing_slots(images, offered, slots, each, chance)
    return SlotPlan(order.ravel(), jitters, size, np.minimum(filled, size), landing)
