"""HCV: parents by what fires, targets and answers written out class by class; MTKD beside it."""

import math
from dataclasses import replace

import pytest
import torch

from engine_run import finish, shapes_stream, tiny, trainer_for
from polarbear.engine.contract.method import Method
from polarbear.methods.hcv import HCV
from polarbear.methods.mtkd import MTKD
from tiny_learner import at_task, batch_for, class_images, scores_of, slow_bce


def say(*columns: int):
    """Let the network say yes to some classes, whatever it sees."""

    def change(learner: Method) -> None:
        learner.model.head.weight.data.zero_()
        learner.model.head.bias.data.fill_(-3)
        learner.model.head.bias.data[list(columns)] = 3

    return change


def test_the_class_that_fires_most_often_is_the_parent() -> None:
    assert at_task(HCV, between=say(1)).parents.tolist() == [-1] * 4 + [1] * 3
    assert at_task(HCV, between=say()).parents.tolist() == [-1] * 7
    strict = at_task(HCV, options=HCV.Options(threshold=1.0), between=say(1))
    assert strict.parents.tolist() == [-1] * 7


def test_rates_are_counted_over_the_images_of_a_class() -> None:
    learner = at_task(HCV, options=HCV.Options(threshold=0.3))
    found = []
    for column in range(4, 7):
        yes = [0] * 4
        for image in class_images(column):
            for old, logit in enumerate(learner.teacher(image[None])[0].tolist()):
                yes[old] += logit > 0
        most = max(range(4), key=yes.__getitem__)
        found.append(most if yes[most] / len(class_images(column)) > 0.3 else -1)
    assert learner.parents[4:].tolist() == found != [-1] * 3


def test_a_class_without_images_has_no_parent() -> None:
    none = at_task(HCV, between=say(1), look_up=lambda column, limit=None: torch.zeros(0, 3, 6, 6))
    assert none.parents.tolist() == [-1] * 7


def hcv_with(parents: list[int]) -> HCV:
    learner = at_task(HCV)
    learner.parents.copy_(torch.tensor(parents))
    upwards = torch.eye(7)
    for child, parent in enumerate(parents):
        if parent >= 0:
            upwards[child, parent] = 1
    learner.upwards.copy_(upwards)
    return learner


def test_images_of_a_placed_class_have_its_labels_and_no_others() -> None:
    learner = hcv_with([-1, -1, -1, -1, 2, -1, 0])
    batch = batch_for(learner)
    targets = batch.targets.clone()
    said = torch.sigmoid(learner.teacher(batch.images)).tolist()
    for i, label in enumerate(batch.targets.argmax(dim=1).tolist()):
        parent = {4: 2, 6: 0}.get(label)
        for old in range(4):
            targets[i, old] = said[i][old] if parent is None else float(old == parent)
    expected = slow_bce(scores_of(learner, batch.images), targets)
    assert learner.loss(batch).item() == pytest.approx(expected, rel=1e-5)


def test_an_image_of_a_placed_class_keeps_its_other_labels() -> None:
    parents = [-1, -1, -1, -1, 2, -1, 0]
    learner = hcv_with(parents)
    batch = batch_for(learner, n=4, replayed=0)
    given = [{4, 5}, {4, 6}, {5}, {5, 6}]
    batch.targets[:] = torch.tensor([[float(c in labels) for c in range(7)] for labels in given])
    said = torch.sigmoid(learner.teacher(batch.images)).tolist()
    targets = batch.targets.clone()
    for i, labels in enumerate(given):
        above = {parents[label] for label in labels} - {-1}
        for old in range(4):
            targets[i, old] = float(old in above) if above else said[i][old]
    expected = slow_bce(scores_of(learner, batch.images), targets)
    assert learner.loss(batch).item() == pytest.approx(expected, rel=1e-5)


