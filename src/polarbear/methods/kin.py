"""Kin: labels that contradict nothing, and classes asked of the networks that knew them best."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.functional import softplus

from polarbear.engine.contract.batch import Batch, TaskContext
from polarbear.engine.contract.method import Method, frozen_copy
from polarbear.engine.nets.heads import CosineHead
from polarbear.engine.nets.model import Model
from polarbear.methods.softmax import NEVER, soft_cross_entropy

AT_ONCE = 2048  # images a frozen network looks at in one pass


class Kin(Method):
    """A balanced softmax with holes, distillation, and the networks of birth as witnesses.

    *Learning.* An image's positives P are its label and that label's ancestors, as far as they
    were found. What lies below its label is unknown, neither taught nor unlearnt; all else, N, is
    negative. With s the logits of a cosine head, each raised by the log of how many images of an
    epoch carry the class, and s* those of the previous network::

        loss = mean over p in P of −log(e^s_p / (e^s_p + Σ_N e^s_n))
             + weight · cross-entropy(softmax(s* / T), softmax(s / T))

    *Witnesses.* A class is best known by the network as it was when the class had just been
    learnt, its network of birth; later ones have forgotten some of it. Whether a new class belongs
    below an earlier one is asked of the earlier one's network of birth: the mean probability that
    it gives the earlier class on images of the new one.

    *Predicting.* b(c) is the log of p as in the loss, without what raises it, summed over the
    newest network and c's network of birth, each asked for an image and its mirror image. An image
    is of a class c that is nobody's parent, with b(c) + b(parent of c), or 2 b(c) without a parent;
    or of an unknown child of a parent s: 2 b(s), the less, the higher the k known children lie
    above s itself and the more there are (an unknown child counts as one more child). Softmax makes
    probabilities of these; the set with the highest expected pw-JS is predicted.
    """

    summary = "finds superclasses by the networks of their birth; a balanced softmax with holes"
    title = "Kin"
    head = "cosine"
    keep = "last"
    replay = "mixed"
    selection = "herding"
    wants_teacher = True

    @dataclass(frozen=True)
    class Options(Method.Options):
        """Settings of Kin."""

        first_sigma: float = field(default=16.0, metadata={"at_least": 0})
        """Scale of the cosine head at the start."""
        balance: bool = True
        """Raise the logits in the loss by the log of the classes' numbers of images."""
        distillation: float = field(default=2.0, metadata={"at_least": 0})
        """Weight of the distillation."""
        temperature: float = field(default=2.0, metadata={"at_least": 1e-3})
        """Temperature T of the distillation."""
        holes: bool = True
        """Leave what lies below a label out of the loss; without, it is negative."""
        parents: bool = True
        """Look for parents; without, every class stands alone."""
        first_threshold: float = field(default=0.55, metadata={"at_least": 0})
        """Mean probability from which on a class of the first task is a parent."""
        threshold: float = field(default=0.5, metadata={"at_least": 0})
        """The same for the classes of later tasks."""
        mirror: bool = True
        """Predict by an image and its mirror image."""
        witnesses: bool = True
        """Ask the networks of birth at the test too, not the newest network alone."""
        caution: float = field(default=2.0, metadata={"at_least": 1e-3})
        """Temperature of the probabilities by which it is decided what to predict."""
        evidence: float = field(default=1.0, metadata={"at_least": 0})
        """How much it tells against an unknown child that known ones lie above their parent."""
        even: float = 1.5
        """How far above it they lie where that tells nothing."""
        unknown_children: bool = True
        """Reckon with children that have not come yet; without, a parent is never all."""

    options: Options
    parents: Tensor
    upwards: Tensor
    below: Tensor
    gains: Tensor
    raised: Tensor

    def __init__(self, model: Model, options: Any = None) -> None:
        """Know no class yet."""
        super().__init__(model, options)
        self.register_buffer("parents", torch.empty(0, dtype=torch.long))

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
        with context.autocast():
            likely = torch.where(parents < 0, self.asked(context), 0.0)
        sure, best = likely.max(dim=1)
        first = cast(CosineHead, self.networks["birth-0"].head).seen
        limit = torch.where(best < first, self.options.first_threshold, self.options.threshold)
        return torch.where(sure >= limit, best, -1)

    def asked(self, context: TaskContext) -> Tensor:
        """Return how probable its network of birth finds each old class: (new, old).

        Means over all images of each new class; a class without images gets 0.
        """
        images = [context.class_images(column) for column in range(context.old, context.seen)]
        sizes = [len(part) for part in images]
        means = []
        for network, own in self.births():
            if own.start < context.old:
                found = looked_at(network, torch.cat(images)).softmax(dim=1)[:, own]
                means.append(torch.stack([part.mean(dim=0) for part in torch.split(found, sizes)]))
        return torch.cat(means, dim=1).nan_to_num(0.0)

    def births(self) -> Iterator[tuple[Model, slice]]:
        """Yields the network of each task's end and the columns that came with the task."""
        begin = 0
        for task in range(self.context.task + 1):
            # Until the task ends, its classes have the newest network alone.
            network = self.networks.get(f"birth-{task}", self.model)
            end = cast(CosineHead, network.head).seen
            if end > begin:
                yield network, slice(begin, end)
            begin = end

    def end_task(self) -> None:
        """Keep the network as it is at the birth of the task's classes."""
        self.networks[f"birth-{self.context.task}"] = frozen_copy(self.model)

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
        options, kin = self.options, self.upwards + self.below > 0
        is_parent, own = self.below.sum(dim=1) > 0, torch.arange(len(kin), device=kin.device)
        root = torch.where(self.parents >= 0, self.parents, own)
        newest = self.logits(self.model, images)
        sure, above = log_shares(newest, kin), newest - newest[:, root]
        if options.witnesses:
            then = [(self.logits(network, images), own) for network, own in self.births()]
            shares = [log_shares(z, kin[: own.stop, : own.stop])[:, own] for z, own in then]
            sure = sure + torch.cat(shares, dim=1)
            above = above + torch.cat([z[:, own] - z[:, root[own]] for z, own in then], dim=1)
            above = above / 2
        found = sure + sure[:, root]
        if not options.unknown_children:
            return found.masked_fill(is_parent, NEVER) / options.caution
        known = in_full(above.exp(), self.below.T).clamp(min=1e-9).log()
        number = self.below.sum(dim=1).clamp(min=1).log()
        less = options.evidence * (known - options.even) + number
        return found / options.caution - torch.where(is_parent, less, 0.0)

    def validation_scores(self, images: Tensor) -> Tensor:
        """Return the newest network's logits: to ask all networks after every epoch is too dear."""
        logits: Tensor = self.model(images)
        return logits

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


