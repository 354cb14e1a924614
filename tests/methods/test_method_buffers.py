"""A method's own tensors: buffers, and what methods had before there were any."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from engine_run import finish, row_stream, shapes_stream, tiny, trainer_for, watch_steps
from polarbear.engine.contract.batch import Batch, TaskContext
from polarbear.engine.trainer import Trainer
from polarbear.launch import checkpoint
from polarbear.launch.snapshot import restore, take_snapshot
from polarbear.methods.er import ER
from polarbear.methods.icarl_cnn import ICarlCNN

pytestmark = pytest.mark.usefixtures("one_thread")


class Counting(ER):
    """ER that counts images of every class in a buffer, which grows with the tasks."""

    def begin_task(self, context: TaskContext) -> None:
        before = getattr(self, "counts", torch.zeros(0))
        new = torch.zeros(context.seen - len(before))
        self.register_buffer("counts", torch.cat([before, new]))

    def loss(self, batch: Batch) -> Tensor:
        self.counts += batch.targets.sum(dim=0)
        return super().loss(batch)


class OldCounting(ER):
    """ER that counts its images as methods did before they had buffers."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.counts = torch.zeros(())

    def loss(self, batch: Batch) -> Tensor:
        self.counts += len(batch.images)
        return super().loss(batch)

    def state(self) -> dict[str, Tensor]:
        return {"counts": self.counts}

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.counts = state["counts"]


class WithNetwork(ER):
    """ER with a small network of its own, which no optimiser moves."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.extra = nn.Linear(2, 1, bias=False)
        nn.init.zeros_(self.extra.weight)

    def loss(self, batch: Batch) -> Tensor:
        with torch.no_grad():
            self.extra.weight += 1
        return super().loss(batch)


class Few(ER):
    """A method with five memory images beside each step."""

    replay = "reference"
    reference_batch_size = property(lambda self: 5)


def stopped(method: str, folder: Path, place: tuple[int, int]) -> Trainer:
    """Go to a place (task, step), and on from its checkpoint in a fresh trainer."""
    trainer, _ = trainer_for(tiny(f"test_method_buffers:{method}"), shapes_stream())
    for progress in trainer.steps():
        if (progress.task, progress.step) == place:
            break
    checkpoint.save(folder, 1, take_snapshot(trainer))
    again, _ = trainer_for(trainer.settings, shapes_stream())
    _, found = next(checkpoint.from_newest(folder))
    restore(again, found)
    return again


@pytest.mark.parametrize("place", [(1, 2), (1, 0)], ids=["within a task", "between tasks"])
@pytest.mark.parametrize("method", ["Counting", "OldCounting", "WithNetwork"])
def test_a_resumed_run_has_the_methods_tensors(
    tmp_path: Path, method: str, place: tuple[int, int]
) -> None:
    unbroken, _ = trainer_for(tiny(f"test_method_buffers:{method}"), shapes_stream())
    finish(unbroken)
    expected = unbroken.learner.method.state()
    found = finish(stopped(method, tmp_path, place)).learner.method.state()
    assert found.keys() == expected.keys() != set()
    for name, tensor in found.items():
        assert torch.equal(tensor, expected[name])
        assert tensor.any()


def test_a_checkpoint_has_them_under_their_names(tmp_path: Path) -> None:
    for method in ("Counting", "OldCounting"):
        trainer = stopped(method, tmp_path / method, (1, 2))
        names = [n for n in take_snapshot(trainer).tensors if n.startswith("method/")]
        assert names == ["method/counts"]


def test_a_checkpoint_without_a_buffer_leaves_the_buffer_alone() -> None:
    trainer, _ = trainer_for(tiny("test_method_buffers:Counting"))
    trainer.begin_task()
    trainer.learner.method.load_state({})
    assert trainer.learner.method.counts.tolist() == [0] * 6


def test_model_and_teacher_are_not_the_methods_own() -> None:
    trainer, _ = trainer_for(tiny("icarl-cnn", epochs=1, tasks=2))
    teachers = []
    watch_steps(trainer, also=lambda _: teachers.append(trainer.learner.method.teacher))
    finish(trainer)
    method = trainer.learner.method
    assert isinstance(method, ICarlCNN)
    assert any(teachers)
    method.teacher = teachers[-1]
    assert method.state() == {}
    assert not [*method.parameters()]


def test_a_method_says_how_many_memory_images_are_beside_a_step() -> None:
    trainer, _ = trainer_for(tiny("test_method_buffers:Few", epochs=1, tasks=2), row_stream())
    steps = watch_steps(trainer)
    finish(trainer)
    assert {len(step.reference.rows) for step in steps if step.reference} == {5}
