"""One step of a method, looked at closely."""

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from polarbear.engine.contract.batch import Batch
from polarbear.engine.contract.method import Method
from polarbear.engine.task.learner import Learner
from polarbear.engine.task.optimiser import drop_gradients

Complaint = str


def check_step(learner: Learner, batch: Batch, reference: Batch | None) -> Iterator[Complaint]:
    """Return what is wrong with a method's loss and gradients on a batch."""
    method = learner.method
    before = {name: tensor.clone() for name, tensor in _tensors(batch).items()}
    teacher = _weights(method.teacher)
    if type(method).loss is not Method.loss:
        with learner.machine.seeded(0):
            wrong = list(_check_loss(method.loss(batch)))
        yield from wrong
        if wrong:
            return
    drop_gradients(method)
    first = _backward(learner, batch, reference)
    yield from _check_gradients(learner)
    yield from _check_batch(batch, before)
    yield from _check_teacher(method, teacher)
    once = _gradients(learner)
    unequal = list(_check_equal(first, _backward(learner, batch, reference)))
    yield from unequal or _check_sums(once, _gradients(learner))


def _backward(learner: Learner, batch: Batch, reference: Batch | None) -> Any:
    learner.model.train()
    with learner.machine.seeded(0):
        return learner.method.backward(batch, reference)


def _check_loss(loss: Any) -> Iterator[Complaint]:
    if not isinstance(loss, Tensor):
        yield f"loss gives {type(loss).__name__}, not a tensor: leave out .item() and float()"
        return
    if loss.shape != ():
        yield (
            f"loss gives a tensor of {loss.dim()} dimensions, not one number: end with .mean() "
            "over images and classes"
        )
    elif not loss.isfinite():
        yield (
            f"the loss is {loss.item()}: where a batch may hold no image of a kind, divide by "
            "count.clamp(min=1) instead of taking the mean of nothing"
        )
    if not loss.requires_grad:
        yield (
            "the loss has no gradient: work it out from self.model(batch.images), without "
            "torch.no_grad and .detach() around the model"
        )


def _check_gradients(learner: Learner) -> Iterator[Complaint]:
    gradients = _gradients(learner)
    if not any(bool(g.any()) for g in gradients.values()):
        yield "no weight of self.model gets a gradient: nothing would be learnt"
    rows = len(getattr(learner.model.head, "weight", ()))
    for name, gradient in gradients.items():
        if not gradient.isfinite().all():
            yield f"the gradient of {name} is no number"
        by_class = name.startswith("head.") and gradient.dim() > 0 and len(gradient) == rows
        if by_class and gradient[learner.method.context.seen :].any():
            yield (
                f"{name} gets a gradient for classes of the future: use the logits (n, seen) "
                "that self.model gives, or the rows [:self.context.seen] alone"
            )


def _gradients(learner: Learner) -> dict[str, Tensor]:
    parameters = learner.model.named_parameters()
    return {name: p.grad.clone() for name, p in parameters if p.grad is not None}


def _check_sums(once: dict[str, Tensor], twice: dict[str, Tensor]) -> Iterator[Complaint]:
    """Check that a second backward pass of the same step has added the same gradients again."""
    for name, gradient in once.items():
        wrong = (twice[name] - 2 * gradient).nan_to_num().norm()
        if wrong > 1e-3 * gradient.nan_to_num().norm():
            yield (
                "backward puts its gradients in the place of those that are there, and must add "
                "to them as loss.backward() does: p.grad = g if p.grad is None else p.grad + g"
            )
            return


def _check_batch(batch: Batch, before: dict[str, Tensor]) -> Iterator[Complaint]:
    for name, tensor in _tensors(batch).items():
        if not torch.equal(tensor, before[name]):
            yield f"it changes batch.{name}, which is not its own: work on batch.{name}.clone()"


def _tensors(batch: Batch) -> dict[str, Tensor]:
    several = {f"stored[{name!r}]": tensor for name, tensor in batch.stored.items()}
    several |= {f"views[{i}]": tensor for i, tensor in enumerate(batch.other_views, start=1)}
    found = {f.name: getattr(batch, f.name) for f in fields(batch)}
    return {name: value for name, value in found.items() if isinstance(value, Tensor)} | several


def _check_teacher(method: Method, before: dict[str, Tensor]) -> Iterator[Complaint]:
    after = _weights(method.teacher)
    changed = before.keys() != after.keys() or any(
        not torch.equal(tensor, after[name]) for name, tensor in before.items()
    )
    if changed or (method.teacher is not None and method.teacher.training):
        yield (
            "a step changes the teacher: leave it in evaluation mode, as it comes, and call it "
            "under torch.no_grad(); teacher_targets does both"
        )


def _check_equal(first: Any, second: Any) -> Iterator[Complaint]:
    if not (isinstance(first, Tensor) and isinstance(second, Tensor)):
        yield f"backward gives {type(first).__name__}, not the loss as a tensor: loss.detach()"
    elif not torch.equal(first.nan_to_num(), second.nan_to_num()):
        yield (
            "two equal steps give different losses: draw random numbers from PyTorch, which the "
            "engine seeds for each step, and keep nothing from step to step"
        )


def _weights(model: torch.nn.Module | None) -> dict[str, Tensor]:
    state = model.state_dict() if model is not None else {}
    return {name: tensor.clone() for name, tensor in state.items()}
