"""What a learner is told of its place in the stream, and what it may look up there."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import torch

from polarbear.benchmark.stream import Task
from polarbear.engine.contract.batch import Batch, TaskContext, Which
from polarbear.engine.images.transform import for_evaluation
from polarbear.engine.task.learner import Learner
from polarbear.engine.task.stored import tables
from polarbear.engine.task.training_set import TaskImages, TrainingSet


def context_of(learner: Learner, task: Task, images: TaskImages) -> TaskContext:
    """Return a method its place in the stream and its look-ups; ``images`` is what it trains on."""
    device = learner.machine.device
    counts = images.training_set.labels.counts
    sets: dict[Which, Callable[[], TrainingSet]] = {
        "task": lambda: TrainingSet.of(task.train),
        "memory": lambda: _memory(learner, len(task.seen)),
        "valid": lambda: TrainingSet.of(images.valid),
    }
    return TaskContext(
        task=task.index,
        old=task.new.start,
        seen=task.new.stop,
        classes=task.seen,
        settings=learner.settings,
        class_counts=torch.tensor(counts, dtype=torch.float32, device=device),
        epoch=torch.zeros((), dtype=torch.long, device=device),
        step=torch.zeros((), dtype=torch.long, device=device),
        class_images=partial(learner.class_images, task),
        stored_images=partial(learner.stored_images, len(task.seen)),
        batches=lambda which: _batches(learner, sets[which]()),
        rows_in_all=len(learner.train_pixels),
        autocast=learner.machine.autocast,
    )


def _memory(learner: Learner, seen: int) -> TrainingSet:
    memory = learner.memory_now()
    stored = tables(memory.stored, learner.machine.device)
    return replace(TrainingSet.of_memory(memory, seen), stored=stored)


def _batches(learner: Learner, images: TrainingSet) -> Iterator[Batch]:
    """Go through images as they are in the file, as many at a time as a step takes."""
    size, device = learner.settings.batch_size, learner.machine.device
    index = np.arange(len(images))
    parts = [images.take(index[i : i + size]) for i in range(0, len(images), size)]
    pixels = learner.train_pixels.batches([part.rows for part in parts])
    for part, stored in zip(parts, pixels, strict=True):
        yield Batch(
            for_evaluation(stored, learner.transform),
            torch.tensor(part.targets, dtype=torch.float32, device=device),
            torch.tensor(part.replayed, device=device),
            torch.tensor(part.rows, device=device),
            {name: table[part.places] for name, table in part.stored.items()},
        )
