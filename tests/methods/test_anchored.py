"""EWC, SI, MAS and RWalk: what matters, image by image or step by step, and springs of it."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from polarbear.engine.contract.batch import Batch
from polarbear.methods import anchored
from polarbear.methods.anchored import Anchored
from polarbear.methods.ewc import EWC
from polarbear.methods.mas import MAS
from polarbear.methods.rwalk import RWalk
from polarbear.methods.si import SI
from tiny_learner import (
    at_task,
    batch_for,
    context_for,
    model_for,
    scores_of,
    slow_bce,
    step,
)


def vector(parts: list[Tensor]) -> Tensor:
    return torch.cat([part.detach().reshape(-1) for part in parts])


def weights(learner: Anchored) -> Tensor:
    return vector([*learner.model.parameters()])


def with_images(learner: Anchored, batches: list[Batch]) -> Anchored:
    learner.context = replace(learner.context, batches=lambda which: iter(batches))
    return learner


def slow_mean(
    learner: Anchored, batches: list[Batch], number: Callable[[Tensor, Tensor], Tensor], power: int
) -> Tensor:
    """One image at a time: the mean of |gradient| to a power."""
    model, total, count = deepcopy(learner.model).eval(), 0.0, 0
    for batch in batches:
        for image, targets in zip(batch.images, batch.targets, strict=True):
            model.zero_grad()
            number(model(image[None])[0], targets).backward()
            total = total + vector([p.grad for p in model.parameters()]).abs() ** power
            count += 1
    return total / count


def log_loss(columns: slice) -> Callable[[Tensor, Tensor], Tensor]:
    def number(logits: Tensor, targets: Tensor) -> Tensor:
        p = torch.sigmoid(logits[columns])
        y = targets[columns]
        return -(y * p.log() + (1 - y) * (1 - p).log()).sum()

    return number


def test_ewc_adds_the_fisher_information_of_every_task() -> None:
    learner = at_task(EWC, sizes=(4,), options=EWC.Options(decay=0.5))
    batches = [batch_for(learner, n, seed=n) for n in (5, 3)]
    expected = slow_mean(learner, batches, log_loss(slice(4)), 2) / 4
    with_images(learner, batches).end_task()
    torch.testing.assert_close(learner.importance, expected, rtol=1e-4, atol=1e-8)
    torch.testing.assert_close(learner.anchor, weights(learner))
    learner.model.head.grow(7)
    learner.context = replace(learner.context, task=1, old=4, seen=7)
    batches = [batch_for(learner, 6, replayed=0, seed=9)]
    expected = expected / 2 + slow_mean(learner, batches, log_loss(slice(4, 7)), 2) / 3
    with_images(learner, batches).end_task()
    torch.testing.assert_close(learner.importance, expected, rtol=1e-4, atol=1e-8)


def test_only_as_many_gradients_are_held_as_there_is_room_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learner = at_task(MAS)
    with_images(learner, [batch_for(learner, 5, seed=1)])
    held: list[int] = []

    def size(gradients: Tensor) -> Tensor:
        held.append(len(gradients))
        return gradients.abs()

    whole = anchored.mean_over_images(learner, lambda z, y: z.sum(), Tensor.abs)
    monkeypatch.setattr(anchored, "HELD", 2 * len(whole) + 1)
    parted = anchored.mean_over_images(learner, lambda z, y: z.sum(), size)
    assert set(held) == {2, 1}
    torch.testing.assert_close(parted, whole)


def test_mas_adds_how_far_each_weight_moves_the_outputs() -> None:
    learner = at_task(MAS)
    batches = [batch_for(learner, n, seed=n) for n in (5, 3)]
    before = learner.importance.clone()
    expected = slow_mean(learner, batches, lambda z, _: sum(one * one for one in z), 1)
    with_images(learner, batches).end_task()
    torch.testing.assert_close(learner.importance - before, expected, rtol=1e-4, atol=1e-7)


def task_gradient(learner: Anchored, batch: Batch, columns: slice) -> Tensor:
    """The gradient of BCE over some classes alone, on a copy."""
    model = deepcopy(learner.model).train()
    logits = model(batch.images)[:, columns]
    binary_cross_entropy_with_logits(logits, batch.targets[:, columns]).backward()
    return vector([p.grad for p in model.parameters()])


def test_si_adds_up_what_every_step_was_worth() -> None:
    learner = at_task(SI, sizes=(4, 3), options=SI.Options(strength=3.0))
    learner.importance.fill_(0.5)
    learner.anchor += torch.linspace(-1, 1, len(learner.anchor))  # springs pull against the loss
    held, start, path = learner.importance.clone(), learner.anchor.clone(), 0.0
    for seed in range(4):
        batch, before = batch_for(learner, seed=seed), weights(learner)
        gradient = task_gradient(learner, batch, slice(4, 7))
        step(learner, batch)
        path = path - gradient * (weights(learner) - before)
    learner.end_task()
    torch.testing.assert_close(learner.path, path, rtol=1e-3, atol=1e-7)
    assert (path < 0).any()
    assert (path > 0).any()
    due = held + path.clamp(min=0) / ((weights(learner) - start) ** 2 + 0.1)
    torch.testing.assert_close(learner.importance, due, rtol=1e-3, atol=1e-6)
    torch.testing.assert_close(learner.anchor, weights(learner))


def test_si_begins_every_task_with_a_way_of_no_length() -> None:
    learner = at_task(SI, sizes=(4, 3))
    assert learner.importance.any()
    assert not learner.path.any()
    assert not learner.gradient.any()


@dataclass
class Step:
    """What a step of a walk found: a gradient, and weights before and after it."""

    gradient: Tensor
    before: Tensor
    after: Tensor


def walk(learner: RWalk, steps: int, rate: float = 0.5) -> list[Step]:
    """Take steps with the gradients of BCE over all seen classes, and note each."""
    found = []
    for seed in range(steps):
        batch, before = batch_for(learner, seed=seed), weights(learner)
        gradient = task_gradient(learner, batch, slice(0, learner.context.seen))
        step(learner, batch, rate=rate)
        found.append(Step(gradient, before, weights(learner)))
    return found


def slow_walk(
    steps: list[Step], fisher: Tensor, interval: int, alpha: float, damping: float
) -> tuple[Tensor, Tensor]:
    """A task's scores and the Fisher information after it, an interval after the other."""
    scores = torch.zeros_like(fisher)
    for begin in range(0, len(steps), interval):
        part = steps[begin : begin + interval]
        fell = -sum(one.gradient * (one.after - one.before) for one in part)
        apart = fisher * (part[-1].after - part[0].before) ** 2 / 2
        ratio = fell / (apart + damping)
        scores = scores + torch.where(ratio > 0, ratio, 0.0)
        mean = sum(one.gradient**2 for one in part) / len(part)
        fisher = alpha * mean + (1 - alpha) * fisher
    return scores, fisher


