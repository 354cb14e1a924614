"""What a method may have beside a loss: later phases, networks, numbers and a context."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fake_graphs
from engine_run import (
    AddsReference,
    finish,
    interrupt_at,
    outcome,
    row_stream,
    rows_of,
    same,
    shapes_stream,
    tiny,
    trainer_for,
    weights,
)
from polarbear.base.errors import PolarbearError
from polarbear.engine.contract.batch import Batch, TaskContext
from polarbear.engine.contract.method import Method, bce, frozen_copy
from polarbear.engine.contract.phase import Phase
from polarbear.engine.steps.captured import CapturedSteps
from polarbear.engine.task.phase_images import main_images
from polarbear.launch.runner import resume, run
from polarbear.launch.snapshot import take_snapshot
from polarbear.methods.er import ER
from polarbear.methods.registry import resolve
from polarbear.runs.folder import RunFolder

pytestmark = pytest.mark.usefixtures("one_thread")


class Refit(ER):
    """ER that holds images out, refits its head on a balanced set and then on what it held out."""

    selection = "herding"
    held_out = 1

    def phases(self) -> tuple[Phase, ...]:
        if self.context.task == 0:
            return ()
        head = list(self.model.head.parameters())
        return (
            Phase("refit", 2, 0.05, parameters=head, evaluation=True),
            Phase("correct", 1, 0.01, on="held_out", loss=self.halved),
        )

    def halved(self, batch: Batch) -> Tensor:
        return bce(self.model(batch.images), batch.targets) / 2


class PhaseAlone(ER):
    """ER whose later tasks have a phase of its own and no main one."""

    def trains_in(self, task: int) -> bool:
        return task == 0

    def phases(self) -> tuple[Phase, ...]:
        return (Phase("own", 1, 0.1, on="all"),) if self.context.task else ()


class Witnessed(ER):
    """ER that keeps its network of every task and logs how far it has moved from the first."""

    def begin_task(self, context: TaskContext) -> None:
        self.log("task", context.task)

    def end_task(self) -> None:
        self.networks[f"task {self.context.task}"] = frozen_copy(self.model)

    def loss(self, batch: Batch) -> Tensor:
        loss = super().loss(batch)
        if "task 0" in self.networks:
            then = self.networks["task 0"].features(batch.images)
            self.log("moved", (self.model.features(batch.images) - then).square().mean())
        self.log("double", 2 * loss)
        return loss


class Later(ER):
    """ER whose loss grows with the epoch and the step."""

    def loss(self, batch: Batch) -> Tensor:
        return super().loss(batch) * (1 + self.context.epoch + 0.1 * self.context.step)


class KeepsBest(Method):
    """Best weights of the main phase, then phases of the head and of a scale of its own."""

    replay = "mixed"

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.scale = nn.Parameter(torch.ones(1), requires_grad=False)

    def loss(self, batch: Batch) -> Tensor:
        return bce(self.model(batch.images) * self.scale, batch.targets)

    def phases(self) -> tuple[Phase, ...]:
        return (
            Phase("head", 1, 0.3, on="all", parameters=self.model.head.parameters()),
            Phase("scale", 1, 0.3, on="task", parameters=[self.scale]),
        )


class Remembers(ER):
    """Counts tasks in place, keeps the network it finds, has a phase from its second task on."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.register_buffer("tasks", torch.zeros(()))

    def begin_task(self, context: TaskContext) -> None:
        self.tasks += 1
        self.networks["before"] = frozen_copy(self.model)

    def loss(self, batch: Batch) -> Tensor:
        before = self.networks["before"].features(batch.images)
        drift = (self.model.features(batch.images) - before).square().mean()
        return super().loss(batch) + self.tasks * drift

    def phases(self) -> tuple[Phase, ...]:
        return (Phase("more", 1, 0.05, on="task"),) if self.tasks > 1 else ()


class Averaged(ER):
    """ER with a running mean of its network, which its loss moves."""

    def begin_task(self, context: TaskContext) -> None:
        self.networks.setdefault("mean", frozen_copy(self.model)).head.grow(context.seen)

    def loss(self, batch: Batch) -> Tensor:
        mean = self.networks["mean"]
        with torch.no_grad():
            pairs = zip(mean.parameters(), self.model.parameters(), strict=True)
            for kept, now in pairs:
                kept.lerp_(now, 0.3)
        drift = (self.model.features(batch.images) - mean.features(batch.images)).square().mean()
        return super().loss(batch) + drift


