"""A model, its method and its memory, as they stand at one place in a stream."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polarbear.base.arrays import Ints
from polarbear.benchmark.stream import Task, View
from polarbear.engine.contract.batch import TaskContext
from polarbear.engine.contract.method import Method
from polarbear.engine.generator import generator_for
from polarbear.engine.images.pixels import Pixels
from polarbear.engine.images.transform import ImageTransform, for_evaluation
from polarbear.engine.machine import Machine
from polarbear.engine.nets.model import Model
from polarbear.engine.task.replay_memory import ReplayMemory, herding, random_choice
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

    def logits(self, view: View) -> NDArray[np.float32]:
        """Return the model's logits (n, seen) for the images of a view, each looked at once."""
        pixels = self.train_pixels if view.file == "train" else self.test_pixels
        return self._in_evaluation(self.model, pixels, view.rows)

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
            features = self._in_evaluation(self.model.features, self.train_pixels, rows)
            return rows[herding(features, count)]

        return {"random": at_random, "herding": by_herding}[self.method.selection]

    def _class_images(self, task: Task, column: int, limit: int | None) -> Tensor:
        rows = task.train.rows[task.train.targets[:, column]]
        if limit is not None and len(rows) > limit:
            random = generator_for(self.settings.seed, "look-up", task.index, column)
            rows = random_choice(rows, limit, random)
        (images,) = self.train_pixels.batches([rows])
        return for_evaluation(images, self.transform)

    @torch.no_grad()
    def _in_evaluation(
        self, function: Callable[[Tensor], Tensor], pixels: Pixels, rows: Ints
    ) -> NDArray[np.float32]:
        self.model.eval()
        parts: list[Tensor] = []
        parted = [rows[i : i + self.at_once] for i in range(0, len(rows), self.at_once)]
        for images in pixels.batches(parted):
            with self.machine.autocast():
                parts.append(function(for_evaluation(images, self.transform)).float())
        found: NDArray[np.float32] = (
            torch.cat(parts).cpu().numpy() if parts else np.empty((0, 0), np.float32)
        )
        return found
