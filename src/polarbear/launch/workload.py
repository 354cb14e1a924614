"""How many images a run looks at, task by task: known from its plan, before anything is trained."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from polarbear.base.arrays import Ints
from polarbear.benchmark.stream import Stream
from polarbear.engine.contract.method import Method
from polarbear.engine.task.selection import RESERVOIR
from polarbear.engine.task.training_set import training_view
from polarbear.settings.settings import Settings


@dataclass(frozen=True)
class TaskWork:
    """What a task's main phase trains on, and what is looked at without training.

    An epoch has ``images`` of the task and ``memory`` mixed in. ``beside`` are memory images beside
    the steps of all epochs. ``valid`` are looked at after every epoch, ``tested`` after the task.
    """

    epochs: int
    images: int
    memory: int
    beside: int
    valid: int
    tested: int

    @property
    def passes(self) -> int:
        """Images forward and backward, an image as often as it is in a step."""
        return self.epochs * (self.images + self.memory) + self.beside

    @property
    def looks(self) -> int:
        """Images forward alone: of validation and test."""
        return self.epochs * self.valid + self.tested


def work_of(method: Method, settings: Settings, stream: Stream) -> tuple[TaskWork, ...]:
    """Return the work of each task of a run.

    Exact, but for methods with phases of their own, whose images are not counted, and with images
    held out for them, which are.
    """
    return tuple(_work(method, settings, stream))


def _work(method: Method, settings: Settings, stream: Stream) -> Iterator[TaskWork]:
    arrived: list[Ints] = []  # images of each class, task by task
    offered = 0  # to a reservoir
    for task in range(min(len(stream), settings.tasks or len(stream))):
        now = stream[task]
        memory = _memory(method, settings, arrived)
        arrived.append(now.train.label_counts[now.new])
        epochs = settings.epochs_of(task) * method.trains_in(task)
        images, mixed = len(training_view(stream, task, method.complete)), 0
        if method.trains_on == "balanced":
            mixed = memory
            images = _memory(method, settings, arrived) - memory
        elif method.replay == "mixed":
            mixed = memory
        beside = 0
        if method.selection == RESERVOIR:
            slots = _slots(settings, len(stream.classes))
            beside = _from_reservoir(method, settings, images, epochs, offered, slots)
            offered += epochs * images
        elif method.replay == "reference":
            size = min(method.reference_batch_size or settings.batch_size, memory)
            beside = epochs * -(-images // settings.batch_size) * size
        valid = len(stream.valid(after=task) if method.complete else now.valid)
        tested = len(stream.post_valid(after=task)) + len(stream.test(after=task))
        yield TaskWork(epochs, images, mixed, beside, valid, tested)


def _memory(method: Method, settings: Settings, arrived: list[Ints]) -> int:
    """Return how many images are stored of classes that have arrived."""
    if method.replay == "none" or not arrived:
        return 0
    sizes = np.concatenate(arrived)
    if method.keep_everything:
        return int(sizes.sum())
    each = settings.memory_per_class
    if settings.memory_total is not None:
        each = math.ceil(settings.memory_total / len(sizes))
    return int(sizes.sum() if each is None else np.minimum(sizes, each).sum())


def _slots(settings: Settings, classes: int) -> int:
    return settings.memory_total or classes * (settings.memory_per_class or 0)


def _from_reservoir(
    method: Method, settings: Settings, images: int, epochs: int, offered: int, slots: int
) -> int:
    """Return how many images the steps draw from a reservoir that fills as they go."""
    size = min(method.reference_batch_size or settings.batch_size, slots)
    before = np.arange(0, images, settings.batch_size)
    drawn = 0
    for epoch in range(epochs):
        there = np.minimum(offered + epoch * images + before, size)
        if there[0] == size:  # from here on every step finds enough
            return drawn + (epochs - epoch) * size * len(before)
        drawn += int(there.sum())
    return drawn


def stored_images(method: Method, settings: Settings, stream: Stream) -> int:
    """Return how many images a method keeps after the last task."""
    if method.complete or method.joint:
        return len(training_view(stream, len(stream) - 1, complete=True))
    if method.selection == RESERVOIR:
        return _slots(settings, len(stream.classes))
    return _memory(method, settings, [task.train.label_counts[task.new] for task in stream])