class Reservoir(AddsReference):
    """A reservoir with logits beside its images, and phases on what it has."""

    replay = "reference"
    selection = "reservoir"

    def store(self, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        return {"logits": self.model(images)}

    def loss(self, batch: Batch) -> Tensor:
        return super().loss(batch) + 0.1 * batch.stored["logits"].mean()

    def phases(self) -> tuple[Phase, ...]:
        return (Phase("balanced", 1, 0.05), Phase("task", 1, 0.05, on="task"))


class SelfTaught(ER):
    """ER with a phase that holds features where they were when it began."""

    def phases(self) -> tuple[Phase, ...]:
        if self.context.task == 0:
            return ()
        return (Phase("held", 2, 0.3, loss=self.held, begin=self.look_back),)

    def look_back(self) -> None:
        self.teacher = frozen_copy(self.model)

    def held(self, batch: Batch) -> Tensor:
        before = self.teacher.features(batch.images)
        drift = (self.model.features(batch.images) - before).square().mean()
        return bce(self.model(batch.images), batch.targets) + drift


class OnMemory(ER):
    """ER with a phase on a memory that the first task does not have."""

    def phases(self) -> tuple[Phase, ...]:
        return (Phase("again", 1, 0.1, on="memory"),)


LATER = ("KeepsBest", "Remembers", "Averaged", "Reservoir", "SelfTaught")


@pytest.mark.parametrize("method", ["Refit", "Witnessed", "Later", *LATER])
def test_stopped_at_any_step_a_run_ends_as_if_it_had_not_been(tmp_path: Path, method: str) -> None:
    settings = tiny(f"test_phases:{method}", tasks=3, epochs=1, batch_size=64, keep_scores=True)
    steps: list[object] = []
    more = {"stream": shapes_stream(), "save_every": 0}
    assert run(settings, tmp_path / "whole", on_step=lambda *a: steps.append(a), **more)
    whole = outcome(tmp_path / "whole")
    for step in range(1, len(steps) + 1):
        folder = tmp_path / f"{step}"
        with pytest.raises(KeyboardInterrupt):
            run(settings, folder, on_step=interrupt_at(step), **more)
        assert resume(folder, **more)
        assert outcome(folder) == whole, f"stopped after {step} of {len(steps)}"


@pytest.mark.parametrize("method", ["Refit", "Witnessed", "Later", *LATER])
def test_captured_steps_are_the_eager_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, method: str
) -> None:
    captured: list[CapturedSteps] = fake_graphs.install(monkeypatch)
    lines = {}
    for graph in (True, False):
        folder = tmp_path / str(graph)
        settings = tiny(f"test_phases:{method}", learning_rate=0.1, graph=graph)
        assert run(settings, folder, stream=shapes_stream())
        lines[graph] = [
            {"loss": line["loss"], "valid": line["valid"], **line.get("own", {})}
            for line in RunFolder(folder).lines("epochs")
        ]
    phases = {"Refit": 7, "KeepsBest": 9, "Remembers": 5, "Reservoir": 9, "SelfTaught": 5}
    assert len(captured) == phases.get(method, 3)
    assert lines[True] == [pytest.approx(line, rel=1e-4) for line in lines[False]]


def test_a_phase_trains_its_own_weights_on_its_own_images() -> None:
    trainer, notes = trainer_for(tiny("test_phases:Refit", tasks=2, memory_per_class=4))
    seen: list[tuple[int, list[int], dict[str, Tensor]]] = []
    inner = Phase.backward

    def backward(phase: Phase, own: object, batch: Batch, beside: Batch | None) -> Tensor:
        weights = {n: p.detach().clone() for n, p in trainer.learner.model.named_parameters()}
        buffers = {n: b.detach().clone() for n, b in trainer.learner.model.named_buffers()}
        seen.append((trainer.progress.phase, rows_of(batch.images), weights | buffers))
        return inner(phase, own, batch, beside)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Phase, "backward", backward)
        steps = trainer.steps()
        while trainer.progress.task == 0:
            next(steps)
        stored = trainer.learner.memory
        seen.clear()
        finish(trainer)
    task = trainer.stream[1]
    rows = {p: {r for phase, some, _ in seen if phase == p for r in some} for p in range(3)}
    own = {int(r) for r in task.train.rows}
    assert rows[0].isdisjoint(rows[2])
    assert rows[0] | rows[2] == own | {int(r) for r in stored.rows}
    # One image of each class: the new ones' and, of the stored, the last of its list.
    assert len(rows[2]) == len(task.seen)
    assert {int(one.rows[-1]) for one in stored.lists} <= rows[2]
    balanced = sum(len(some) for phase, some, _ in seen if phase == 1)
    assert balanced == 2 * 4 * len(task.seen)  # two epochs
    assert {int(r) for r in stored.rows} <= rows[1]
    in_refit = [weights for phase, _, weights in seen if phase == 1]
    changed = {n for n in in_refit[0] if not torch.equal(in_refit[0][n], in_refit[-1][n])}
    assert changed == {"head.weight", "head.bias"}
    assert [(r.phase, r.rate) for r in notes.epochs if r.task == 1] == [
        ("", 0.3),
        ("", 0.3),
        ("refit", 0.05),
        ("refit", 0.05),
        ("correct", 0.01),
    ]
    assert all(p.requires_grad for p in trainer.learner.model.parameters())


