"""What moves the weights: optimisers by setting, groups of parameters, a method's own."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import fake_graphs
from engine_run import (
    finish,
    interrupt_at,
    outcome,
    same,
    shapes_stream,
    tiny,
    trainer_for,
    weights,
)
from polarbear.base.errors import PolarbearError
from polarbear.engine.contract.batch import Batch, TaskContext
from polarbear.engine.contract.method import bce
from polarbear.engine.steps.captured import CapturedSteps
from polarbear.engine.task.epoch_plan import EpochPlan
from polarbear.engine.task.training_set import TrainingSet
from polarbear.engine.trainer import DivergedError, Trainer
from polarbear.launch.runner import resume, run
from polarbear.launch.snapshot import restore, take_snapshot
from polarbear.methods.agem import AGEM
from polarbear.methods.er import ER
from polarbear.methods.finetune import Finetune
from polarbear.runs.folder import RunFolder

pytestmark = pytest.mark.usefixtures("one_thread")


class Scaled(ER):
    """ER that learns one more scale for its logits, and an offset for each class by a module."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.scale = nn.Parameter(torch.ones(()))
        self.offset = nn.Linear(1, 20, bias=False)
        nn.init.zeros_(self.offset.weight)

    def loss(self, batch: Batch) -> Tensor:
        logits = self.model(batch.images)
        offset = self.offset.weight[: logits.shape[1], 0]
        return bce(self.scale * logits + offset, batch.targets)


class Grown(Scaled):
    """The same, with an offset that grows with the tasks."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.offset.weight = nn.Parameter(torch.zeros(0, 1))

    def begin_task(self, context: TaskContext) -> None:
        before = self.offset.weight.data
        new = torch.zeros(context.seen - len(before), 1).to(before)
        self.offset.weight = nn.Parameter(torch.cat([before, new]))


class Late(Scaled):
    """The same, with a module that is not there before the first task."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        del self.offset

    def begin_task(self, context: TaskContext) -> None:
        if context.task == 0:
            self.offset = nn.Linear(1, 20, bias=False)


class Grouped(Scaled):
    """Scaled, whose head learns at half the rate and without decay, and its scale at five times."""

    def parameter_groups(self) -> list[dict[str, Any]]:
        return [
            {"params": self.model.backbone.parameters()},
            {"params": self.model.head.parameters(), "rate": 0.5, "weight_decay": 0.0},
            {"params": [self.scale, *self.offset.parameters()], "rate": 5},
        ]


class Frozen(Finetune):
    """Finetuning of the head alone."""

    def parameter_groups(self) -> list[dict[str, Any]]:
        return [{"params": self.model.head.parameters()}]


def path(method: type) -> str:
    return f"test_optimiser:{method.__name__}"


# Against plain loops of PyTorch's


def plain_loop(trainer: Trainer, optimiser: Any, clip: float | None = None) -> nn.Module:
    """Train a copy of a model through task 0, by hand; ``optimiser`` is made of its parameters."""
    trainer.begin_task()
    learner = trainer.learner
    model = deepcopy(learner.model).train()
    pool, made = TrainingSet.of(trainer.stream[0].train, None), optimiser(model)
    for epoch in range(4):
        for batch, _ in EpochPlan.plan(learner, pool, None, (0, epoch)).batches():
            made.zero_grad()
            bce(model(batch.images), batch.targets).backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            made.step()
    return model


def assert_trained_as(model: nn.Module, trainer: Trainer) -> None:
    before = weights(trainer.learner.model)
    finish(trainer)
    for name, tensor in trainer.learner.model.state_dict().items():
        torch.testing.assert_close(tensor, model.state_dict()[name], msg=name)
    assert not same(before, weights(trainer.learner.model))


@pytest.mark.parametrize(
    ("changes", "optimiser"),
    [
        (
            {"optimiser": "adamw", "momentum": 0.8, "weight_decay": 0.1, "learning_rate": 0.01},
            lambda m: torch.optim.AdamW(m.parameters(), 0.01, (0.8, 0.999), weight_decay=0.1),
        ),
        (
            {"nesterov": True, "learning_rate": 0.02},
            lambda m: torch.optim.SGD(
                m.parameters(), 0.02, momentum=0.9, weight_decay=1e-5, nesterov=True
            ),
        ),
        (
            {"clip": 0.05, "momentum": 0.0, "weight_decay": 0.0, "learning_rate": 0.5},
            lambda m: torch.optim.SGD(m.parameters(), 0.5),
        ),
    ],
    ids=["adamw", "nesterov", "clip"],
)
def test_a_task_is_a_plain_loop_of_this_optimiser(changes: dict[str, Any], optimiser: Any) -> None:
    """A-GEM's first task is plain training, and it keeps its last weights."""
    trainer, _ = trainer_for(tiny("agem", tasks=1, schedule="constant", **changes))
    assert isinstance(trainer.learner.method, AGEM)
    assert_trained_as(plain_loop(trainer, optimiser, changes.get("clip")), trainer)


