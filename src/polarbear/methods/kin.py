"""Kin: labels that contradict nothing, and classes asked of the networks that knew them best."""

from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor

from polarbear.engine.contract.batch import Batch, TaskContext
from polarbear.engine.contract.method import Method, frozen_copy
from polarbear.engine.nets.heads import CosineHead
from polarbear.engine.nets.model import Model
from polarbear.methods.births import births, mean_probabilities, own_probabilities, sure_of_old
from polarbear.methods.kin_options import KinOptions
from polarbear.methods.kin_scores import kin_scores
from polarbear.methods.softmax import soft_cross_entropy, softmax_with_holes
from polarbear.methods.tree import closure, expected_gains


class Kin(Method):
    """A balanced softmax with holes, distillation, and the networks of birth as witnesses.

    *Learning.* An image's positives P are its label and that label's ancestors, as far as they
    were found. What lies below its label is unknown, neither taught nor unlearnt; all else, N, is
    negative. With s the logits of a cosine head, each raised by the log of how many images of an
    epoch carry the class, and s* those of the previous network::

        loss = mean over p in P of −log(e^s_p / (e^s_p + Σ_N e^s_n))
             + weight · cross-entropy(softmax(s* / T), softmax(s / T))

    *Witnesses.* A class is best known by the network as it was when the class had just been
    learnt, its network of birth. Whether a new class belongs below it is asked of that network: the
    mean probability that it gives the class on the new one's images, as a part of that on its own.

    *Predicting.* b(c) is the log of p as in the loss, without what raises it, summed over the
    newest network and c's network of birth, each asked for an image and its mirror image. An image
    is of a class c that is nobody's parent, with b(c) + b(parent of c), or 2 b(c) without a parent;
    or of an unknown child of a parent s: 2 b(s), the less, the more known children there are and
    the higher they lie above s. By a softmax of these the best expected pw-JS is predicted.
    """

    summary = "finds superclasses by the networks of their birth; a balanced softmax with holes"
    title = "Kin"
    head = "cosine"
    keep = "last"
    replay = "mixed"
    selection = "herding"
    wants_teacher = True

    Options = KinOptions
    options: KinOptions
    parents: Tensor
    sure: Tensor
    upwards: Tensor
    below: Tensor
    gains: Tensor
    raised: Tensor

    def __init__(self, model: Model, options: Any = None) -> None:
        """Know no class yet."""
        super().__init__(model, options)
        self.register_buffer("parents", torch.empty(0, dtype=torch.long))
        self.register_buffer("sure", torch.empty(0))

    def begin_task(self, context: TaskContext) -> None:
        """Find the parents of the new classes, and what follows for every class."""
        if context.task == 0:
            cast(CosineHead, self.model.head).sigma.data.fill_(self.options.first_sigma)
        old = self.parents[: context.old]
        found = old.new_full((context.seen - context.old,), -1)
        if context.task and self.options.parents:
            found = self.find_parents(context, old)
        self.register_buffer("parents", torch.cat([old, found]))
        upwards = closure(self.parents)
        self.register_buffer("upwards", upwards)
        self.register_buffer("below", upwards.T - torch.eye(context.seen, device=old.device))
        self.register_buffer("gains", expected_gains(upwards))
        counts = (context.class_counts[:, None] * upwards).sum(dim=0)
        raised = counts.clamp(min=1).log() if self.options.balance else torch.zeros_like(counts)
        self.register_buffer("raised", raised)

    def find_parents(self, context: TaskContext, parents: Tensor) -> Tensor:
        """Return each new class's parent, −1 for none: (new,). A class with a parent is none."""
        sure = sure_of_old(self.sure, context.old)
        with context.autocast():
            part, best = torch.where(parents < 0, self.asked(context) / sure, 0.0).max(dim=1)
        return torch.where(part >= self.options.threshold, best, -1)

    def asked(self, context: TaskContext) -> Tensor:
        """Return how probable its network of birth finds each old class: (new, old).

        Means over all images of each new class; a class without images gets 0.
        """
        images = [context.class_images(column) for column in range(context.old, context.seen)]
        known = [(network, own) for network, own in self.births() if own.start < context.old]
        return mean_probabilities(known, images)

    def births(self) -> Iterator[tuple[Model, slice]]:
        """Return the network of each task's end and the columns that came with the task."""
        tasks = range(self.context.task + 1)
        # Until the task ends, its classes have the newest network alone.
        return births(self.networks.get(f"birth-{task}", self.model) for task in tasks)

    def end_task(self) -> None:
        """Keep the network as it is at the birth of the task's classes, and how sure it is."""
        network = self.networks[f"birth-{self.context.task}"] = frozen_copy(self.model)
        with self.context.autocast():
            sure = own_probabilities(network, self.context.batches("valid"))[self.context.new]
        self.register_buffer("sure", torch.cat([self.sure[: self.context.old], sure]))

    def loss(self, batch: Batch) -> Tensor:
        """Return the softmax with holes, and the distillation."""
        logits = self.model(batch.images).float()
        positive = batch.targets @ self.upwards
        unknown = batch.targets @ (self.below * self.options.holes)
        loss = softmax_with_holes(logits + self.raised, positive, unknown)
        if self.teacher is None or not self.options.distillation:
            return loss
        with torch.no_grad():
            before = self.teacher(batch.images).float()
        kept = soft_cross_entropy(logits[:, : self.context.old], before, self.options.temperature)
        self.log("distillation", kept)
        return loss + self.options.distillation * kept

    def scores(self, images: Tensor) -> Tensor:
        """Return the scores of what an image may be, a parent's being its unknown child: (n, c)."""
        asked = self.births() if self.options.witnesses else ()
        then = [(self.logits(network, images), own) for network, own in asked]
        newest, tree = self.logits(self.model, images), (self.parents, self.upwards, self.below)
        return kin_scores(newest, then, *tree, self.options)

    def validation_scores(self, images: Tensor) -> Tensor:
        """Return the newest network's logits: to ask all networks after every epoch is too dear."""
        return cast(Tensor, self.model(images))

    def logits(self, network: Model, images: Tensor) -> Tensor:
        """Return a network's logits, with the mirror image's if wanted: (n, classes it knows)."""
        found: Tensor = network(images).float()
        if self.options.mirror:
            found = (found + network(images.flip(3)).float()) / 2
        return found

    def decide(self, scores: Tensor) -> Tensor:
        """Return the class and its ancestors with the highest expected pw-JS: (n, c)."""
        best = (scores.softmax(dim=1) @ self.gains).argmax(dim=1)
        return self.upwards[best] > 0

    def inferred_parents(self) -> Tensor:
        """Return the parents that were found: (c,)."""
        return self.parents
