"""Kin: its loss and its rule against plain loops, its parents, and runs that are stopped."""

import itertools
import math
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

import fake_graphs
from engine_run import (
    assert_stops_leave_no_trace,
    finish,
    shapes_stream,
    tiny,
    trainer_for,
)
from polarbear.base.errors import PolarbearError
from polarbear.engine.contract.batch import TaskContext
from polarbear.launch.runner import run
from polarbear.methods.births import own_probabilities
from polarbear.methods.kin import Kin
from polarbear.methods.kin_scores import log_shares
from polarbear.methods.softmax import soft_cross_entropy, softmax_with_holes
from polarbear.methods.tree import closure, expected_gains
from polarbear.runs.folder import RunFolder
from polarbear.score.metrics import pw_jaccard
from tiny_learner import at_task, batch_for

pytestmark = pytest.mark.usefixtures("one_thread")

# bear 0, lamp 1, polar bear 2 and brown bear 3 below bear, cub 4 below brown bear
PARENTS = torch.tensor([-1, -1, 0, 0, 3])
KIN = {0: {0, 2, 3, 4}, 1: {1}, 2: {0, 2}, 3: {0, 3, 4}, 4: {0, 3, 4}}


def ancestors(c: int) -> set[int]:
    return {c} | (ancestors(int(PARENTS[c])) if PARENTS[c] >= 0 else set())


def below(c: int) -> set[int]:
    return {other for other in range(5) if c in ancestors(other)} - {c}


def numbers(seed: int, n: int = 6) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(0, 3, (n, 5))).float()


def test_the_softmax_has_a_hole_for_every_class_below_the_label() -> None:
    logits, labels = numbers(0), [0, 1, 2, 3, 4, 0]
    upwards = closure(PARENTS)
    targets = torch.eye(5)[labels]
    losses = []
    for row, label in zip(logits.tolist(), labels, strict=True):
        positives = ancestors(label)
        negatives = set(range(5)) - positives - below(label)
        against = sum(math.exp(row[n]) for n in negatives)
        each = [-math.log(math.exp(row[p]) / (math.exp(row[p]) + against)) for p in positives]
        losses.append(sum(each) / len(each))
    found = softmax_with_holes(logits, targets @ upwards, targets @ (upwards.T - torch.eye(5)))
    assert float(found) == pytest.approx(sum(losses) / len(losses), rel=1e-5)


def test_what_lies_below_the_label_gets_no_gradient() -> None:
    logits = numbers(1, 1).requires_grad_()
    upwards, target = closure(PARENTS), torch.eye(5)[[0]]
    softmax_with_holes(logits, target @ upwards, target @ (upwards.T - torch.eye(5))).backward()
    assert logits.grad[0, 2:].tolist() == [0, 0, 0]
    assert (logits.grad[0, :2] != 0).all()


def test_shares_are_against_all_that_is_no_kin() -> None:
    logits = numbers(2)
    kin = closure(PARENTS) + closure(PARENTS).T > 0
    found = log_shares(logits, kin)
    for (i, row), c in itertools.product(enumerate(logits.tolist()), range(5)):
        assert {o for o in range(5) if kin[c, o]} == KIN[c]
        against = sum(math.exp(row[o]) for o in range(5) if o not in KIN[c])
        expected = math.log(math.exp(row[c]) / (math.exp(row[c]) + against))
        assert float(found[i, c]) == pytest.approx(expected, abs=1e-5)


def test_distillation_is_the_cross_entropy_of_softened_softmaxes() -> None:
    student, teacher = numbers(3), numbers(4)
    wanted, given = (torch.softmax(z / 2, dim=1) for z in (teacher, student))
    expected = -(wanted * given.log()).sum(dim=1).mean()
    assert float(soft_cross_entropy(student, teacher, 2.0)) == pytest.approx(float(expected))


def test_gains_are_the_pw_js_of_every_pair_of_answers() -> None:
    sets = closure(PARENTS).bool().numpy()
    gains = expected_gains(closure(PARENTS))
    for true, answer in itertools.product(range(5), range(5)):
        expected = pw_jaccard(sets[[answer]], sets[[true]])[0]
        assert float(gains[true, answer]) == pytest.approx(expected)


def kin_at(parents: Tensor) -> Kin:
    learner = at_task(Kin, sizes=(5,))
    learner.register_buffer("parents", parents)
    learner.register_buffer("upwards", closure(parents))
    learner.register_buffer("gains", expected_gains(closure(parents)))
    return learner


def test_the_answer_has_the_highest_expected_score() -> None:
    learner, scores = kin_at(PARENTS), numbers(5, 40)
    predicted = learner.decide(scores)
    sets = closure(PARENTS).bool()
    for row, answer in zip(scores.softmax(dim=1), predicted, strict=True):
        worth = [
            sum(
                p * float(pw_jaccard(s[None].numpy(), t[None].numpy())[0])
                for p, t in zip(row, sets, strict=True)
            )
            for s in sets
        ]
        assert torch.equal(answer, sets[int(np.argmax(worth))])


def test_a_child_brings_its_parent_and_an_unsure_one_does_not_come() -> None:
    learner = kin_at(torch.tensor([-1, -1, 0, 0, -1]))
    sure = torch.tensor([[0.0, -9, 9, -9, -9]])
    unsure = torch.tensor([[2.0, -9, 2.0, 2.0, -9]])
    assert learner.decide(sure).tolist() == [[True, False, True, False, False]]
    assert learner.decide(unsure).tolist() == [[True, False, False, False, False]]