@pytest.mark.parametrize("steps", [7, 6], ids=["an-interval-is-cut-short", "none-is"])
def test_rwalk_weighs_a_running_fisher_and_what_intervals_were_worth(steps: int) -> None:
    how = {"interval": 3, "alpha": 0.6, "damping": 1e-6}
    learner = at_task(RWalk, sizes=(4,), options=RWalk.Options(strength=0.3, **how))
    none = torch.zeros_like(weights(learner))
    way = walk(learner, steps)
    learner.end_task()
    scores, fisher = slow_walk(way, none, **how)
    without_distance, _ = slow_walk(way, none, **how | {"damping": 1e9})
    assert not torch.allclose(scores / scores.max(), without_distance / without_distance.max())
    expected = (fisher / fisher.max() + scores / scores.max()) / 4
    torch.testing.assert_close(learner.importance, expected, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(learner.anchor, weights(learner))
    learner.model.head.grow(7)
    learner.context = context_for(1, 4, 7)
    learner.begin_task(learner.context)
    way = walk(learner, steps)  # springs pull by now: g is without them
    learner.end_task()
    more, fisher = slow_walk(way, fisher, **how)
    both = (scores + more) / 2
    expected = (fisher / fisher.max() + both / both.max()) / 7
    torch.testing.assert_close(learner.importance, expected, rtol=1e-3, atol=1e-5)


def test_rwalk_forgets_nothing_in_a_task_without_a_step() -> None:
    learner = at_task(RWalk, sizes=(4,))
    learner.end_task()
    assert not learner.importance.any()
    learner = at_task(RWalk, sizes=(4, 3))
    held = learner.importance.clone()
    assert held.any()
    learner.end_task()
    torch.testing.assert_close(learner.importance, held * 4 / 7)  # of as many classes


class WithoutMemory(RWalk):
    """RWalk of the task's images alone."""

    replay = "none"


@pytest.mark.parametrize(("method", "first"), [(RWalk, 0), (WithoutMemory, 4)])
def test_with_a_memory_all_seen_classes_have_a_loss(method: type[RWalk], first: int) -> None:
    learner = at_task(method, options=RWalk.Options(strength=0.0))
    batch = batch_for(learner)
    expected = slow_bce(scores_of(learner, batch.images)[:, first:], batch.targets[:, first:])
    assert learner.loss(batch).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("method", [EWC, MAS, SI, RWalk])
def test_the_loss_has_a_spring_at_every_weight(method: type[Anchored]) -> None:
    learner = at_task(method)
    learner.importance.uniform_(0, 0.5 / learner.options.strength)
    learner.anchor += torch.randn_like(learner.anchor)
    batch = batch_for(learner)
    away = (weights(learner) - learner.anchor).tolist()
    held = sum(k * a * a for k, a in zip(learner.importance.tolist(), away, strict=True))
    first = 0 if method is RWalk else 4
    learnt = slow_bce(scores_of(learner, batch.images)[:, first:], batch.targets[:, first:])
    expected = learnt + learner.options.strength / 2 * held
    assert learner.loss(batch).item() == pytest.approx(expected, rel=1e-4)


def test_no_spring_throws_a_weight_beyond_its_place() -> None:
    learner = at_task(MAS, options=MAS.Options(strength=1e9))
    rate = learner.context.settings.learning_rate
    learner.importance.fill_(1.0)
    pull = learner.stiffness() * (weights(learner) - (learner.anchor + 2))
    torch.testing.assert_close(weights(learner) - rate * pull, learner.anchor + 2)


def test_rows_of_classes_to_come_do_not_matter() -> None:
    learner = at_task(EWC, sizes=(4,))
    with_images(learner, [batch_for(learner)]).end_task()
    rows = learner.model.head.weight
    begin = sum(p.numel() for p in learner.model.backbone.parameters())
    of_rows = learner.importance[begin : begin + rows.numel()].view_as(rows)
    assert not of_rows[4:].any()
    assert of_rows[:4].any(dim=1).all()


@pytest.mark.parametrize("method", [EWC, MAS, SI, RWalk])
def test_weights_that_do_not_learn_are_not_held(method: type[Anchored]) -> None:
    learner = method(model_for(method))
    still = learner.model.backbone.layers[0].requires_grad_(False)
    learner.model.head.grow(4)
    learner.context = context_for(0, 0, 4)
    learner.begin_task(learner.context)
    batch = batch_for(learner)
    step(learner, batch)
    with_images(learner, [batch]).end_task()
    count = sum(p.numel() for p in learner.model.parameters())
    assert len(learner.importance) == count - sum(p.numel() for p in still.parameters())
    assert learner.importance.any()
    learner.loss(batch).backward()
    assert learner.model.head.weight.grad is not None
