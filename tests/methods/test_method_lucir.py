"""LUCIR: λ, imprinting, frozen rows, σ, margin, and the whole loss as loops."""

import math
from dataclasses import replace

import pytest
import torch

from polarbear.base.errors import PolarbearError
from polarbear.engine.contract.batch import Batch
from polarbear.engine.contract.method import bce
from polarbear.methods.lucir import LUCIR, margin_loss, stored_labels
from tiny_learner import (
    at_task,
    batch_for,
    class_images,
    scores_of,
    slow_bce,
    slow_cosine,
    step,
)


@pytest.mark.parametrize(("sizes", "expected"), [((4, 4), 5.0), ((4, 1), 10.0), ((5, 3, 2), 10.0)])
def test_lambda_grows_with_the_root_of_old_over_new(sizes, expected):
    assert at_task(LUCIR, sizes).less_forget_weight == pytest.approx(expected)


def test_lambda_starts_from_its_option():
    learner = at_task(LUCIR, (4, 1), options=LUCIR.Options(lambda_base=2.0))
    assert learner.less_forget_weight == pytest.approx(4.0)


def test_new_rows_are_imprinted():
    learner = at_task(LUCIR, (4, 3, 2))
    head, teacher = learner.model.head, learner.teacher
    lengths = [math.sqrt(sum(x * x for x in row)) for row in head.old.tolist()]
    mean_length = sum(lengths) / len(lengths)
    for row, column in zip(head.new.tolist(), (7, 8), strict=True):
        units = []
        for image in class_images(column, 1000):
            feature = teacher.features(image[None])[0].tolist()
            size = math.sqrt(sum(x * x for x in feature))
            units.append([x / size for x in feature])
        mean = [sum(x) / len(units) for x in zip(*units, strict=True)]
        size = math.sqrt(sum(x * x for x in mean))
        assert row == pytest.approx([x / size * mean_length for x in mean], rel=1e-4, abs=1e-6)


def test_imprinting_looks_at_the_task_in_evaluation_mode_and_leaves_statistics_alone():
    asked = []

    def look_up(column, limit):
        asked.append((column, limit))
        return class_images(column, limit)

    learner = at_task(LUCIR, (4, 3), look_up=look_up)
    assert asked == [(4, 1000), (5, 1000), (6, 1000)]
    for name, buffer in learner.model.named_buffers():
        assert torch.equal(buffer, learner.teacher.get_buffer(name))


def test_imprinting_in_parts_is_imprinting_at_once(monkeypatch):
    def many(column, limit):
        return class_images(column, None).repeat(20, 1, 1, 1)

    few, all_ = at_task(LUCIR, (4, 3)), at_task(LUCIR, (4, 3), look_up=many)
    assert torch.allclose(few.model.head.new, all_.model.head.new, atol=1e-5)


def test_a_class_without_images_keeps_its_random_row():
    def nothing_of_five(column, limit):
        return class_images(column, 0 if column == 5 else limit)

    learner = at_task(LUCIR, (4, 3), look_up=nothing_of_five)
    assert torch.isfinite(learner.model.head.new).all()
    assert (learner.model.head.new[1] != 0).all()


def test_old_rows_are_frozen_and_new_rows_and_sigma_are_trained():
    learner = at_task(LUCIR, (4, 3, 2))
    head = learner.model.head
    old, new, sigma = head.old.clone(), head.new.clone(), head.sigma.clone()
    step(learner, batch_for(learner))
    assert not head.old.requires_grad
    assert head.old.grad is None
    assert torch.equal(head.old, old)
    assert (head.new != new).any(dim=1).all()
    assert head.sigma != sigma


def test_rows_of_the_task_before_are_frozen_as_it_left_them():
    learner = at_task(LUCIR, (4, 3, 2))
    before = learner.teacher.head
    assert torch.equal(learner.model.head.old, torch.cat([before.old, before.new]))


def test_sigma_is_carried_over():
    learner = at_task(LUCIR, (4, 3), between=lambda one: one.model.head.sigma.data.fill_(3.0))
    assert learner.model.head.sigma.item() == 3
    assert learner.model.head.sigma.requires_grad


def test_the_first_task_is_bce_with_all_rows_trained():
    learner = at_task(LUCIR, (4,))
    batch = batch_for(learner)
    expected = slow_bce(scores_of(learner, batch.images), batch.targets)
    assert learner.loss(batch).item() == pytest.approx(expected, rel=1e-5)
    assert learner.model.head.new.requires_grad


def slow_margin(cosines, targets, replayed, old, margin, top_k):
    """For each stored label of each memory image, against each of the highest new classes."""
    terms = []
    for row, labels, stored in zip(
        cosines.tolist(), targets.tolist(), replayed.tolist(), strict=True
    ):
        top = sorted(row[old:], reverse=True)[:top_k]
        for column in range(old):
            if stored and labels[column]:
                terms += [max(0.0, margin - row[column] + high) for high in top]
    return sum(terms) / len(terms) if terms else 0.0