def softmax_with_holes(logits: Tensor, positive: Tensor, unknown: Tensor) -> Tensor:
    """Return the mean over images of −log(e^p / (e^p + Σ e^n)), itself a mean over positives p.

    All are (n, c); what is neither ``positive`` nor ``unknown`` (over 0) is negative, n.
    """
    is_positive = positive > 0
    against = logits.masked_fill(is_positive | (unknown > 0), NEVER).logsumexp(dim=1, keepdim=True)
    losses = softplus(against - logits) * is_positive
    return (losses.sum(dim=1) / is_positive.sum(dim=1).clamp(min=1)).mean()


def log_shares(logits: Tensor, kin: Tensor) -> Tensor:
    """Return log(e^s / (e^s + Σ e^n)) of each class, n being all that is no kin of it: (n, c).

    ``kin`` (c, c) has every class itself, its ancestors and what lies below it.
    """
    power = (logits - logits.amax(dim=1, keepdim=True)).exp().clamp(min=1e-30)
    return -torch.log1p(in_full(power, (~kin.T).float()) / power)


def in_full(left: Tensor, right: Tensor) -> Tensor:
    """Return a matrix product in fp32: sums of powers bear no bf16, to which autocast rounds."""
    with torch.autocast(left.device.type, enabled=False):
        return left @ right


def closure(parents: Tensor) -> Tensor:
    """Return, for each class, 1 for itself and its ancestors: (c, c). No parent is −1.

    >>> closure(torch.tensor([-1, 0, -1])).tolist()
    [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    found = torch.eye(len(parents), device=parents.device)
    for column, parent in enumerate(parents.tolist()):  # parents come before their children
        if parent >= 0:
            found[column] += found[parent]
    return found


def expected_gains(upwards: Tensor) -> Tensor:
    """Return the pw-JS of predicting one class and its ancestors where another's are true: (c, c).

    Rows are what is true, columns what is predicted.

    >>> expected_gains(closure(torch.tensor([-1, 0]))).tolist()
    [[1.0, 0.25], [0.5, 1.0]]
    """
    both = (upwards[:, None, :] * upwards).sum(dim=2)
    size = upwards.sum(dim=1)
    return both / (size[:, None] + size - both) * both / size


@torch.no_grad()
def looked_at(network: Model, images: Tensor) -> Tensor:
    """Return a frozen network's logits on images, however many: (n, classes it knew)."""
    return torch.cat([network(part).float() for part in torch.split(images, AT_ONCE)])