def test_groups_have_their_own_rate_and_decay() -> None:
    settings = tiny(path(Grouped), schedule="cosine", weight_decay=0.02)
    trainer, _ = trainer_for(settings)
    next(trainer.steps())
    body, head, own = trainer.optimiser.param_groups
    assert (head["lr"], own["lr"]) == pytest.approx((0.5 * body["lr"], 5 * body["lr"]))
    assert body["lr"] == 0.3
    assert [g["weight_decay"] for g in (body, head, own)] == [0.02, 0.0, 0.02]


def test_what_is_in_no_group_is_not_trained() -> None:
    trainer, _ = trainer_for(tiny(path(Frozen), tasks=1))
    trainer.begin_task()
    before = {k: v.clone() for k, v in trainer.learner.model.named_parameters()}
    finish(trainer)
    for name, now in trainer.learner.model.named_parameters():
        assert torch.equal(now, before[name]) == name.startswith("backbone")


def test_gradients_of_what_is_not_trained_do_not_add_up() -> None:
    once, often = (trainer_for(tiny(path(Frozen), tasks=1, learning_rate=1e-9))[0] for _ in "ab")
    found = []
    for trainer, steps in ((once, 1), (often, 9)):
        run = trainer.steps()
        for _ in range(steps):
            next(run)
        found.append(trainer.learner.model.backbone.layers[0].weight.grad.norm().item())
    assert found[1] < 2 * found[0]


# A method's own parameters


def test_parameters_of_the_methods_own_are_trained_and_fresh_in_every_optimiser() -> None:
    trainer, _ = trainer_for(tiny(path(Scaled)))
    trainer.begin_task()
    own = {id(p) for p in trainer.learner.method.parameters()}
    model = [id(p) for p in trainer.learner.model.parameters()]
    (group,) = trainer.optimiser.param_groups
    assert [id(p) for p in group["params"]][: len(model)] == model
    assert {id(p) for p in group["params"][len(model) :]} == own
    finish(trainer)
    assert trainer.learner.method.scale != 1
    assert trainer.learner.method.offset.weight[:10].all()


