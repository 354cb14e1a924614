"""A stream as a Continuum scenario: one task set per task."""

from collections.abc import Callable
from typing import Any

import numpy as np

from polarbear.adapters.samples import Samples
from polarbear.base.errors import unknown_name
from polarbear.base.missing import needing
from polarbear.benchmark.stream import Stream, View

with needing("Continuum", "continuum"):
    import torch
    from continuum.datasets import InMemoryDataset
    from continuum.scenarios.base import _BaseScenario
    from continuum.tasks.image_array_task_set import ArrayTaskSet

SPLITS = ("train", "valid", "test")


class ViewTaskSet(ArrayTaskSet):
    """Continuum's task set of images in memory, read in batches where there is no transform."""

    def __getitems__(self, indices: list[int]) -> list[tuple[Any, Any, Any]]:
        """Return several samples at once, as a DataLoader asks."""
        if self.trsf is not None or self.target_trsf is not None:
            return [self[index] for index in indices]
        pixels = self._x[indices].transpose(0, 3, 1, 2)
        # NumPy's one thread: PyTorch would share a batch out among all cores, which on a busy
        # machine took 100 times as long.
        images = np.divide(pixels, np.float32(255), dtype=np.float32, order="C")
        shown = torch.from_numpy(images).unbind()
        return list(zip(shown, self._y[indices], self._t[indices], strict=True))


class StreamScenario(_BaseScenario):
    """The tasks of a stream: ``for task_set in scenario``, and ``scenario[j]``.

    A sample is (image, target, task): what the transformations make of a Pillow image, by default
    float32 (3, h, w) in 0..1; float32 (c,), a column for every class of the stream in its order of
    arrival, 0 for those still to come, so that ``task_set.add_samples`` can mix tasks; and the
    task's number. ``split`` is ``"train"`` or ``"valid"``, with the labels of task j alone, or
    ``"test"``: what to predict after task j, the test images of tasks 0 to j, each once, with all
    their labels among the classes seen by then. Continuum's tools that want one class per sample
    (its rehearsal memory, its class-wise splits) do not fit labels of two levels.

    >>> from polarbear import load
    >>> scenario = StreamScenario(load("iirc-shapes"))
    >>> image, target, task = scenario[1][0]
    >>> len(scenario), image.shape, target.shape, int(task)
    (7, torch.Size([3, 32, 32]), (36,), 1)
    """

    def __init__(
        self,
        stream: Stream,
        split: str = "train",
        transformations: list[Callable[[Any], Any]] | None = None,
    ) -> None:
        """Look at a stream that has images."""
        if split not in SPLITS:
            raise unknown_name("split", split, SPLITS)
        self.stream, self.split = stream, split
        # Continuum asks its data set for the kind of data alone: every task set is made here.
        none = np.empty((0, 1, 1, 3), np.uint8)
        nothing = InMemoryDataset(none, np.empty(0), train=split == "train")
        super().__init__(nothing, len(stream), transformations)
        if transformations is None:
            self.trsf = None

    def __getitem__(self, task_index: int | slice) -> Any:
        """Return the task set of a task, or of several tasks together."""
        numbers = range(len(self))[task_index]
        parts = [numbers] if isinstance(numbers, int) else list(numbers)
        classes = len(self.stream.classes)
        samples = [Samples.of(self.stream, self._view(number), classes)[:] for number in parts]
        x, y = (np.concatenate(column) for column in zip(*samples, strict=True))
        t = np.repeat(parts, [len(images) for images, _ in samples])
        return ViewTaskSet(x, y, t, self.trsf, None)

    @property
    def nb_classes(self) -> int:
        """Count the classes of the stream."""
        return len(self.stream.classes)

    @property
    def classes(self) -> list[int]:
        """Number the classes in their order of arrival: ``stream.classes`` names them."""
        return list(range(self.nb_classes))

    @property
    def nb_samples(self) -> int:
        """Count the samples of all task sets."""
        return sum(len(self._view(number)) for number in range(len(self)))

    def _view(self, number: int) -> View:
        if self.split == "test":
            return self.stream.test(after=number)
        view: View = getattr(self.stream[number], self.split)
        return view

    def _setup(self, nb_tasks: int) -> int:
        return nb_tasks