def test_a_class_is_asked_of_its_network_of_birth() -> None:
    """A network of birth that takes every image for class 1 makes that the parent of all."""

    def sure_of_one(learner: Kin) -> None:
        network = learner.networks["birth-0"]
        features = network.features(torch.randn(64, 3, 8, 8)).mean(dim=0)
        rows = torch.stack([-features, features, -features, -features])
        network.head.new.data.copy_(rows)
        network.head.sigma.data.fill_(100.0)

    learner = at_task(Kin, between=sure_of_one)
    assert learner.parents.tolist() == [-1] * 4 + [1] * 3
    none = at_task(Kin, options=Kin.Options(parents=False), between=sure_of_one)
    assert none.parents.tolist() == [-1] * 7
    strict = at_task(Kin, options=Kin.Options(threshold=1.1), between=sure_of_one)
    assert strict.parents.tolist() == [-1] * 7


def test_a_network_is_sure_of_a_class_by_the_mean_over_its_own_images() -> None:
    learner = at_task(Kin, sizes=(4,))
    batches = [batch_for(learner, n=7, seed=seed) for seed in (1, 2)]
    for batch in batches:
        batch.targets[:, 3] = 0  # a class without images
    found = own_probabilities(learner.model.eval(), batches)
    for column in range(3):
        own = [
            learner.model(batch.images[[i]]).softmax(dim=1)[0, column].item()
            for batch in batches
            for i in range(7)
            if batch.targets[i, column]
        ]
        assert float(found[column]) == pytest.approx(sum(own) / len(own), rel=1e-5)
    assert float(found[3]) == 1
    assert own_probabilities(learner.model, []).tolist() == [1.0] * 4


def test_a_parent_needs_a_part_of_what_its_own_images_get() -> None:
    probabilities = torch.tensor([[0.3, 0.4], [0.1, 0.4]])

    class Asked(Kin):
        def asked(self, context: TaskContext) -> Tensor:
            return probabilities

    learner = Asked(at_task(Kin, sizes=(2,)).model, Kin.Options(threshold=0.8))
    learner.sure = torch.tensor([0.35, 0.9])
    context = replace(at_task(Kin, sizes=(2, 2)).context, autocast=nullcontext)
    none = torch.tensor([-1, -1])
    assert learner.find_parents(context, none).tolist() == [0, -1]
    assert learner.find_parents(context, torch.tensor([1, -1])).tolist() == [-1, -1]


def test_a_run_of_an_earlier_kin_is_refused() -> None:
    def forget(learner: Kin) -> None:  # as in a checkpoint from before it was kept
        learner.sure = learner.sure[:0]

    with pytest.raises(PolarbearError, match="begun by an earlier Kin"):
        at_task(Kin, between=forget)


def test_frequent_classes_are_raised_in_the_loss_alone() -> None:
    learner = at_task(Kin, sizes=(4,))
    batch = batch_for(learner)
    with torch.no_grad():
        before, scores = learner.loss(batch), learner.scores(batch.images)
        learner.raised[0] += 3
        assert float(learner.loss(batch)) != pytest.approx(float(before))
        assert torch.equal(learner.scores(batch.images), scores)


@pytest.mark.parametrize(
    "option", ["mirror", "witnesses", "unknown_children", "balance", "holes", "parents"]
)
def test_every_part_can_be_taken_away(option: str) -> None:
    found = {}
    for value in (True, False):
        settings = tiny("kin", learning_rate=0.1, schedule="cosine", options={option: value})
        trainer, notes = trainer_for(settings, shapes_stream())
        finish(trainer)
        found[value] = notes.kept[2][1]
    assert found[True].shape == found[False].shape
    assert not np.array_equal(found[True], found[False])


def test_stopped_at_any_step_a_run_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    values = {"tasks": 3, "epochs": 1, "batch_size": 64, "keep_scores": True}
    settings = tiny("kin", learning_rate=0.1, schedule="cosine", **values)
    assert_stops_leave_no_trace(settings, tmp_path, lambda steps: range(1, steps + 1))


def test_captured_steps_are_the_eager_ones(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    captured = fake_graphs.install(monkeypatch)
    found = []
    for graph in (True, False):
        folder = tmp_path / str(graph)
        settings = tiny("kin", learning_rate=0.02, schedule="cosine", graph=graph)
        assert run(settings, folder, stream=shapes_stream())
        found.append([line["loss"] for line in RunFolder(folder).lines("epochs")])
    assert len(captured) == 3
    assert found[0] == pytest.approx(found[1], rel=1e-3)


def test_parents_are_recorded_and_scored(tmp_path: Path) -> None:
    settings = tiny("kin", learning_rate=0.1, schedule="cosine", tasks=2)
    trainer, notes = trainer_for(settings, shapes_stream())
    finish(trainer)
    record = notes.lines[-1]
    assert list(record.parents) == trainer.learner.method.parents.tolist()
    assert {"parents_right", "parents_wrong", "parents_false"} <= record.scores.keys()
    assert (
        trainer_for(tiny("er", tasks=1), shapes_stream())[0].learner.method.inferred_parents()
        is None
    )
