"""A model, its method and its memory, as they stand at one place in a stream."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polarbear.base.arrays import Bools, Ints
from polarbear.base.errors import PolarbearError
from polarbear.benchmark.stream import Task, View
from polarbear.engine.contract.batch import Batch
from polarbear.engine.contract.method import Method
from polarbear.engine.contract.predict import decided, measured, raw_scores
from polarbear.engine.generator import generator_for
from polarbear.engine.images.pixels import Pixels
from polarbear.engine.images.task_pixels import image_shape
from polarbear.engine.images.transform import ImageTransform, ResizedTo, for_evaluation
from polarbear.engine.machine import Machine
from polarbear.engine.nets.model import Model
from polarbear.engine.task.replay_memory import ReplayMemory, random_choice
from polarbear.engine.task.reservoir import Reservoir
from polarbear.engine.task.selection import RESERVOIR, Candidates, chosen_rows
from polarbear.engine.task.stored import Shapes, on_host, stored_shapes
from polarbear.engine.world import World, the_world
from polarbear.score.decide import RawScores
from polarbear.settings.settings import Settings

PREDICT_AT_ONCE = 512  # images; more at a time are no faster on a CPU
#: On a GPU, in all their pixels: 8,192 of CIFAR's. To launch a network's kernels takes as long as
#: they take for 2,048 of these, and in a fleet all other runs wait for that.
PREDICT_PIXELS_ON_GPU = 8192 * 32 * 32


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
    reservoir: Reservoir | None = field(default=None, init=False)
    world: World = field(default_factory=the_world, init=False)

    @property
    def at_once(self) -> int:
        """Images predicted in one forward pass."""
        if self.machine.device.type != "cuda":
            return PREDICT_AT_ONCE
        height, width, _ = image_shape(self.train_pixels)
        if isinstance(crop := self.transform.crop, ResizedTo):
            height = width = crop.side
        return max(256, PREDICT_PIXELS_ON_GPU // (height * width))

    def scores(self, view: View, *, validation: bool = False) -> NDArray[np.float32]:
        """Return the method's scores (n, seen) for the images of a view, each looked at once.

        Those of in-task ``validation`` may be others.
        """
        pixels = self.train_pixels if view.file == "train" else self.test_pixels
        return self.scores_of(pixels, view.rows, len(view.classes), validation=validation)

    def scores_of(
        self, pixels: Pixels, rows: Ints, seen: int, *, validation: bool = False
    ) -> NDArray[np.float32]:
        """Return the method's scores (n, seen) for rows of any pixels."""
        give = partial(raw_scores, self.method, seen=seen, validation=validation)
        return self._look_at(give, pixels, rows)

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

    def open_reservoir(self, task: Task, classes: int) -> None:
        """Put the memory onto the device, where a task's steps change it, if the method wants so.

        It has ``memory_total`` slots, else ``memory_per_class`` for each of all the ``classes`` of
        the stream, from the start: they are shared by what has been seen, whatever its class.
        """
        self.reservoir = None
        if self.method.selection != RESERVOIR:
            return
        settings, method = self.settings, self.method
        if method.replay != "reference" or method.keep_everything:
            raise PolarbearError(
                f"{type(method).__name__} has selection = {RESERVOIR!r}, which needs replay = "
                "'reference' and no keep_everything: its memory changes at every step"
            )
        slots = settings.memory_total or classes * (settings.memory_per_class or 0)
        if not slots:
            raise PolarbearError(
                "a reservoir has a fixed number of slots: give memory_total, or memory_per_class"
            )
        labels = task.train.label_table[task.train.leaf[:1]]
        trial = self._to_store(task.train.rows[:1], labels)
        device = self.machine.device
        self.reservoir = Reservoir.of(self.memory, slots, len(task.seen), trial, device)

    def close_reservoir(self, trained: int) -> None:
        """Take the memory back from the device, if it was there.

        ``trained`` images were taken by the steps, in all epochs.
        """
        if self.reservoir is not None:
            self.memory, self.reservoir = self.reservoir.memory(trained), None

    def memory_now(self) -> ReplayMemory:
        """Return the memory as it stands, also amid a task whose steps change it."""
        return self.memory if self.reservoir is None else self.reservoir.memory()

    def remember(self, task: Task) -> None:
        """Fill the memory with images of a task's classes, unless its steps have done so."""
        if self.method.replay != "none" and self.method.selection != RESERVOIR:
            self.memory = self.filled(task)

    def filled(self, task: Task) -> ReplayMemory:
        """Return the memory with images of a task's classes, as the method chooses them."""
        settings, keep_all = self.settings, self.method.keep_everything
        return self.memory.add(
            task,
            partial(self._select, task),
            per_class=None if keep_all else settings.memory_per_class,
            total=None if keep_all else settings.memory_total,
            store=self._to_store,
        )

    @torch.no_grad()
    def store_at_step(self, batch: Batch) -> Mapping[str, Tensor]:
        """Return what the method stores with a step's images, the network in training mode."""
        if not self._stores:
            return {}
        buffers = list(self.model.buffers())
        before = [buffer.clone() for buffer in buffers]
        with self.machine.autocast():
            found = self.method.store(batch.images, batch.targets)
        if buffers:  # the step counts its images itself: not twice in running statistics
            torch._foreach_copy_(buffers, before)
        return found

    def put(self, landing: Tensor, batch: Batch, found: Mapping[str, Tensor]) -> None:
        """Let a step's images land in the reservoir, with what the method stores with them."""
        if self.reservoir is None:
            return
        if self.world.divided:  # every process has the whole reservoir
            sizes = self.world.share_sizes(len(landing))
            rows, targets = (self.world.gather(t, sizes) for t in (batch.rows, batch.targets))
            batch = replace(batch, rows=rows, targets=targets)
            found = {name: self.world.gather(found[name], sizes) for name in sorted(found)}
        self.reservoir.put(landing, batch, found, type(self.method).__name__)

    @property
    def _stores(self) -> bool:
        return type(self.method).store is not Method.store

    @torch.no_grad()
    def _to_store(self, rows: Ints, targets: Bools) -> dict[str, NDArray[Any]]:
        """Return what the method stores with images, as they are in the file: arrays (n, …)."""
        if not self._stores:
            return {}
        cuts, device = range(0, len(rows), self.at_once), self.machine.device
        parts: dict[str, list[NDArray[Any]]] = {}
        shapes: Shapes | None = None
        pixels = self.train_pixels.batches([rows[i : i + self.at_once] for i in cuts])
        for i, images in zip(cuts, pixels, strict=True):
            labels = torch.tensor(targets[i : i + self.at_once], dtype=torch.float32, device=device)
            with self.evaluating(), self.machine.autocast():
                found = self.method.store(for_evaluation(images, self.transform), labels)
            shapes = stored_shapes(found, len(images), type(self.method).__name__, shapes)
            for name, tensor in found.items():
                parts.setdefault(name, []).append(on_host(tensor))
        return {name: np.concatenate(arrays) for name, arrays in parts.items()}

    def _select(self, task: Task, column: int, rows: Ints, count: int) -> Ints:
        """Return the rows of a class to keep, as the method's selection chooses them."""

        def look(what: str) -> NDArray[np.float32]:
            function = self.model if what == "logits" else self.model.features
            return self._look_at(function, self.train_pixels, rows)

        random = generator_for(self.settings.seed, "memory", task.index, column)
        candidates = Candidates(column, rows, random, look)
        chosen = chosen_rows(self.method.selection, candidates, count)
        return self.world.told(lambda: chosen)

    def stored_images(self, seen: int, column: int, limit: int | None = None) -> Tensor:
        """Return the stored images that carry a label, each once."""
        memory = self.memory_now()
        rows = memory.rows[memory.labels(seen).having(column)]
        _, first = np.unique(rows, return_index=True)
        return self._as_in_file(rows[np.sort(first)][:limit])

    def class_images(self, task: Task, column: int, limit: int | None = None) -> Tensor:
        """Return images of a class of a task, drawn at random where there are too many."""
        rows = task.train.rows[task.train.having(column)]
        if limit is not None and len(rows) > limit:
            random = generator_for(self.settings.seed, "look-up", task.index, column)
            rows = random_choice(rows, limit, random)
        return self._as_in_file(rows)

    def _as_in_file(self, rows: Ints) -> Tensor:
        """Return images (n, 3, h, w), normalised and not augmented."""
        (images,) = self.train_pixels.batches([rows])
        return for_evaluation(images, self.transform)

    def _on_device(self, values: RawScores | Bools) -> Tensor:
        return torch.tensor(values, device=self.machine.device)

    @torch.no_grad()
    def _look_at(
        self, function: Callable[[Tensor], Tensor], pixels: Pixels, rows: Ints
    ) -> NDArray[np.float32]:
        """Return what a function gives for images, float (n, …): each process looks at a part."""
        shares, in_shares = np.array_split(rows, self.world.size), self.world.divides(len(rows))
        rows = shares[self.world.rank] if in_shares else rows
        parts: list[Tensor] = []
        parted = [rows[i : i + self.at_once] for i in range(0, len(rows), self.at_once)]
        with self.evaluating():
            for images in pixels.batches(parted):
                with self.machine.autocast():
                    parts.append(function(for_evaluation(images, self.transform)).float())
        if not parts:
            return np.empty((0, 0), np.float32)
        own = torch.cat(parts)
        whole = self.world.gather(own, [len(part) for part in shares]) if in_shares else own
        found: NDArray[np.float32] = whole.cpu().numpy()
        return found