def test_a_phase_begins_once_with_the_weights_that_the_one_before_left() -> None:
    trainer, _ = trainer_for(tiny("test_phases:SelfTaught", tasks=2), shapes_stream())
    method, left, begun = trainer.learner.method, {}, []
    inner = method.look_back

    def look_back() -> None:
        inner()
        begun.append((trainer.progress.task, trainer.progress.phase, trainer.progress.step))

    method.look_back = look_back
    for progress in trainer.steps():
        if progress.begun and progress.phase == 0:
            left = {name: tensor.clone() for name, tensor in trainer.best.items()}
        if progress.begun and progress.phase == 1:
            assert same(weights(method.teacher), left)
            assert not same(weights(trainer.learner.model), left)
    assert begun == [(1, 1, 0)]
    assert method.teacher is None


class PartHeldOut(Refit):
    """Refit that holds out a part of what memory has of each class."""

    held_out = 0.3


@pytest.mark.parametrize(("stored", "held"), [(10, 3), (9, 2), (2, 1)])
def test_a_part_of_memory_is_held_out_and_as_many_images_of_new_classes(
    stored: int, held: int
) -> None:
    settings = tiny("test_phases:PartHeldOut", tasks=2, memory_per_class=stored)
    trainer, notes = trainer_for(settings)
    rows = {}
    for progress in trainer.steps():
        if progress.begun and progress.task == 1 and progress.phase == 0:
            main = main_images(trainer.learner, trainer.stream, 1).training_set.rows
            memory = trainer.learner.memory.rows
            rows = {"all": [*trainer.stream[1].train.rows, *memory], "main": main.tolist()}
    images = {r.phase: r.images for r in notes.epochs if r.task == 1}
    assert images["correct"] == held * len(trainer.stream[1].seen)
    assert images[""] == len(rows["main"])
    # An image that is there twice, with the labels of two tasks, is held out of both.
    assert all(rows["all"].count(row) == rows["main"].count(row) for row in rows["main"])
    out = [row for row in rows["all"] if row not in rows["main"]]
    assert len(set(out)) <= images["correct"] <= len(out) == len(rows["all"]) - len(rows["main"])


@pytest.mark.parametrize("method", ["PartHeldOut", "Refit"])
def test_a_memory_of_one_image_a_class_holds_nothing_out(
    caplog: pytest.LogCaptureFixture, method: str
) -> None:
    trainer, notes = trainer_for(tiny(f"test_phases:{method}", tasks=2, memory_per_class=1))
    finish(trainer)
    images = {r.phase: r.images for r in notes.epochs if r.task == 1}
    assert images[""] == len(trainer.stream[1].train) + len(trainer.stream[0].seen)
    assert "correct" not in images
    assert "task 1 goes without the phase 'correct': memory has one image of each" in caplog.text


class HoldsOutOneAndAHalf(Refit):
    """Refit with a number of images that is neither whole nor a part."""

    held_out = 1.5


def test_a_number_of_images_held_out_is_whole_or_a_part() -> None:
    with pytest.raises(PolarbearError, match=r"held_out must be a whole number.*not 1.5"):
        resolve("test_phases:HoldsOutOneAndAHalf")


def test_a_later_phase_ends_with_its_last_weights_and_leaves_the_frozen_frozen() -> None:
    trainer, _ = trainer_for(tiny("test_phases:KeepsBest", tasks=1), shapes_stream())
    heads = {}
    for progress in trainer.steps():
        if progress.begun:
            heads[progress.phase] = trainer.learner.model.head.weight.detach().clone()
    assert not torch.equal(heads[1], heads[0])
    assert torch.equal(trainer.learner.model.head.weight, heads[1])
    scale = trainer.learner.method.scale
    assert float(scale.detach()) != 1
    assert not scale.requires_grad