def margin_case(seed, n=7, old=5, seen=9, several=False):
    random = torch.Generator().manual_seed(seed)
    cosines = torch.rand((n, seen), generator=random) * 2 - 1
    targets = torch.zeros(n, seen)
    targets[torch.arange(n), torch.arange(n) % old] = 1
    if several:
        targets[:, 0] = 1
    rows = torch.arange(n)
    return cosines, Batch(torch.empty(n), targets, rows % 3 == 0, rows)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("top_k", [1, 2, 3, 20])
def test_margin_is_its_equation(seed, several, top_k):
    cosines, batch = margin_case(seed, several=several)
    expected = slow_margin(cosines, batch.targets, batch.replayed, 5, 0.5, top_k)
    assert expected > 0
    stored = stored_labels(batch, 5)
    found = margin_loss(cosines, stored, 0.5, top_k) / stored.sum()
    assert found.item() == pytest.approx(expected, rel=1e-5)


def test_margin_asks_nothing_of_task_images_or_of_labels_far_enough_above():
    cosines, batch = margin_case(0)
    cosines[batch.replayed] = -0.5
    cosines[batch.targets.bool() & batch.replayed[:, None]] = 0.1
    cosines.requires_grad_()
    loss = margin_loss(cosines, stored_labels(batch, 5), 0.5, 2)
    assert loss.item() == 0
    loss.backward()
    assert (cosines.grad == 0).all()


def test_margin_without_memory_images_is_zero():
    cosines, batch = margin_case(0)
    batch = replace(batch, replayed=torch.zeros(7, dtype=torch.bool))
    assert margin_loss(cosines, stored_labels(batch, 5), 0.5, 2).item() == 0


@pytest.mark.parametrize("sizes", [(4, 3), (4, 3, 1)])
@pytest.mark.parametrize("replayed", [0, 4])
def test_the_whole_loss_is_its_equation(sizes, replayed):
    def loud(learner):
        learner.model.head.sigma.data.fill_(2.5)

    learner = at_task(LUCIR, sizes, between=loud)
    batch = batch_for(learner, replayed=replayed)
    old, new = sum(sizes[:-1]), sizes[-1]
    scores = scores_of(learner, batch.images)
    with torch.no_grad():
        features = learner.model.features(batch.images).tolist()
        before = learner.teacher.features(batch.images).tolist()
    rows = torch.cat([learner.model.head.old, learner.model.head.new]).tolist()
    cosines = torch.tensor([[slow_cosine(f, row) for row in rows] for f in features])
    drift = [1 - slow_cosine(f, b) for f, b in zip(features, before, strict=True)]
    expected = (
        slow_bce(scores, batch.targets)
        + 5 * math.sqrt(old / new) * sum(drift) / len(drift)
        + slow_margin(cosines, batch.targets, batch.replayed, old, 0.5, 2)
    )
    assert sum(drift) > 0
    assert scores.tolist() == [pytest.approx(row, rel=1e-4) for row in (2.5 * cosines).tolist()]
    assert learner.loss(batch).item() == pytest.approx(expected, rel=1e-4)


def test_the_margin_trains_sigma_only_where_asked():
    """It is about cosines: σ times them would let a louder head pass for a wider gap."""
    gradients, sigma = {}, 2.5
    for moves in (False, True):
        learner = at_task(LUCIR, (4, 3), options=LUCIR.Options(margin_moves_sigma=moves))
        head, batch = learner.model.head, batch_for(learner)
        head.sigma.data.fill_(sigma)
        features = learner.model.features(batch.images)
        (gradients[moves],) = torch.autograd.grad(learner.loss(batch), head.sigma)
    (of_bce,) = torch.autograd.grad(bce(head(features), batch.targets), head.sigma)
    assert gradients[False] == pytest.approx(of_bce.item(), rel=1e-5)
    nudge, cosines = 1e-4, head.cosines(features).detach().double()
    low, high = (
        slow_margin(cosines * (sigma + d) / sigma, batch.targets, batch.replayed, 4, 0.5, 2)
        for d in (-nudge, nudge)
    )
    by_margin = (gradients[True] - gradients[False]).item()
    assert by_margin == pytest.approx((high - low) / (2 * nudge), rel=1e-3)
    assert by_margin != 0


def test_letting_the_margin_move_sigma_leaves_the_loss_as_it_is():
    losses = []
    for moves in (False, True):
        learner = at_task(LUCIR, (4, 3), options=LUCIR.Options(margin_moves_sigma=moves))
        learner.model.head.sigma.data.fill_(2.5)
        losses.append(learner.loss(batch_for(learner)).item())
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


def test_the_papers_values_are_the_defaults():
    assert LUCIR.Options() == LUCIR.Options(
        lambda_base=5.0, margin=0.5, top_k=2, imprint_images=1000
    )


@pytest.mark.parametrize("wrong", [{"top_k": 0}, {"margin": -1.0}, {"lambda_base": math.nan}])
def test_values_no_run_can_have_are_refused(wrong):
    (name,) = wrong
    with pytest.raises(PolarbearError, match=f"{name} must be at least"):
        LUCIR.Options(**wrong)
