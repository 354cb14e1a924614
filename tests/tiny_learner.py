"""A method on a tiny network, taken to the task a test wants, and losses written as loops."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from polarbear.engine.contract.batch import Batch, TaskContext
from polarbear.engine.contract.method import Method, frozen_copy
from polarbear.engine.nets.heads import build_head
from polarbear.engine.nets.model import Model
from polarbear.settings.settings import Settings

WIDTH = 6
CLASSES = 10


class TinyBackbone(nn.Module):
    """Two convolutions with batch norm between: (n, 3, h, w) → (n, 6), negative values too."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, WIDTH, 3)
        )

    def maps(self, images: Tensor) -> list[Tensor]:
        first = self.layers[:2](images)
        return [first, self.layers[2:](first)]

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images).mean(dim=(2, 3))


def model_for(method: type[Method], seed: int = 0) -> Model:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Model(TinyBackbone(), build_head(method.head, WIDTH, CLASSES, seed))


def random_images(n: int, seed: int) -> Tensor:
    return torch.randn((n, 3, 6, 6), generator=torch.Generator().manual_seed(seed))


def class_images(column: int, limit: int | None = None) -> Tensor:
    return random_images(9 + column, seed=1000 + column)[:limit]


def context_for(
    task: int, old: int, seen: int, look_up: Callable[[int, int | None], Tensor] = class_images
) -> TaskContext:
    """A place in a stream, without images but those that are looked up."""
    return TaskContext(
        task,
        old,
        seen,
        classes=tuple(f"class {column}" for column in range(seen)),
        settings=Settings("er"),
        class_counts=torch.ones(seen),
        epoch=torch.tensor(0),
        step=torch.tensor(0),
        class_images=look_up,
        stored_images=look_up,
        batches=lambda which: iter(()),
        rows_in_all=100,
    )


def at_task(
    method: type[Method],
    sizes: Sequence[int] = (4, 3),
    options: object = None,
    between: Callable[[Method], None] | None = None,
    look_up: Callable[[int, int | None], Tensor] = class_images,
) -> Method:
    """Go through tasks of these sizes, a step of training in all but the last, as the engine does.

    ``between`` may change a learner after each task.
    """
    learner = method(model_for(method), options)
    old = 0
    for task, size in enumerate(sizes):
        if method.wants_teacher and task > 0:
            learner.teacher = frozen_copy(learner.model)
        learner.model.head.grow(old + size)
        learner.context = context_for(task, old, old + size, look_up)
        learner.begin_task(learner.context)
        if task < len(sizes) - 1:
            step(learner, batch_for(learner, seed=task))
            learner.end_task()
            if between:
                between(learner)
        old += size
    learner.model.zero_grad()
    return learner


def batch_for(learner: Method, n: int = 8, replayed: int = 4, seed: int = 0) -> Batch:
    """Images with one label each, of a new class or, the last ``replayed``, of an old one."""
    old, seen = learner.context.old, learner.context.seen
    replayed = replayed if old else 0
    targets = torch.zeros(n, seen)
    for i in range(n):
        stored = i >= n - replayed
        targets[i, i % old if stored else old + i % (seen - old)] = 1
    rows = torch.arange(n)
    return Batch(random_images(n, seed), targets, rows >= n - replayed, rows)


def step(learner: Method, batch: Batch, reference: Batch | None = None, rate: float = 0.1) -> None:
    """One step of plain SGD."""
    learner.model.train()
    trained = [p for p in learner.model.parameters() if p.requires_grad]
    optimiser = torch.optim.SGD(trained, lr=rate)
    optimiser.zero_grad()
    learner.backward(batch, reference)
    optimiser.step()


def scores_of(learner: Method, images: Tensor) -> Tensor:
    """The scores the loss sees: training mode, statistics of the batch."""
    learner.model.train()
    with torch.no_grad():
        return learner.model(images)


def slow_bce(scores: Tensor, targets: Tensor) -> float:
    """−(y log p + (1 − y) log(1 − p)), one image and one class at a time."""
    total = 0.0
    for score_row, target_row in zip(scores.tolist(), targets.tolist(), strict=True):
        for score, y in zip(score_row, target_row, strict=True):
            p = 1 / (1 + math.exp(-score))
            total -= y * math.log(p) + (1 - y) * math.log(1 - p)
    return total / scores.numel()


def slow_cosine(a: Sequence[float], b: Sequence[float]) -> float:
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a)) / math.sqrt(sum(y * y for y in b))
