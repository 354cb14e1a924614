"""PODNet: what the layers see, pooled, stays where it was; several proxies stand for a class."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn import functional

from polarbear.engine.contract.batch import Batch, TaskContext
from polarbear.engine.contract.phase import Phase
from polarbear.engine.nets.heads import ProxyHead
from polarbear.engine.nets.model import Model
from polarbear.methods.lucir import directions, imprint
from polarbear.methods.softmax import SoftmaxMethod, log_sum_without, mean_over_labels

MARGIN = 0.6  # δ of the paper's hinge
ROUNDS = 20  # of k-means


class PODNet(SoftmaxMethod):
    """A softmax over cosines with proxies, and distillation of pooled maps and of features.

    With ŷ the mean cosine of a class's proxies, weighed by their softmax, f the features, P the
    maps of a stage, squared, summed over rows and over columns, at length 1, f* and P* those of
    the previous network, and y the label::

        loss = log(max_c e^{η ŷ_c} + Σ_{c≠y} e^{η ŷ_c}) − η ŷ_y
             + √(seen / new) · (spatial · mean over stages |P − P*| + flat · (1 − cos(f, f*)))

    Proxies of old classes are frozen, those of new ones begin as k-means of features. Afterwards
    all proxies are trained, by the first term, on a balanced set.
    """

    summary = "keeps pooled maps near the previous network's; ten proxies per class"
    head = "proxies"
    replay = "mixed"
    selection = "herding"
    wants_teacher = True

    @dataclass(frozen=True)
    class Options(SoftmaxMethod.Options):
        """Settings of PODNet."""

        spatial: float = field(default=3.0, metadata={"at_least": 0})
        """Weight of the distillation of maps, λ_c."""
        flat: float = field(default=1.0, metadata={"at_least": 0})
        """Weight of the distillation of features, λ_f."""
        hinge: bool = False
        """Take the paper's first term, with margin and hinge, not that of the authors' code."""
        imprint_images: int = field(default=1000, metadata={"at_least": 1})
        """Images of a new class, at most, that its first proxies are made from."""
        tuning_epochs: int = field(default=20, metadata={"at_least": 1})
        """Epochs in which all proxies are trained on a balanced set."""
        tuning_rate: float = field(default=0.05, metadata={"at_least": 1e-12})
        """Their learning rate."""

    options: Options

    def __init__(self, model: Model, options: Any = None) -> None:
        """Ask the network for its maps."""
        super().__init__(model, options)
        if self.options.spatial:
            model.refuse_without_maps("do without them: --options.spatial 0")

    def begin_task(self, context: TaskContext) -> None:
        """Imprint the new proxies and freeze the old ones."""
        if (teacher := self.teacher) is not None:
            head, limit = cast(ProxyHead, self.model.head), self.options.imprint_images
            imprint(head, context, lambda i: centres(directions(teacher, i), head.proxies), limit)

    def phases(self) -> list[Phase]:
        """Return the phase in which all proxies are trained; the first task has none."""
        if self.context.task == 0:
            return []
        head, options = cast(ProxyHead, self.model.head), self.options
        how = (options.tuning_epochs, options.tuning_rate)
        own = [head.old, head.new]
        return [Phase("tuning", *how, "balanced", self.tuning_loss, parameters=own)]

    def loss(self, batch: Batch) -> Tensor:
        """Return the first term and, from the second task on, both distillations."""
        if self.teacher is None:
            return self.taught(self.model.features(batch.images), batch.targets)
        with torch.no_grad():
            maps_then, then = self.seen_by(self.teacher, batch.images)
        maps, features = self.seen_by(self.model, batch.images)
        drift = 1 - functional.cosine_similarity(features, then).mean()
        kept = self.options.spatial * pooled_distance(maps, maps_then) + self.options.flat * drift
        seen, new = self.context.seen, self.context.seen - self.context.old
        return self.taught(features, batch.targets) + math.sqrt(seen / new) * kept

    def tuning_loss(self, batch: Batch) -> Tensor:
        """Return the first term: the network stays."""
        with torch.no_grad():
            features = self.model.features(batch.images)
        return self.taught(features, batch.targets)

    def seen_by(self, model: Model, images: Tensor) -> tuple[Sequence[Tensor], Tensor]:
        """Return a model's maps, where they are wanted, and its features."""
        if not self.options.spatial:
            return (), model.features(images)
        maps = model.maps(images)
        return maps, maps[-1].mean(dim=(2, 3))

    def taught(self, features: Tensor, targets: Tensor) -> Tensor:
        """Return the first term, mean over images and their labels."""
        head, labels = cast(ProxyHead, self.model.head), targets > 0
        logits = head(features)
        others = log_sum_without(logits, labels)
        if self.options.hinge:
            return mean_over_labels((others - logits + head.sigma * MARGIN).relu(), labels)
        top = logits.amax(dim=1, keepdim=True)
        return mean_over_labels(functional.softplus(others - top) + top - logits, labels)


def pooled_distance(maps: Sequence[Tensor], then: Sequence[Tensor]) -> Tensor | float:
    """Return the mean distance of pooled maps (n, c, h, w), over images and stages."""
    apart = [(pooled(a) - pooled(b)).norm(dim=1).mean() for a, b in zip(maps, then, strict=True)]
    return torch.stack(apart).mean() if apart else 0.0


def pooled(maps: Tensor) -> Tensor:
    """Return squared maps (n, c, h, w), summed over w and over h, at length 1: (n, c h + c w)."""
    squared = maps.float().square()
    return functional.normalize(torch.cat([squared.sum(dim=d).flatten(1) for d in (3, 2)], dim=1))


def centres(points: Tensor, count: int) -> Tensor:
    """Return the means of ``count`` groups of points (n, d), by k-means: (count, d).

    It begins with points spread over all; a group that has none keeps its mean.
    """
    found = points[torch.linspace(0, len(points) - 1, count).long()]
    for _ in range(ROUNDS):
        nearest = torch.cdist(points, found).argmin(dim=1)
        members = functional.one_hot(nearest, count).to(points)
        sizes = members.sum(dim=0)[:, None]
        found = torch.where(sizes > 0, members.T @ points / sizes.clamp(min=1), found)
    return found
