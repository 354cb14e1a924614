"""iCaRL-CNN and iCaRL-norm: targets from the teacher; σ; rows."""

import math
from dataclasses import replace

import pytest
import torch

from polarbear.methods.icarl_cnn import ICarlCNN, distilled_targets
from polarbear.methods.icarl_norm import ICarlNorm
from tiny_learner import WIDTH, at_task, batch_for, scores_of, slow_bce

both = pytest.mark.parametrize("method", [ICarlCNN, ICarlNorm])


@both
def test_loss_is_bce_with_the_teachers_word_on_old_classes(method):
    learner = at_task(method, sizes=(4, 3, 2))
    batch = batch_for(learner)
    targets = batch.targets.clone()
    with torch.no_grad():
        said = learner.teacher(batch.images).tolist()
    for i in range(len(targets)):
        for column in range(7):
            targets[i, column] = 1 / (1 + math.exp(-said[i][column]))
    expected = slow_bce(scores_of(learner, batch.images), targets)
    assert learner.loss(batch).item() == pytest.approx(expected, rel=1e-5)


@both
def test_stored_labels_of_old_classes_are_not_used(method):
    learner = at_task(method, sizes=(4, 3))
    batch = batch_for(learner)
    other = replace(batch, targets=batch.targets.clone())
    other.targets[:, :4] = 1 - other.targets[:, :4]
    assert learner.loss(other) == learner.loss(batch)
    other.targets[0, 4] = 1 - other.targets[0, 4]
    assert learner.loss(other) != learner.loss(batch)


@both
def test_the_first_task_has_no_teacher_and_plain_labels(method):
    learner = at_task(method, sizes=(4,))
    batch = batch_for(learner)
    assert learner.teacher is None
    expected = slow_bce(scores_of(learner, batch.images), batch.targets)
    assert learner.loss(batch).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.usefixtures("cpu_bf16")
def test_targets_carry_no_gradient_and_keep_their_type():
    learner = at_task(ICarlNorm)
    batch = batch_for(learner)
    with torch.autocast("cpu", torch.bfloat16):
        targets = distilled_targets(learner.teacher, batch)
    assert targets.dtype == torch.float32
    assert not targets.requires_grad
    assert targets.shape == batch.targets.shape


def test_sigma_is_one_again_at_each_task_and_the_teacher_keeps_its_own():
    def louder(learner):
        assert learner.model.head.sigma.item() != 1, "the step trains σ"
        learner.model.head.sigma.data.fill_(3.0)

    learner = at_task(ICarlNorm, sizes=(4, 3, 2), between=louder)
    assert learner.model.head.sigma.item() == 1
    assert learner.model.head.sigma.requires_grad
    assert learner.teacher.head.sigma.item() == 3


def test_all_rows_are_trained_and_new_ones_are_random():
    learner = at_task(ICarlNorm, sizes=(4, 3, 2))
    head = learner.model.head
    assert head.old.requires_grad
    learner.model.train()
    learner.backward(batch_for(learner), None)
    assert (head.old.grad != 0).any(dim=1).all()
    assert (head.new.grad != 0).any(dim=1).all()
    assert (head.new.abs() <= 1 / math.sqrt(WIDTH)).all()
    assert len(head.new.unique()) == head.new.numel()
    assert torch.equal(head.old, torch.cat([learner.teacher.head.old, learner.teacher.head.new]))
