"""Methods on features: against plain twins, in tasks that train nothing, and resumed."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fake_graphs
from engine_run import interrupt_at, outcome, shapes_stream, tiny
from polarbear.engine.contract.batch import Batch
from polarbear.engine.nets.frozen import Frozen
from polarbear.engine.nets.heads import LinearHead
from polarbear.engine.nets.model import Model
from polarbear.launch.check.learner import check_learner
from polarbear.launch.runner import resume, run
from polarbear.methods.on_features import OnFeatures
from polarbear.methods.registry import make_options, resolve
from polarbear.runs.folder import RunFolder
from tiny_learner import context_for

pytestmark = pytest.mark.usefixtures("one_thread")

NAMES = ("ncm", "slda", "ranpac")
WIDTH = 5
SMALL = {"ranpac": {"width": 40}}  # random features


class Given(nn.Module):
    """Stands for a network whose features the tests give."""

    out_features = WIDTH


every_one = pytest.mark.parametrize("name", NAMES)

Task = tuple[Tensor, Tensor]


def task_of(seed: int, old: int, new: int, n: int = 60) -> Task:
    """Features around a point per class, every fourth image with two labels."""
    random = torch.Generator().manual_seed(seed)
    points = torch.randn(old + new, WIDTH, generator=torch.Generator().manual_seed(99)) * 2
    column = old + torch.arange(n) % new
    features = points[column] + torch.randn(n, WIDTH, generator=random)
    targets = torch.zeros(n, old + new)
    targets[torch.arange(n), column] = 1
    targets[::4, old] = 1
    return features, targets


def taught(name: str, tasks: list[Task], valid: Task | None = None, **options: Any) -> OnFeatures:
    """A method that has learnt tasks, from features that are given."""
    method = resolve(name)
    made = make_options(method, {**SMALL.get(name, {}), **options})
    model = Model(Frozen(Given()), LinearHead(WIDTH, 20))
    learner: Any = method(model, made)
    old = 0
    for number, (features, targets) in enumerate(tasks):
        seen = targets.shape[1]
        model.head.grow(seen)
        looked_up = valid and (valid[0], valid[1][:, :seen])
        given = {"task": (features, targets), "valid": looked_up, "memory": None}
        learner.context = replace(
            context_for(number, old, seen),
            batches=lambda which, given=given: in_batches(given[which]),
        )
        learner.begin_task(learner.context)
        learner.end_task()
        old = seen
    return learner  # type: ignore[no-any-return]


def in_batches(images: Task | None) -> Any:
    for features, targets in zip(*(part.split(16) for part in images or ()), strict=True):
        n = len(features)
        yield Batch(features[:, :, None, None], targets, torch.zeros(n).bool(), torch.arange(n))


def asked(learner: OnFeatures, features: Tensor) -> np.ndarray:
    with torch.no_grad():
        return learner.scores(features[:, :, None, None]).numpy()


TASKS = [task_of(1, 0, 4), task_of(2, 4, 3)]
VALID = task_of(3, 4, 3)
TEST = task_of(4, 0, 7)[0]


def of_class(column: int) -> np.ndarray:
    """All features that came with a label, of all tasks."""
    rows = [
        feature
        for features, targets in TASKS
        for feature, labels in zip(features.tolist(), targets.tolist(), strict=True)
        if column < len(labels) and labels[column]
    ]
    return np.array(rows)


def test_ncm_has_the_cosine_to_each_mean() -> None:
    found = asked(taught("ncm", TASKS), TEST)
    for i, feature in enumerate(TEST.double().numpy()):
        for column in range(7):
            mean = of_class(column).mean(axis=0)
            cosine = feature @ mean / np.linalg.norm(feature) / np.linalg.norm(mean)
            assert found[i, column] == pytest.approx(cosine)


@pytest.mark.parametrize("epsilon", [1e-4, 0.3])
def test_slda_has_the_discriminant_of_one_covariance(epsilon: float) -> None:
    found = asked(taught("slda", TASKS, shrinkage=epsilon), TEST)
    means = [of_class(column).mean(axis=0) for column in range(7)]
    deviations = [x - means[column] for column in range(7) for x in of_class(column)]
    covariance = sum(np.outer(x, x) for x in deviations) / len(deviations)
    inverse = np.linalg.inv((1 - epsilon) * covariance + epsilon * np.eye(WIDTH))
    for i, feature in enumerate(TEST.double().numpy()):
        for column, mean in enumerate(means):
            # The log of a Gaussian, without what all classes share.
            off = feature - mean
            log = -off @ inverse @ off / 2 + feature @ inverse @ feature / 2
            assert found[i, column] == pytest.approx(log)


@pytest.mark.parametrize("width", [0, 40])
def test_ranpac_is_a_ridge_regression_of_all_tasks_at_once(width: int) -> None:
    learner: Any = taught("ranpac", TASKS, VALID, width=width)
    drawn = learner.projection.numpy()
    assert drawn.shape == (WIDTH, width)

    def hidden(features: Tensor) -> np.ndarray:
        values = features.double().numpy()
        return np.maximum(values @ drawn, 0) if width else values

    labels = np.zeros((120, 7))
    labels[:60, :4], labels[60:] = TASKS[0][1].numpy(), TASKS[1][1].numpy()
    inputs = np.concatenate([hidden(features) for features, _ in TASKS])

    def solved(ridge: float) -> np.ndarray:
        size = inputs.shape[1]
        rows = np.concatenate([inputs, ridge**0.5 * np.eye(size)])
        return np.linalg.lstsq(rows, np.concatenate([labels, np.zeros((size, 7))]), rcond=None)[0]

    ridges = [10.0**power for power in range(-8, 9)]
    off = [((hidden(VALID[0]) @ solved(r) - VALID[1].numpy()) ** 2).mean() for r in ridges]
    best = ridges[int(np.argmin(off))]
    assert not width or ridges[0] < best < ridges[-1]  # else the choice would be no choice
    expected = hidden(TEST) @ solved(best)
    np.testing.assert_allclose(asked(learner, TEST), expected, atol=1e-6)


def slow_ridge(tasks: list[Task], seen: int, ridge: float) -> np.ndarray:
    """A ridge regression on the features themselves, by least squares."""
    rows = np.concatenate([features.double().numpy() for features, _ in tasks])
    labels = np.concatenate([np.pad(y.numpy(), ((0, 0), (0, seen - y.shape[1]))) for _, y in tasks])
    rows = np.concatenate([rows, ridge**0.5 * np.eye(WIDTH)])
    return np.linalg.lstsq(rows, np.concatenate([labels, np.zeros((WIDTH, seen))]), rcond=None)[0]


def test_ranpac_without_validation_images_asks_a_fifth_of_the_tasks_own() -> None:
    # Labels that have nothing to do with the features: the more ridge, the better for others.
    random = torch.Generator().manual_seed(5)
    features = torch.randn(50, WIDTH, generator=random)
    task = features, torch.eye(3)[torch.randint(3, (50,), generator=random)]
    learner: Any = taught("ranpac", [task], width=0)
    later = torch.randperm(50, generator=torch.Generator().manual_seed(100))[:10]  # by the seed
    rest = torch.ones(50).bool()
    rest[later] = False
    part = [tuple(one[rest] for one in task)]
    errors = {}
    for power in range(-8, 9):
        said = features[later].double().numpy() @ slow_ridge(part, 3, 10.0**power)  # type: ignore[arg-type]
        errors[10.0**power] = ((said - task[1][later].numpy()) ** 2).mean()
    best = min(errors, key=errors.__getitem__)
    assert best > 1
    # All images count in the end.
    expected = TEST.double().numpy() @ slow_ridge([task], 3, best)
    np.testing.assert_allclose(asked(learner, TEST), expected, atol=1e-8)


@pytest.mark.parametrize("valid", [None, VALID])
def test_ranpac_takes_the_ridge_it_was_given(valid: Task | None) -> None:
    for ridge in (1e-3, 50.0):
        learner = taught("ranpac", TASKS, valid, width=0, ridge=ridge)
        expected = TEST.double().numpy() @ slow_ridge(TASKS, 7, ridge)
        np.testing.assert_allclose(asked(learner, TEST), expected, atol=1e-8)


def test_ranpac_takes_more_ridge_where_it_is_too_little_to_solve_with() -> None:
    # Seven images, 40 random features: all but seven of the eigenvalues are 0.
    few = (TASKS[0][0] * 1e4)[:7], TASKS[0][1][:7]
    learner: Any = taught("ranpac", [few], ridge=1e-12)
    found = asked(learner, few[0])
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, few[1].numpy(), atol=1e-2)


def test_random_features_come_by_the_seed() -> None:
    first, again = (taught("ranpac", TASKS[:1]).projection for _ in range(2))
    assert torch.equal(first, again)  # type: ignore[arg-type]


@every_one
def test_the_order_of_a_tasks_images_does_not_matter(name: str) -> None:
    mixed = [tuple(part.flip(0) for part in task) for task in TASKS]
    found = asked(taught(name, mixed, VALID), TEST)  # type: ignore[arg-type]
    np.testing.assert_allclose(found, asked(taught(name, TASKS, VALID), TEST), atol=1e-8)


# Parents.


def families() -> list[Task]:
    """Classes 0 and 1, then a child of each, then one that looks most like the first child."""
    random = torch.Generator().manual_seed(0)
    first, second = 9 * torch.eye(WIDTH)[0], 9 * torch.eye(WIDTH)[1]
    aside = 3 * torch.eye(WIDTH)[2]
    tasks, seen = [], 0
    for points in ((first, second), (first + aside, second), (first + aside,)):
        features = [point + torch.randn(20, WIDTH, generator=random) for point in points]
        targets = torch.zeros(20 * len(points), seen + len(points))
        for place in range(len(points)):
            targets[20 * place : 20 * (place + 1), seen + place] = 1
        seen += len(points)
        tasks.append((torch.cat(features), targets))
    return tasks


@every_one
def test_a_new_class_belongs_below_the_class_that_its_images_are_taken_for(name: str) -> None:
    learner = taught(name, families())
    # The last one looks most like class 2, which has a parent itself: that is its parent, too.
    assert learner.parents.tolist() == [-1, -1, 0, 1, 0]
    assert learner.inferred_parents() is learner.parents
    scores = torch.tensor([[0, 0, 9.0, 1, 0], [9, 0, 0, 0, 0], [0, 0, 0, 5, 4]])
    assert learner.decide(scores).tolist() == [
        [True, False, True, False, False],
        [True, False, False, False, False],
        [False, True, False, True, False],
    ]


@every_one
def test_parents_need_a_majority_and_can_be_left_alone(name: str) -> None:
    tasks = families()
    half = (torch.cat([tasks[1][0][:10], tasks[1][0][20:30]]), torch.zeros(20, 3))
    half[1][:, 2] = 1  # a class whose images look half like the one, half like the other
    assert taught(name, [tasks[0], half], majority=0.6).parents.tolist() == [-1, -1, -1]
    assert taught(name, [tasks[0], half], majority=0.4).parents.tolist()[2] in (0, 1)
    alone = taught(name, tasks, parents=False)
    assert alone.parents.tolist() == [-1] * 5
    assert alone.decide(torch.eye(5)).tolist() == torch.eye(5).bool().tolist()


# In the engine.


@every_one
def test_the_first_task_trains_the_network_and_no_other(name: str, tmp_path: Path) -> None:
    settings = tiny(name, options=SMALL.get(name, {}))
    weights = []

    def note(trainer: Any, progress: Any) -> None:
        if not progress.begun:
            state = trainer.learner.model.state_dict()
            weights.append({key: tensor.clone() for key, tensor in state.items()})

    assert run(settings, tmp_path, stream=shapes_stream(), on_step=note)
    epochs = [(line["task"], line["epoch"]) for line in RunFolder(tmp_path).lines("epochs")]
    assert epochs == [(0, epoch) for epoch in range(4)]
    assert len(weights) == 3
    for key, tensor in weights[0].items():
        assert torch.equal(tensor, weights[2][key]), key


@every_one
def test_a_frozen_network_is_not_trained_at_all(name: str, tmp_path: Path) -> None:
    settings = tiny(name, frozen=True, options=SMALL.get(name, {}))
    assert run(settings, tmp_path, stream=shapes_stream())
    assert not list(RunFolder(tmp_path).lines("epochs"))
    assert len(list(RunFolder(tmp_path).lines("scores"))) == 6


@every_one
@pytest.mark.parametrize("frozen", [True, False])
def test_a_run_resumed_ends_as_one_that_was_not(name: str, frozen: bool, tmp_path: Path) -> None:
    settings = tiny(name, frozen=frozen, options=SMALL.get(name, {}))
    more: dict[str, Any] = {"stream": shapes_stream(), "save_every": 0}
    assert run(settings, tmp_path / "whole", **more)
    for stop in (1, 2) if frozen else (3, 15, 16):
        folder = tmp_path / str(stop)
        with pytest.raises(KeyboardInterrupt):
            run(settings, folder, on_step=interrupt_at(stop), **more)
        assert resume(folder, **more)
        assert outcome(folder) == outcome(tmp_path / "whole"), stop


@every_one
def test_captured_steps_are_the_eager_ones(name: str, monkeypatch: Any, tmp_path: Path) -> None:
    captured = fake_graphs.install(monkeypatch)
    losses = {}
    for graph in (True, False):
        settings = tiny(name, graph=graph, learning_rate=0.1, options=SMALL.get(name, {}))
        assert run(settings, tmp_path / str(graph), stream=shapes_stream())
        losses[graph] = [line["loss"] for line in RunFolder(tmp_path / str(graph)).lines("epochs")]
    assert len(captured) == 1
    assert losses[True] == pytest.approx(losses[False])


@every_one
def test_the_check_finds_nothing(name: str) -> None:
    method = resolve(name)
    assert check_learner(method, make_options(method, SMALL.get(name, {}))) == ()


def test_a_method_says_what_it_must_define() -> None:
    bare: Any = OnFeatures(Model(Frozen(Given()), LinearHead(WIDTH, 3)))
    with pytest.raises(NotImplementedError, match=r"OnFeatures must define add\(features, targets"):
        bare.add(*TASKS[0])
    with pytest.raises(NotImplementedError, match=r"must define class_scores\(features\)"):
        bare.class_scores(TEST)