def test_a_network_is_kept_under_a_name(tmp_path: Path) -> None:
    trainer, _ = trainer_for(tiny("er", tasks=1), shapes_stream())
    trainer.begin_task()
    trainer.learner.method.networks[0] = frozen_copy(trainer.learner.model)
    with pytest.raises(PolarbearError, match="ER keeps a network under 0: its name must be"):
        take_snapshot(trainer)


def test_a_phase_without_images_is_refused() -> None:
    trainer, _ = trainer_for(tiny("test_phases:OnMemory", tasks=1))
    with pytest.raises(PolarbearError, match="phase 'again' of OnMemory has no images"):
        finish(trainer)


@pytest.mark.parametrize("values", [{"epochs": 0}, {"learning_rate": 0.0}])
def test_a_phase_that_trains_nothing_is_refused(values: dict[str, float]) -> None:
    with pytest.raises(PolarbearError, match="the phase 'refit'"):
        Phase("refit", **{"epochs": 1, "learning_rate": 0.1} | values)


def test_logged_numbers_are_means_over_an_epoch() -> None:
    trainer, notes = trainer_for(tiny("test_phases:Witnessed", tasks=2), shapes_stream())
    finish(trainer)
    for record in notes.epochs:
        assert record.own["double"] == pytest.approx(2 * record.loss, rel=1e-5)
        assert ("moved" in record.own) == (record.task == 1)
        assert record.own.get("task") == (record.task if record.epoch == 0 else None)
    assert "own" in notes.epochs[0].to_json()


def test_networks_of_a_method_stay_as_they_were(tmp_path: Path) -> None:
    trainer, _ = trainer_for(tiny("test_phases:Witnessed"), shapes_stream())
    finish(trainer)
    networks = trainer.learner.method.networks
    assert [network.head.seen for network in networks.values()] == [
        len(trainer.stream[task].seen) for task in (0, 1, 2)
    ]
    assert not any(isinstance(part, nn.Module) for part in trainer.learner.method.children())
    features = [network(torch.zeros(1, 3, 16, 16)) for network in networks.values()]
    assert not torch.equal(features[0], features[1][:, : features[0].shape[1]])


def test_the_context_says_where_a_learner_stands() -> None:
    trainer, _ = trainer_for(tiny("er"))
    steps = trainer.steps()
    while trainer.progress.task == 0:
        next(steps)
    memory = trainer.learner.memory
    next(steps)
    context, task = trainer.learner.method.context, trainer.stream[1]
    assert (context.classes, context.settings) == (task.seen, trainer.settings)
    images = trainer.images.training_set
    assert context.class_counts.tolist() == images.targets.sum(axis=0).tolist()
    expected = {"task": task.train.rows, "memory": memory.rows, "valid": task.valid.rows}
    for which, rows in expected.items():
        batches = list(context.batches(which))
        assert [r for batch in batches for r in rows_of(batch.images)] == rows.tolist()
        assert all(bool(b.replayed.all()) == (which == "memory") for b in batches)
        targets = np.concatenate([batch.targets.numpy() for batch in batches])
        assert targets.shape == (len(rows), len(task.seen))
        assert targets.sum() >= len(rows)


def test_the_hierarchy_is_not_in_the_context() -> None:
    trainer, _ = trainer_for(tiny("er"), row_stream())
    trainer.begin_task()
    context = trainer.learner.method.context
    assert not any("hierarchy" in name for name in vars(context))


def test_a_task_may_have_no_main_phase(tmp_path: Path) -> None:
    settings = tiny(f"{__name__}:PhaseAlone", tasks=2)
    more: dict[str, Any] = {"stream": shapes_stream(), "save_every": 0}
    assert run(settings, tmp_path / "whole", **more)
    lines = RunFolder(tmp_path / "whole").lines("epochs")
    found = [(line["task"], line.get("phase", ""), line["epoch"]) for line in lines]
    assert found == [*((0, "", epoch) for epoch in range(4)), (1, "own", 0)]
    steps = len(shapes_stream()[0].train) // 32 * 4
    with pytest.raises(KeyboardInterrupt):
        run(settings, tmp_path / "part", on_step=interrupt_at(steps + 12), **more)
    assert resume(tmp_path / "part", **more)
    assert outcome(tmp_path / "part") == outcome(tmp_path / "whole")
