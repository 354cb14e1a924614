"""What methods with one softmax over the seen classes share: their losses, scores and rule."""

import torch
from torch import Tensor
from torch.nn import functional

from polarbear.engine.contract.batch import Batch
from polarbear.engine.contract.method import Method

NEVER = -1e4  # a score that no softmax notices, and that has a gradient


class SoftmaxMethod(Method):
    """A method whose classes exclude one another: the likeliest one is predicted.

    Raw scores are log-odds, log(p / (1 − p)) of the softmax's p: over 0 where a class is likelier
    than all others together, as every rule reads them.
    """

    head = "fresh"
    keep = "last"

    def scores(self, images: Tensor) -> Tensor:
        """Return the log-odds of every seen class: (n, seen)."""
        return log_odds(self.model(images))

    @torch.no_grad()
    def asked_before(self, images: Tensor) -> Tensor | None:
        """Return the previous network's logits (n, old), None in the first task."""
        return None if self.teacher is None else self.teacher(images).float()

    def decide(self, scores: Tensor) -> Tensor:
        """Return the likeliest class alone: bool (n, seen)."""
        return likeliest(scores)


class BesideMethod(SoftmaxMethod):
    """A softmax method with a batch from a reservoir beside each step, and a loss for it."""

    replay = "reference"
    selection = "reservoir"

    def replay_loss(self, reference: Batch) -> Tensor:
        """Return the loss of stored images, a scalar, which is added to the step's own."""
        raise NotImplementedError(f"{type(self).__name__} must define replay_loss(reference)")

    def backward(self, batch: Batch, reference: Batch | None) -> Tensor:
        """Add the gradients of both losses; the first step of a run finds an empty memory."""
        loss = self.loss(batch)
        if reference is not None:
            loss = loss + reference.weight * self.replay_loss(reference)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()


def likeliest(scores: Tensor) -> Tensor:
    """Return true for the highest score of each image (n, c), the first of equal ones.

    >>> likeliest(torch.tensor([[0.1, 0.9, 0.5]])).tolist()
    [[False, True, False]]
    """
    return functional.one_hot(scores.argmax(dim=1), scores.shape[1]).bool()


def log_odds(logits: Tensor) -> Tensor:
    """Return log(p / (1 − p)), p being the softmax of logits (n, c).

    >>> log_odds(torch.tensor([[0.0, 0.0], [1.0, 3.0]])).tolist()
    [[0.0, 0.0], [-2.0, 2.0]]
    """
    logits = logits.float()
    log_p = logits.log_softmax(dim=1)
    best = logits.argmax(dim=1, keepdim=True)
    rest = logits.scatter(1, best, NEVER).logsumexp(dim=1, keepdim=True)
    # 1 − p of the likeliest class would round to 0; that of any other is at least a half.
    others = torch.log1p(-log_p.exp().clamp(max=0.5))
    return (log_p - others).scatter(1, best, logits.gather(1, best) - rest)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean of −log p of an image's label, of several the mean over them; both (n, c)."""
    shares = targets / targets.sum(dim=1, keepdim=True).clamp(min=1)
    return functional.cross_entropy(logits, shares)


def soft_cross_entropy(logits: Tensor, targets: Tensor, temperature: float) -> Tensor:
    """Return the mean cross-entropy of softmaxes of logits and target logits (n, c), at T."""
    wanted = torch.softmax(targets / temperature, dim=1)
    return -(wanted * torch.log_softmax(logits / temperature, dim=1)).sum(dim=1).mean()


def softmax_with_holes(logits: Tensor, positive: Tensor, unknown: Tensor) -> Tensor:
    """Return the mean over images of −log(e^p / (e^p + Σ e^n)), itself a mean over positives p.

    All are (n, c); what is neither ``positive`` nor ``unknown`` (over 0) is negative, n.
    """
    is_positive = positive > 0
    against = log_sum_without(logits, is_positive | (unknown > 0))
    return mean_over_labels(functional.softplus(against - logits), is_positive)


def log_sum_without(logits: Tensor, left_out: Tensor) -> Tensor:
    """Return log Σ e^z of the logits of an image (n, c) but those left out: (n, 1)."""
    return logits.masked_fill(left_out, NEVER).logsumexp(dim=1, keepdim=True)


def mean_over_labels(losses: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over images of the mean of their labels' losses; both (n, c), labels bool."""
    return ((losses * labels).sum(dim=1) / labels.sum(dim=1).clamp(min=1)).mean()


def distilled_cross_entropy(
    logits: Tensor, targets: Tensor, before: Tensor | None, temperature: float
) -> Tensor:
    """Return (1 − λ) times the cross-entropy and λ times the distillation, λ = old / seen.

    ``before`` (n, old) are the previous network's logits, None in the first task.
    """
    taught = cross_entropy(logits, targets)
    if before is None:
        return taught
    old, seen = before.shape[1], logits.shape[1]
    kept = soft_cross_entropy(logits[:, :old], before, temperature)
    return (1 - old / seen) * taught + old / seen * kept
