"""A model, its method and its memory, as they stand at one place in a stream."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polarbear.base.arrays import Bools, Ints
from polarbear.benchmark.stream import Task, View
from polarbear.engine.contract.batch import TaskContext
from polarbear.engine.contract.method import Method
from polarbear.engine.contract.predict import decided, measured, raw_scores
from polarbear.engine.generator import generator_for
from polarbear.engine.images.pixels import Pixels
from polarbear.engine.images.transform import ImageTransform, for_evaluation
from polarbear.engine.machine import Machine
from polarbear.engine.nets.model import Model
from polarbear.engine.task.replay_memory import ReplayMemory, herding, random_choice
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

    def context(self, task: Task) -> TaskContext:
        """Return a method its place in the stream and its look-ups."""
        return TaskContext(
            task=task.index,
            old=task.new.start,
            seen=task.new.stop,
            class_images=lambda column, limit: self._class_images(task, column, limit),
        )

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
        if self.method.replay == "none":
            return
        settings = self.settings
        keep_all = self.method.keep_everything
        self.memory = self.memory.add(
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
