"""GEM: its quadratic programme by trying every set, the optimality of large ones, and a step."""

from itertools import chain, combinations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import binary_cross_entropy_with_logits

from polarbear.methods.gem import GEM, least, nearest
from tiny_learner import at_task, batch_for


def slow_least(square, linear):
    """Try every set of entries that are not 0: where one is right, no slope leads further down."""
    k = len(linear)
    for chosen in chain.from_iterable(combinations(range(k), n) for n in range(k + 1)):
        u, at = np.zeros(k), list(chosen)
        if at:
            u[at] = np.linalg.solve(square[np.ix_(at, at)], -linear[at])
        if (u >= -1e-12).all() and (square @ u + linear >= -1e-9).all():
            return u
    raise AssertionError("a positive definite programme has a least point")


def problem(seed, k, alike):
    random = np.random.default_rng(seed)
    rows = random.normal(size=(k, 40)) + alike * random.normal(size=40)
    return rows, random.normal(size=40) - rows.mean(axis=0)


@given(st.integers(0, 10**6), st.integers(1, 6), st.sampled_from([0.0, 1.0, 5.0]))
def test_the_programme_is_solved_exactly(seed, k, alike):
    rows, own = problem(seed, k, alike)
    square, linear = rows @ rows.T, rows @ own
    found = least(torch.tensor(square), torch.tensor(linear)).numpy()
    assert found == pytest.approx(slow_least(square, linear), abs=1e-6)


@given(st.integers(0, 10**6), st.sampled_from([21, 34]), st.sampled_from([0.0, 1.0, 5.0]))
def test_with_many_tasks_nothing_nearer_is_allowed(seed, k, alike):
    rows, own = problem(seed, k, alike)
    found = nearest(torch.tensor(own), torch.tensor(rows), 0.0).numpy()
    scale = np.linalg.norm(rows, axis=1) * np.linalg.norm(own)
    assert (rows @ found >= -1e-5 * scale).all()
    # The way from g is across to the result: a cone's nearest point.
    assert (found - own) @ found == pytest.approx(0, abs=1e-4 * own @ own)


def test_a_gradient_that_opposes_no_task_is_left_as_it_is():
    own, old = torch.tensor([1.0, 0.0]), torch.tensor([[1.0, 1.0], [0.0, 1.0]])
    assert torch.equal(nearest(own, old, 0.5), own)


def test_one_task_is_the_projection_of_agem():
    own, old = torch.tensor([1.0, -2.0]), torch.tensor([[0.0, 4.0]])
    torch.testing.assert_close(nearest(own, old, 0.0), torch.tensor([1.0, 0.0]))


def test_a_margin_leads_away_from_old_losses():
    own, old = torch.tensor([1.0, -2.0]), torch.tensor([[0.0, 4.0], [1.0, 0.0]])
    torch.testing.assert_close(nearest(own, old, 0.75), torch.tensor([1.75, 1.0]))


def test_tasks_without_a_gradient_and_equal_ones_are_no_trouble():
    own = torch.tensor([1.0, -2.0])
    old = torch.tensor([[0.0, 4.0], [0.0, 4.0], [0.0, 0.0]])
    torch.testing.assert_close(nearest(own, old, 0.0), torch.tensor([1.0, 0.0]))
    assert torch.equal(nearest(own, torch.zeros(3, 2), 0.5), own)


@pytest.mark.usefixtures("cpu_bf16")
def test_bf16_does_not_round_the_products():
    random = np.random.default_rng(0)
    rows, own = random.normal(size=(3, 1000)).astype(np.float32), random.normal(size=1000)
    own = (own - rows.sum(axis=0)).astype(np.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = nearest(torch.tensor(own), torch.tensor(rows), 0.0)
    assert found.dtype == torch.float32
    assert (rows @ found.numpy() > -1e-2).all()


def gradient_of(learner, batch, rows, columns):
    learner.model.train()
    learner.model.zero_grad()
    logits = learner.model(batch.images)[rows, columns]
    binary_cross_entropy_with_logits(logits, batch.targets[rows, columns]).backward()
    return torch.cat([p.grad.flatten() for p in learner.model.parameters()]).double().numpy()


def test_a_step_opposes_no_earlier_task():
    learner = at_task(GEM, sizes=(4, 3, 2), options=GEM.Options(margin=0.0))
    weight = learner.model.head.weight.data
    weight[7:9] = -5 * (weight[:2] + weight[4:6])
    batch = batch_for(learner, replayed=0)
    memory = batch_for(learner, n=10, replayed=10, seed=3)
    own = gradient_of(learner, batch, slice(None), slice(7, 9))
    of = memory.targets.argmax(dim=1)
    first = gradient_of(learner, memory, of < 4, slice(0, 4))
    second = gradient_of(learner, memory, (of >= 4) & (of < 7), slice(4, 7))
    old = np.stack([first, second])
    assert (old @ own < 0).any(), "the case must be one of conflict"
    learner.model.zero_grad()
    loss = learner.backward(batch, memory)
    assert not loss.requires_grad
    found = torch.cat([p.grad.flatten() for p in learner.model.parameters()]).double().numpy()
    assert found == pytest.approx(own + slow_least(old @ old.T, old @ own) @ old, abs=1e-5)
    assert found != pytest.approx(own, abs=1e-5)
