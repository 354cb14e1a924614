"""A model, its method and its memory, as they stand at one place in a stream."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polarbear.base.arrays import Bools, Ints
from polarbear.base.errors import PolarbearError
from polarbear.benchmark.stream import Stream, Task, View
from polarbear.engine.contract.batch import Batch, TaskContext, Which
from polarbear.engine.contract.method import Method
from polarbear.engine.contract.phase import Phase
from polarbear.engine.contract.predict import decided, measured, raw_scores
from polarbear.engine.generator import generator_for
from polarbear.engine.images.pixels import Pixels
from polarbear.engine.images.transform import ImageTransform, for_evaluation
from polarbear.engine.machine import Machine
from polarbear.engine.nets.model import Model
from polarbear.engine.task.replay_memory import ReplayMemory, herding, random_choice
from polarbear.engine.task.training_set import TaskImages, TrainingSet, training_view
from polarbear.score.decide import RawScores
from polarbear.settings.settings import Settings

PREDICT_AT_ONCE = 512  # images; more at a time are no faster on a CPU
PREDICT_AT_ONCE_ON_GPU = 2048


@dataclass(eq=False)
class Learner:
    """Everything that is learnt; the trainer moves it from task to task."""

    settings: Settings
    machine: Machine
    transform: ImageTransform
    model: Model
    method: Method
    memory: ReplayMemory
    train_pixels: Pixels
    test_pixels: Pixels

    @property
    def at_once(self) -> int:
        """Images predicted in one forward pass."""
        on_gpu = self.machine.device.type == "cuda"
        return PREDICT_AT_ONCE_ON_GPU if on_gpu else PREDICT_AT_ONCE

    def context(self, task: Task, images: TaskImages) -> TaskContext:
        """Return a method its place in the stream and its look-ups."""
        device = self.machine.device
        counts = images.training_set.targets.sum(axis=0)
        sets: dict[Which, Callable[[], TrainingSet]] = {
            "task": lambda: TrainingSet.of(task.train),
            "memory": lambda: TrainingSet.of_memory(self.memory, len(task.seen)),
            "valid": lambda: TrainingSet.of(images.valid),
        }
        return TaskContext(
            task=task.index,
            old=task.new.start,
            seen=task.new.stop,
            classes=task.seen,
            settings=self.settings,
            class_counts=torch.tensor(counts, dtype=torch.float32, device=device),
            epoch=torch.zeros((), dtype=torch.long, device=device),
            step=torch.zeros((), dtype=torch.long, device=device),
            class_images=lambda column, limit: self._class_images(task, column, limit),
            batches=lambda which: self._batches(sets[which]()),
        )

    def task_images(self, stream: Stream, task: int) -> TaskImages:
        """Return what a task's main phase trains on: all but what is held out."""
        images = TaskImages.of(stream, task, self.method, self.memory)
        everything, kept_out = images.training_set, self._held_out(images, task)
        if not kept_out.size:
            return images
        # By row: the same image may be there twice, with the labels of two tasks.
        rest = np.flatnonzero(~np.isin(everything.rows, everything.rows[kept_out]))
        return replace(images, training_set=everything.take(rest))

    def phase_set(self, stream: Stream, task: int, phase: Phase) -> TrainingSet:
        """Return what a later phase of a task trains on."""
        images = TaskImages.of(stream, task, self.method, self.memory)
        everything, seen = images.training_set, len(stream[task].seen)
        chosen = {
            "all": lambda: self.task_images(stream, task).training_set,
            "task": lambda: TrainingSet.of(training_view(stream, task, self.method.complete)),
            "memory": lambda: TrainingSet.of_memory(self.memory, seen),
            "balanced": lambda: self._balanced(stream[task]),
            "held_out": lambda: everything.take(self._held_out(images, task)),
        }
        training_set = chosen[phase.on]()
        if not len(training_set):
            raise PolarbearError(
                f"the phase {phase.name!r} of {type(self.method).__name__} has no images: there "
                f"are none {phase.on!r} in task {task} with replay = {self.method.replay!r} and "
                f"held_out = {self.method.held_out}"
            )
        return training_set

    def _balanced(self, task: Task) -> TrainingSet:
        """Return the memory as it would be if the task ended now."""
        memory = self._filled(task)
        stored = TrainingSet.of_memory(memory, len(task.seen))
        return replace(stored, replayed=memory.classes < task.new.start)

    def _held_out(self, images: TaskImages, task: int) -> Ints:
        """Return the positions of what a task's training set lacks in its main phase.

        Of each class as many of the task's images as of memory's: in the first task, none.
        """
        count, found = self.method.held_out if len(self.memory) else 0, images.training_set
        own, chosen = len(found) - len(self.memory), [np.empty(0, dtype=np.intp)]
        for column in np.flatnonzero(found.targets[:own].any(axis=0)) if count else ():
            random = generator_for(self.settings.seed, "held-out", task, int(column))
            rows = np.flatnonzero(found.targets[:own, column])
            chosen.append(random_choice(rows, min(count, len(rows) // 2), random))
        for column in np.unique(self.memory.classes) if count else ():
            stored = np.flatnonzero(self.memory.classes == column)
            chosen.append(own + stored[max(len(stored) - count, -(-len(stored) // 2)) :])
        return np.unique(np.concatenate(chosen))

    def scores(self, view: View) -> NDArray[np.float32]:
        """Return the method's scores (n, seen) for the images of a view, each looked at once."""
        pixels = self.train_pixels if view.file == "train" else self.test_pixels
        give = partial(raw_scores, self.method, seen=len(view.classes))
        return self._look_at(give, pixels, view.rows)

    def decide(self, scores: RawScores) -> Bools:
        """Return what the method predicts by its own rule: (n, seen)."""
        with self.evaluating():
            named: Bools = decided(self.method, self._on_device(scores)).cpu().numpy()
            return named

    def measure(self, scores: RawScores, targets: Bools) -> float:
        """Return the method's own measure of scores (n, seen)."""
        with self.evaluating():
            due = self._on_device(targets).float()
            return measured(self.method, self._on_device(scores), due)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Put the model into evaluation mode and, for the while, what the method has of its own."""
        self.model.eval()
        learning = [module for module in self.method.modules() if module.training]
        for module in learning:
            module.training = False
        try:
            yield
        finally:
            for module in learning:
                module.training = True

    def remember(self, task: Task) -> None:
        """Fill the memory with images of a task's classes, as the method chooses them."""
        if self.method.replay != "none":
            self.memory = self._filled(task)

    def _filled(self, task: Task) -> ReplayMemory:
        settings, keep_all = self.settings, self.method.keep_everything
        return self.memory.add(
            task,
            self._selection(task),
            per_class=None if keep_all else settings.memory_per_class,
            total=None if keep_all else settings.memory_total,
        )

    def _selection(self, task: Task) -> Callable[[int, Ints, int], Ints]:
        def at_random(column: int, rows: Ints, count: int) -> Ints:
            random = generator_for(self.settings.seed, "memory", task.index, column)
            return random_choice(rows, count, random)

        def by_herding(column: int, rows: Ints, count: int) -> Ints:
            features = self._look_at(self.model.features, self.train_pixels, rows)
            return rows[herding(features, count)]

        return {"random": at_random, "herding": by_herding}[self.method.selection]

    def _batches(self, images: TrainingSet) -> Iterator[Batch]:
        size, device = self.settings.batch_size, self.machine.device
        parts = [images.take(np.s_[i : i + size]) for i in range(0, len(images), size)]
        pixels = self.train_pixels.batches([part.rows for part in parts])
        for part, stored in zip(parts, pixels, strict=True):
            yield Batch(
                for_evaluation(stored, self.transform),
                torch.tensor(part.targets, dtype=torch.float32, device=device),
                torch.tensor(part.replayed, device=device),
            )

    def _class_images(self, task: Task, column: int, limit: int | None) -> Tensor:
        rows = task.train.rows[task.train.targets[:, column]]
        if limit is not None and len(rows) > limit:
            random = generator_for(self.settings.seed, "look-up", task.index, column)
            rows = random_choice(rows, limit, random)
        (images,) = self.train_pixels.batches([rows])
        return for_evaluation(images, self.transform)

    def _on_device(self, values: RawScores | Bools) -> Tensor:
        return torch.tensor(values, device=self.machine.device)

    @torch.no_grad()
    def _look_at(
        self, function: Callable[[Tensor], Tensor], pixels: Pixels, rows: Ints
    ) -> NDArray[np.float32]:
        parts: list[Tensor] = []
        parted = [rows[i : i + self.at_once] for i in range(0, len(rows), self.at_once)]
        with self.evaluating():
            for images in pixels.batches(parted):
                with self.machine.autocast():
                    parts.append(function(for_evaluation(images, self.transform)).float())
        found: NDArray[np.float32] = (
            torch.cat(parts).cpu().numpy() if parts else np.empty((0, 0), np.float32)
        )
        return found
