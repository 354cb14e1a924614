"""LUCIR: features that stay where they were, and room between old and new classes."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, normalize, relu

from polarbear.engine.contract.batch import Batch, TaskContext
from polarbear.engine.contract.method import Method, bce
from polarbear.engine.nets.heads import CosineHead
from polarbear.engine.nets.model import Model


class LUCIR(Method):
    """Binary cross-entropy over the seen classes, a less-forget term and a margin term.

    With f the features, f* those of the frozen previous network, and c the cosines::

        loss = BCE(σ c, labels) + λ · mean(1 − cos(f, f*)) + margin term,    λ = 5 √(old / new)

    The cosine head's old rows are frozen, σ is carried over and trained, and new rows start from
    the mean feature of their class. The first task has the first term alone.
    """

    summary = "keeps features near the previous network's; margin between old and new classes"
    head = "cosine"
    keep = "last"
    inclusive = True
    replay = "mixed"
    selection = "herding"
    wants_teacher = True

    @dataclass(frozen=True)
    class Options(Method.Options):
        """Settings of LUCIR."""

        lambda_base: float = field(default=5.0, metadata={"at_least": 0})
        """Weight of the less-forget term when a task brings as many classes as were known."""
        margin: float = field(default=0.5, metadata={"at_least": 0})
        """How far a stored label's cosine should lie above those of new classes."""
        top_k: int = field(default=2, metadata={"at_least": 1})
        """New classes, the highest for each memory image, that the margin is kept from."""
        imprint_images: int = field(default=1000, metadata={"at_least": 1})
        """Images of a new class, at most, that its first row is made from."""
        margin_moves_sigma: bool = False
        """Let the margin train σ too, as the IIRC authors' code does."""

    options: Options

    def begin_task(self, context: TaskContext) -> None:
        """Imprint the new rows and freeze the old ones."""
        if self.teacher is not None:
            row_of = partial(mean_direction, self.teacher)
            head = cast(CosineHead, self.model.head)
            imprint(head, context, row_of, self.options.imprint_images)

    def loss(self, batch: Batch) -> Tensor:
        """Return the three terms' sum."""
        head, stored = cast(CosineHead, self.model.head), stored_labels(batch, self.context.old)
        count = self.world.sum(stored.sum()).clamp(min=1)
        features = self.model.features(batch.images)
        loss = bce(head(features), batch.targets)
        if self.teacher is None:
            return loss
        with torch.no_grad():
            before = self.teacher.features(batch.images)
        drift = (1 - cosine_similarity(features, before)).mean()
        options, cosines = self.options, head.cosines(features)
        if options.margin_moves_sigma:
            # The same numbers, but with a gradient for σ.
            cosines = head.sigma / head.sigma.detach() * cosines
        crowding = margin_loss(cosines, stored, options.margin, options.top_k) / count
        crowding = crowding / self.world.portion  # a sum over images here, of all images' mean
        return loss + self.less_forget_weight * drift + crowding

    @property
    def less_forget_weight(self) -> float:
        """λ = base · √(old classes / new classes)."""
        old, seen = self.context.old, self.context.seen
        return self.options.lambda_base * math.sqrt(old / (seen - old))


def imprint(
    head: CosineHead, context: TaskContext, row_of: Callable[[Tensor], Tensor], limit: int
) -> None:
    """Freeze the old rows, and make each new one of its class's images, as long as the old ones."""
    head.old.requires_grad_(False)
    length = head.old.norm(dim=-1).mean()
    for row, column in enumerate(range(context.old, context.seen)):
        images = context.class_images(column, limit)
        # A class without images keeps its random row.
        if len(images):
            head.new.data[row] = row_of(images) * length


def mean_direction(model: Model, images: Tensor) -> Tensor:
    """Return the mean of images' features, each of length 1, itself scaled to length 1: (d,)."""
    return normalize(directions(model, images).mean(dim=0), dim=0)


@torch.no_grad()
def directions(model: Model, images: Tensor, at_once: int = 128) -> Tensor:
    """Return images' features, each scaled to length 1, by a model in evaluation mode: (n, d)."""
    features = [model.features(part) for part in torch.split(images, at_once)]
    return normalize(torch.cat(features))


def stored_labels(batch: Batch, old: int) -> Tensor:
    """Return 1 for each label of an earlier class that a memory image has, else 0: (n, old)."""
    return batch.targets[:, :old] * batch.replayed[:, None]


def margin_loss(cosines: Tensor, stored: Tensor, margin: float, top_k: int) -> Tensor:
    """Return the sum of max(0, margin − c_label + c_new), mean over top K, over ``stored`` labels.

    ``cosines`` (n, seen), ``stored`` (n, old). A memory image with several stored labels counts
    once for each. Where the task has fewer than K classes, all of them are taken.
    """
    old = stored.shape[1]
    top = cosines[:, old:].topk(min(top_k, cosines.shape[1] - old), dim=1).values
    short = relu(margin - cosines[:, :old, None] + top[:, None, :]).mean(dim=2)
    # Weights of 0 and 1 instead of indexing keep every shape the same from step to step.
    return (short * stored).sum()