@pytest.mark.parametrize("graph", [True, False])
def test_a_parameter_of_its_own_that_is_no_number_is_noticed(
    graph: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = fake_graphs.install(monkeypatch)
    trainer, _ = trainer_for(tiny(path(Scaled), tasks=1, graph=graph))
    run = trainer.steps()
    next(run)
    assert bool(captured) == graph
    trainer.refuse_divergence()
    with torch.no_grad():
        trainer.learner.method.offset.weight[-1] = float("inf")
    with pytest.raises(DivergedError, match="weights became infinite or NaN"):
        trainer.refuse_divergence()
    with pytest.raises(DivergedError, match="weights became infinite or NaN"):
        list(run)


def test_a_task_ends_with_its_own_parameters_of_the_best_epoch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores = iter([0.1, 0.5, 0.2, 0.2])
    monkeypatch.setattr(Trainer, "_validation_score", lambda self, steps: next(scores))
    trainer, notes = trainer_for(tiny(path(Scaled), tasks=1))
    by_epoch: list[float] = []
    notes.at_epoch.append(lambda: by_epoch.append(trainer.learner.method.scale.item()))
    finish(trainer)
    assert trainer.learner.method.scale.item() == by_epoch[1] != by_epoch[3]


# Stopped and resumed

WAYS: dict[str, dict[str, Any]] = {
    "cosine": {"schedule": "cosine", "warm_up": 0.5},
    "steps": {"schedule": "steps", "rate_steps": (0.3, 0.6)},
    "onecycle": {"schedule": "onecycle", "nesterov": True},
    "constant": {"schedule": "constant", "clip": 0.1},
    "plateau": {"warm_up": 1.5, "plateau_patience": 0},
    "adamw": {"optimiser": "adamw", "learning_rate": 0.01, "clip": 1.0},
}
CASES = [("er", way) for way in WAYS] + [
    (path(method), way) for method in (Scaled, Grown, Grouped) for way in ("cosine", "adamw")
]


@pytest.mark.parametrize(("method", "way"), CASES)
def test_a_resumed_run_ends_as_if_it_had_not_been_stopped(
    tmp_path: Path, method: str, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = tiny(method, tasks=2, keep_scores=True, **WAYS[way])
    stream, places = shapes_stream(), []
    assert run(settings, tmp_path / "whole", stream=stream, on_step=lambda _, p: places.append(p))
    between = next(i for i, p in enumerate(places, 1) if not p.begun)
    within = next(i for i, p in enumerate(places, 1) if (p.task, p.epoch, p.step) == (1, 1, 2))
    for step in (3, between, within):
        folder = tmp_path / str(step)
        with pytest.raises(KeyboardInterrupt):
            run(settings, folder, stream=stream, on_step=interrupt_at(step + 1), save_every=0)
        assert resume(folder, stream=stream)
        assert outcome(folder) == outcome(tmp_path / "whole"), f"stopped after {step}"
    assert "cannot be restored" not in caplog.text


def test_a_module_that_a_fresh_method_has_not_is_refused_not_lost() -> None:
    trainer, _ = trainer_for(tiny(path(Late)), shapes_stream())
    for progress in trainer.steps():
        if progress.task == 1 and not progress.begun:
            break
    again, _ = trainer_for(trainer.settings, shapes_stream())
    with pytest.raises(
        PolarbearError, match=r"has offset.weight, and Late.*make its modules in __"
    ):
        restore(again, take_snapshot(trainer))


def test_a_checkpoint_of_an_earlier_version_has_its_momentum() -> None:
    """Earlier ones had SGD alone, its momentum in a group of that name."""
    trainer, _ = trainer_for(tiny("er"), shapes_stream())
    run = trainer.steps()
    for _ in range(5):
        next(run)
    taken = take_snapshot(trainer)
    assert all("/momentum_buffer/" in k for k in taken.tensors if k.startswith("optimiser/"))
    earlier = {
        k.replace("optimiser/momentum_buffer/", "momentum/"): t for k, t in taken.tensors.items()
    }
    assert any(name.startswith("momentum/backbone.") for name in earlier)
    again, _ = trainer_for(trainer.settings, shapes_stream())
    restore(again, type(taken)(earlier, taken.facts))
    assert same(take_snapshot(again).tensors, taken.tensors)


# Captured


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> list[CapturedSteps]:
    return fake_graphs.install(monkeypatch)


def epochs(folder: Path, method: str, **changes: Any) -> list[dict[str, Any]]:
    settings = tiny(method, **{"learning_rate": 0.1} | changes)
    assert run(settings, folder, stream=shapes_stream())
    lines = list(RunFolder(folder).lines("epochs"))
    return [{k: line[k] for k in ("task", "epoch", "loss", "rate", "valid")} for line in lines]


@pytest.mark.parametrize(("method", "way"), CASES)
def test_captured_steps_are_the_eager_ones(
    captured: list[CapturedSteps], tmp_path: Path, method: str, way: str
) -> None:
    fast = epochs(tmp_path / "fast", method, **WAYS[way])
    slow = epochs(tmp_path / "slow", method, graph=False, **WAYS[way])
    assert len(captured) == 3
    assert fast == [pytest.approx(line, rel=1e-4) for line in slow]


def test_captured_steps_look_for_a_rate_only_where_it_changes(
    captured: list[CapturedSteps], tmp_path: Path
) -> None:
    for schedule in ("plateau", "constant", "cosine"):
        epochs(tmp_path / schedule, "er", schedule=schedule, tasks=1)
    assert [steps.rates is None for steps in captured] == [True, True, False]


@pytest.mark.parametrize("way", ["cosine", "adamw"])
def test_captured_steps_go_on_where_they_were_stopped(
    captured: list[CapturedSteps], tmp_path: Path, way: str
) -> None:
    settings = tiny(path(Scaled), tasks=2, **WAYS[way])
    assert run(settings, tmp_path / "whole", stream=shapes_stream())
    with pytest.raises(KeyboardInterrupt):
        run(
            *(settings, tmp_path / "broken"),
            **{"stream": shapes_stream(), "on_step": interrupt_at(7), "save_every": 0},
        )
    assert resume(tmp_path / "broken", stream=shapes_stream())
    assert len(captured) > 2
    whole, broken = (list(RunFolder(tmp_path / n).lines("epochs")) for n in ("whole", "broken"))
    assert [line["loss"] for line in broken] == [line["loss"] for line in whole]


# Groups that are refused


def grouped(groups: Any) -> Trainer:
    trainer, _ = trainer_for(tiny("finetune"))
    model = trainer.learner.model
    trainer.learner.method.parameter_groups = lambda: groups(model)
    return trainer


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (lambda m: [], "has no trainable parameter: nothing would be learnt"),
        (lambda m: [{"rate": 2}], "has no trainable parameter"),
        (
            lambda m: [{"params": m.parameters(), "rat": 2}],
            "unknown key of a parameter group 'rat'",
        ),
        (lambda m: [{"params": m.parameters(), "lr": 2}], "Valid: params, rate, weight_decay"),
        (lambda m: [{"params": m.parameters(), "rate": -1}], "rate of a parameter group must be a"),
        (
            lambda m: [{"params": m.parameters(), "weight_decay": float("nan")}],
            "weight_decay of a parameter group must be a number from 0, not nan",
        ),
        (
            lambda m: [{"params": m.named_parameters()}],
            "must be nn.Parameters, such as .* not tuple",
        ),
        (lambda m: [{"params": nn.Linear(2, 2).parameters()}], "neither the model's nor the meth"),
        (lambda m: [{"params": m.parameters()}, {"params": m.head.weight}], "twice"),
    ],
)
def test_groups_that_cannot_be_are_refused(groups: Any, message: str) -> None:
    with pytest.raises(PolarbearError, match=message):
        grouped(groups).begin_task()


def test_frozen_parameters_of_a_group_are_left_out() -> None:
    trainer = grouped(lambda m: [{"params": m.parameters()}, {"params": []}])
    trainer.learner.model.head.requires_grad_(False)
    trainer.begin_task()
    (group,) = trainer.optimiser.param_groups
    assert len(group["params"]) == len(list(trainer.learner.model.backbone.parameters()))