def test_stored_images_learn_old_classes_from_the_teacher() -> None:
    learner = hcv_with([-1, 0, -1, -1, -1, -1, -1])  # what memory shows has a parent
    batch = batch_for(learner, replayed=8)
    targets = batch.targets.clone()
    targets[:, :4] = torch.sigmoid(learner.teacher(batch.images))
    expected = slow_bce(scores_of(learner, batch.images), targets)
    assert learner.loss(batch).item() == pytest.approx(expected, rel=1e-5)


def test_the_nearest_consistent_answer_is_predicted() -> None:
    learner = hcv_with([-1, -1, -1, -1, 2, -1, 0])
    answers = [{0}, {1}, {2}, {3}, {4, 2}, {5}, {6, 0}]
    scores = torch.randn((200, 7), generator=torch.Generator().manual_seed(0))
    for row, found in zip(scores.tolist(), learner.decide(scores).tolist(), strict=True):
        said = {c for c in range(7) if row[c] >= 0}
        near = min(len(said ^ answer) for answer in answers)
        tied = [c for c in range(7) if len(said ^ answers[c]) == near]
        best = answers[max(tied, key=row.__getitem__)]
        assert {c for c in range(7) if found[c]} == best


def test_an_epoch_is_measured_by_labels_with_their_parents() -> None:
    learner = hcv_with([-1, -1, -1, -1, 2, -1, 0])
    scores = torch.full((2, 7), -1.0)
    scores[0, [2, 4]] = 1
    scores[1, 4] = 1
    targets = torch.zeros(2, 7)
    targets[:, 4] = 1
    assert learner.measure(scores, targets) == pytest.approx((1 + 0.5) / 2)


def test_parents_are_recorded_and_scored() -> None:
    trainer, notes = trainer_for(tiny("hcv", tasks=2), shapes_stream())
    finish(trainer)
    assert list(notes.lines[-1].parents) == trainer.learner.method.parents.tolist()
    assert "parents_right" in notes.lines[-1].scores


def test_mtkd_has_two_teachers() -> None:
    learner = at_task(MTKD, sizes=(4, 3, 2), options=MTKD.Options(first_weight=0.5))
    batch = batch_for(learner)
    logits, targets = scores_of(learner, batch.images), batch.targets.clone()
    before, first = learner.teacher(batch.images), learner.networks["first"](batch.images)
    assert (before.shape[1], first.shape[1]) == (7, 4)
    assert not torch.equal(before[:, :4], first)
    for i in range(len(targets)):
        for column in range(7):
            targets[i, column] = 1 / (1 + math.exp(-before[i, column]))
    expected = slow_bce(logits, targets) + 0.5 * slow_bce(logits[:, :4], torch.sigmoid(first))
    assert learner.loss(batch).item() == pytest.approx(expected, rel=1e-5)


def test_the_first_network_stays_as_it_was() -> None:
    kept = []
    learner = at_task(
        MTKD, sizes=(4, 3, 2), between=lambda one: kept.append(one.networks["first"].head.bias[0])
    )
    assert kept[0] == kept[1]
    assert learner.networks["first"] is not learner.teacher


@pytest.mark.parametrize("k", [1, 2, 9])
def test_mtkd_predicts_at_most_k_classes(k: int) -> None:
    learner = at_task(MTKD, options=MTKD.Options(top_k=k))
    scores = torch.randn((50, 7), generator=torch.Generator().manual_seed(0))
    scores[0] = -1
    for row, found in zip(scores.tolist(), learner.decide(scores).tolist(), strict=True):
        likeliest = sorted(range(7), key=row.__getitem__)[::-1][:k]
        assert [c for c in range(7) if found[c]] == sorted(c for c in likeliest if row[c] >= 0)


def test_without_a_teacher_both_learn_the_labels() -> None:
    for method in (HCV, MTKD):
        learner = at_task(method, sizes=(4,))
        batch = replace(batch_for(learner))
        expected = slow_bce(scores_of(learner, batch.images), batch.targets)
        assert learner.loss(batch).item() == pytest.approx(expected, rel=1e-5)
