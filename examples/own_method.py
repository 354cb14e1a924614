"""A method of your own: replay that does not unlearn what the last network was sure of.

An image of a new subclass, "polar bear", comes without the label of its superclass, "bear". Plain
replay then teaches that it is no bear. Here an old class the previous network is sure of on a new
image gets no loss there: neither taught nor unlearnt.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from polarbear.learn import Batch, Method, teacher_targets


class KeepSure(Method):
    """BCE over the seen classes, except where the teacher says yes to an old class."""

    summary = "replays random stored images; what the previous network is sure of is left alone"
    replay = "mixed"  # every memory image is in every epoch
    keep = "last"  # choosing the best epoch by incomplete labels would favour forgetting
    wants_teacher = True

    @dataclass(frozen=True)
    class Options(Method.Options):
        """Settings of KeepSure: each one is a flag, such as --options.sure 0.7."""

        sure: float = 0.5
        """Probability from which on the previous network counts as sure."""

    def loss(self, batch: Batch) -> Tensor:
        """Return the mean loss of all pairs of image and seen class but the ones left alone."""
        losses = binary_cross_entropy_with_logits(
            self.model(batch.images), batch.targets, reduction="none"
        )
        return (losses * self.weights(batch)).mean()

    def weights(self, batch: Batch) -> Tensor:
        """Return 0 where a new image may well show an old class, else 1: (n, seen)."""
        weights = torch.ones_like(batch.targets)
        if self.teacher is None:  # the first task has no previous network
            return weights
        sure = teacher_targets(self.teacher, batch.images) > self.options.sure
        alone = sure & ~batch.replayed[:, None]  # stored images keep all of their labels
        return torch.cat([(~alone).to(weights), weights[:, self.context.old :]], dim=1)
