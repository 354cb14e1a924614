"""What methods on features share: a network that no longer changes, and parents of new classes."""

from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from polarbear.engine.contract.batch import Batch, TaskContext, Which
from polarbear.engine.contract.method import Method, bce
from polarbear.engine.nets.heads import LinearHead
from polarbear.engine.nets.model import Model
from polarbear.methods.tree import closure


class OnFeatures(Method):
    """Learns from features, each task in one pass, after the first task has trained the network.

    A frozen network is not trained at all. Methods define :meth:`add` and :meth:`class_scores`.

    An image of a new subclass comes without the label of its superclass. Before a task is learnt,
    the classes known by then are asked about its images: where one without a parent has the highest
    score on ``majority`` of a new class's images, it is the new class's parent. The class with the
    highest score is predicted, and all above it.
    """

    keep = "last"

    @dataclass(frozen=True)
    class Options(Method.Options):
        """Settings of every method on features."""

        parents: bool = True
        """Look for parents; without, one class is predicted."""
        majority: float = field(default=0.5, metadata={"at_least": 0})
        """Part of a class's images that must say who its parent is."""

    options: Any
    parents: Tensor

    def __init__(self, model: Model, options: Any = None) -> None:
        """Know no class yet."""
        super().__init__(model, options)
        self.register_buffer("parents", torch.empty(0, dtype=torch.long))

    def add(self, features: Tensor, targets: Tensor) -> None:
        """Learn from a task's features (n, d), float64, and labels (n, seen), 0 or 1."""
        raise NotImplementedError(f"{type(self).__name__} must define add(features, targets)")

    def class_scores(self, features: Tensor) -> Tensor:
        """Return a score of each class that was learnt, for features (n, d): (n, classes)."""
        raise NotImplementedError(f"{type(self).__name__} must define class_scores(features)")

    def begin_task(self, context: TaskContext) -> None:
        """Take the new classes for parentless, until the task ends."""
        old = self.parents[: context.old]
        none = old.new_full((context.seen - context.old,), -1)
        self.register_buffer("parents", torch.cat([old, none]))

    def trains_in(self, task: int) -> bool:
        """Return True for the first task of a network that is not frozen."""
        return task == 0 and any(True for _ in self.model.backbone.parameters())

    def loss(self, batch: Batch) -> Tensor:
        """Return BCE over the seen classes, which trains the network in the first task."""
        return bce(self.model(batch.images), batch.targets)

    @torch.no_grad()
    def end_task(self) -> None:
        """Find the new classes' parents, then learn from features of the task's images."""
        self.model.eval()
        features, targets = self.gathered("task")
        if self.context.old and self.options.parents:
            self.parents[self.context.new] = self.found_parents(features, targets)
        self.add(features, targets)

    def gathered(self, which: Which) -> tuple[Tensor, Tensor]:
        """Return features (n, d) of the context's images, and their labels (n, seen); float64."""
        weight = cast(LinearHead, self.model.head).weight
        features = [weight.new_empty(0, weight.shape[1])]
        targets = [weight.new_empty(0, self.context.seen)]
        for batch in self.context.batches(which):
            with self.context.autocast():
                features.append(self.model.features(batch.images).float())
            targets.append(batch.targets)
        return torch.cat(features).double(), torch.cat(targets).double()

    def found_parents(self, features: Tensor, targets: Tensor) -> Tensor:
        """Return the parent of each new class, −1 for none: (new,)."""
        old, new = self.context.old, targets[:, self.context.new]
        has_parent = self.parents[:old] >= 0
        asked = self.class_scores(features).masked_fill(has_parent, -torch.inf)
        votes = new.T @ one_hot(asked.argmax(dim=1), old).double()
        share, best = (votes / new.sum(dim=0).clamp(min=1)[:, None]).max(dim=1)
        return torch.where(share >= self.options.majority, best, -1)

    def scores(self, images: Tensor) -> Tensor:
        """Return the scores of the classes for images."""
        return self.class_scores(self.model.features(images).double())

    def validation_scores(self, images: Tensor) -> Tensor:
        """Return the head's logits: only the first task has epochs, and it is not yet learnt."""
        logits: Tensor = self.model(images)
        return logits

    def decide(self, scores: Tensor) -> Tensor:
        """Return the class with the highest score, and all above it: (n, seen)."""
        return closure(self.parents)[scores.argmax(dim=1)] > 0

    def inferred_parents(self) -> Tensor:
        """Return the parents that were found: (seen,)."""
        return self.parents


def grown(table: Tensor, rows: int) -> Tensor:
    """Return a table (n, …) with zeros below, ``rows`` in all.

    >>> grown(torch.ones(1, 2), 2).tolist()
    [[1.0, 1.0], [0.0, 0.0]]
    """
    return torch.cat([table, table.new_zeros(rows - len(table), *table.shape[1:])])
