"""A-GEM: the projection against a flat-vector twin, the two losses, and the cases at the edge."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from polarbear.methods.agem import AGEM, project
from tiny_learner import at_task, batch_for, scores_of, slow_bce


def parts(vector, shapes):
    sizes = [int(np.prod(shape)) for shape in shapes]
    pieces = torch.tensor(vector).split(sizes)
    return tuple(p.reshape(shape) for p, shape in zip(pieces, shapes, strict=True))


def slow_project(g, r):
    """Entry by entry, on vectors."""
    dot = sum(a * b for a, b in zip(g, r, strict=True))
    if dot >= 0:
        return list(g)
    square = sum(b * b for b in r)
    return [a - dot / square * b for a, b in zip(g, r, strict=True)]


SHAPES = ((2, 3), (), (4,))


@given(st.integers(0, 10**6))
def test_projection_is_its_equation(seed):
    g, r = np.random.default_rng(seed).normal(size=(2, 11))
    found = torch.cat([p.flatten() for p in project(parts(g, SHAPES), parts(r, SHAPES))])
    assert found.tolist() == pytest.approx(slow_project(g, r), abs=1e-12)
    assert found @ torch.tensor(r) >= -1e-12


def test_a_gradient_that_agrees_is_left_as_it_is():
    g = parts(np.arange(11.0), SHAPES)
    for r in (g, tuple(p * 0 for p in g)):
        assert all(torch.equal(a, b) for a, b in zip(project(g, r), g, strict=True))


def test_the_projection_is_over_all_parameters_together():
    """Alone, the first parameter conflicts; together they agree, so nothing changes."""
    g = (torch.tensor([1.0]), torch.tensor([2.0]))
    r = (torch.tensor([-1.0]), torch.tensor([1.0]))
    assert project(g, r) == [torch.tensor([1.0]), torch.tensor([2.0])]


@pytest.mark.usefixtures("cpu_bf16")
def test_bf16_does_not_round_the_projection():
    g, r = np.random.default_rng(0).normal(size=(2, 1000)).astype(np.float32)
    r -= 0.5 * g
    with torch.autocast("cpu", torch.bfloat16):
        (found,) = project((torch.tensor(g),), (torch.tensor(r),))
    assert found.dtype == torch.float32
    assert abs(found.double() @ torch.tensor(r).double()) < 1e-3


def gradient_of(learner, batch, columns):
    """The flat gradient of BCE over some columns, from a plain backward pass."""
    learner.model.train()
    learner.model.zero_grad()
    scores = learner.model(batch.images)[:, columns]
    torch.nn.functional.binary_cross_entropy_with_logits(
        scores, batch.targets[:, columns]
    ).backward()
    return torch.cat([p.grad.flatten() for p in learner.model.parameters()]).tolist()


def flat_gradient(learner):
    return torch.cat([p.grad.flatten() for p in learner.model.parameters()]).tolist()


def conflicting():
    """A learner whose new rows oppose its old ones, so that memory wants other features."""
    learner = at_task(AGEM, sizes=(4, 3))
    weight = learner.model.head.weight.data
    weight[4:7] = -5 * weight[:3]
    batch = batch_for(learner, replayed=0)
    reference = batch_for(learner, n=6, replayed=6)
    g = gradient_of(learner, batch, slice(4, 7))
    r = gradient_of(learner, reference, slice(0, 4))
    assert np.dot(g, r) < 0, "the case must be one of conflict"
    return learner, batch, reference, g, r


def test_a_step_projects_the_tasks_gradient_by_that_of_old_classes_on_memory():
    learner, batch, reference, g, r = conflicting()
    scores = scores_of(learner, batch.images)
    learner.model.zero_grad()
    loss = learner.backward(batch, reference)
    assert loss.item() == pytest.approx(slow_bce(scores[:, 4:], batch.targets[:, 4:]), rel=1e-5)
    assert not loss.requires_grad
    expected = slow_project(g, r)
    assert flat_gradient(learner) == pytest.approx(expected, abs=1e-6)
    assert expected != pytest.approx(g, abs=1e-6)
    assert np.dot(flat_gradient(learner), r) == pytest.approx(0, abs=1e-6)


def test_without_memory_it_is_the_tasks_gradient():
    learner = at_task(AGEM, sizes=(4,))
    batch = batch_for(learner)
    expected = gradient_of(learner, batch, slice(0, 4))
    learner.model.zero_grad()
    learner.backward(batch, None)
    assert flat_gradient(learner) == pytest.approx(expected, abs=1e-7)


def test_parameters_that_a_loss_does_not_reach_count_as_zero():
    learner, batch, reference, g, r = conflicting()
    learner.model.unused = torch.nn.Parameter(torch.ones(2))
    learner.model.fixed = torch.nn.Parameter(torch.ones(2), requires_grad=False)
    learner.model.zero_grad()
    learner.backward(batch, reference)
    assert learner.model.unused.grad.tolist() == [0, 0]
    assert learner.model.fixed.grad is None
    del learner.model.unused, learner.model.fixed
    assert flat_gradient(learner) == pytest.approx(slow_project(g, r), abs=1e-6)


def test_the_papers_reference_batch_is_the_default():
    assert AGEM(None).options.reference_batch_size == 128
