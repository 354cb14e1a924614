"""The rate of every step, against PyTorch's own schedulers stepped after every step."""

import logging
from collections.abc import Iterator
from itertools import count, repeat
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim import lr_scheduler

from engine_run import finish, row_stream, shapes_stream, tiny, trainer_for, watch_steps
from polarbear.engine.task.schedule import TaskRates
from polarbear.engine.trainer import Trainer
from polarbear.settings.settings import Settings

RATE = 0.3
some_epochs, some_steps = st.integers(1, 12), st.integers(1, 9)


def ours(of_epochs: int, of_steps: int, **changes: Any) -> list[float]:
    settings = Settings("er", learning_rate=RATE, epochs=of_epochs, first_task_factor=1, **changes)
    rates = TaskRates(settings, of_epochs, of_steps)
    found = [rates.of_epoch(epoch, RATE) for epoch in range(of_epochs)]
    assert [len(one) for one in found] == [of_steps] * of_epochs
    return np.concatenate(found).tolist()


def optimiser() -> torch.optim.SGD:
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=RATE)


def theirs(schedule: Any, count: int) -> list[float]:
    found = []
    for _ in range(count):
        found.append(schedule.optimizer.param_groups[0]["lr"])
        schedule.optimizer.step()
        schedule.step()
    return found


# The first optimiser of a process takes seconds to import.
@given(some_epochs, some_steps)
def test_cosine(e: int, s: int) -> None:
    expected = theirs(lr_scheduler.CosineAnnealingLR(optimiser(), T_max=e * s), e * s)
    assert ours(e, s, schedule="cosine") == pytest.approx(expected, abs=1e-12)


@given(some_epochs, some_steps, st.sampled_from([(0.5, 0.75), (0.3,), (0.1, 0.2, 0.9)]))
def test_steps(e: int, s: int, parts: tuple[float, ...]) -> None:
    at = [round(part * (e * s)) for part in parts]
    expected = theirs(lr_scheduler.MultiStepLR(optimiser(), at, gamma=0.2), e * s)
    found = ours(e, s, schedule="steps", rate_steps=parts, rate_factor=0.2)
    if min(at):  # theirs does not fall before the first step
        assert found == pytest.approx(expected)


@given(some_epochs, some_steps)
def test_one_cycle(e: int, s: int) -> None:
    one = lr_scheduler.OneCycleLR(optimiser(), RATE, total_steps=e * s, cycle_momentum=False)
    found = ours(e, s, schedule="onecycle")
    assert found[:-1] == pytest.approx(theirs(one, e * s - 1))
    assert found[-1] == pytest.approx(RATE / 25 / 1e4)


@given(some_epochs, some_steps, st.sampled_from([0.5, 1, 1.5, 2.0]))
def test_warm_up_comes_before_the_schedule(e: int, s: int, warm_up: float) -> None:
    rising = round(min(warm_up, e) * s)
    if not 0 < rising < e * s:
        return
    one = optimiser()
    up = lr_scheduler.LinearLR(one, 1 / rising, total_iters=max(rising - 1, 1))
    down = lr_scheduler.CosineAnnealingLR(one, T_max=e * s - rising)
    both = lr_scheduler.SequentialLR(one, [up, down], milestones=[rising])
    found = ours(e, s, schedule="cosine", warm_up=min(warm_up, e))
    assert found == pytest.approx(theirs(both, e * s), abs=1e-12)


def test_a_task_may_be_all_warm_up() -> None:
    assert ours(1, 4, schedule="cosine", warm_up=1) == pytest.approx([0.075, 0.15, 0.225, 0.3])


@pytest.mark.parametrize("schedule", ["plateau", "constant"])
def test_without_warm_up_these_two_have_one_rate_exactly(schedule: str) -> None:
    for highest in (RATE, 0.1 * RATE):
        rates = TaskRates(Settings("er", schedule=schedule), epochs=3, steps=5)
        assert not rates.change_by_the_step
        assert rates.of_epoch(2, highest).tolist() == [highest] * 5


@pytest.mark.parametrize(
    "changes",
    [{"schedule": "cosine"}, {"schedule": "steps"}, {"schedule": "onecycle"}, {"warm_up": 1}],
)
def test_these_change_by_the_step(changes: dict[str, Any]) -> None:
    assert TaskRates(Settings("er", **changes), epochs=3, steps=5).change_by_the_step


def used(**changes: Any) -> tuple[list[dict[str, Any]], list[tuple[int, int, float]]]:
    """Records of epochs, and the rate of every step with its task and its epoch."""
    trainer, notes = trainer_for(tiny("finetune", tasks=2, **changes))
    found: list[tuple[int, int, float]] = []

    def note(_: object) -> None:
        p = trainer.progress
        rate = trainer.optimiser.param_groups[0]["lr"]
        assert rate == pytest.approx(trainer.rate)
        found.append((p.task, p.epoch, rate))

    watch_steps(trainer, also=note)
    finish(trainer)
    return notes.epochs, found


def test_every_step_of_a_task_has_its_rate() -> None:
    records, found = used(schedule="cosine", warm_up=1)
    for task, of_epochs in ((0, 4), (1, 2)):
        rates = [rate for of_task, _, rate in found if of_task == task]
        steps = -(-len(row_stream()[task].train) // 32)
        assert rates == pytest.approx(ours(of_epochs, steps, schedule="cosine", warm_up=1))
    # A record has the rate that its epoch ended with.
    last = {(task, epoch): rate for task, epoch, rate in found}
    assert [r.rate for r in records] == pytest.approx(list(last.values()))
    assert len(set(last.values())) > 1


def test_a_plateau_falls_after_its_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Trainer, "_validation_score", lambda *_: 0.5)
    records, found = used(warm_up=0.5, plateau_patience=0)
    assert [r.rate for r in records] == pytest.approx([0.3, 0.3, 0.03, 0.003, 0.3, 0.3])
    assert found[0][2] < 0.3


@pytest.mark.parametrize("schedule", ["cosine", "steps", "onecycle", "constant"])
def test_other_schedules_do_not_ask_validation(
    schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rates(scores: Iterator[int]) -> list[float]:
        monkeypatch.setattr(Trainer, "_validation_score", lambda *_: float(next(scores)))
        return [rate for _, _, rate in used(schedule=schedule, plateau_patience=0)[1]]

    assert rates(count()) == rates(repeat(0))


def test_without_validation_images_a_plateau_leaves_the_rate_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stream = shapes_stream(5)
    assert not any(len(task.valid) for task in stream)
    settings = tiny("finetune", epochs=3, tasks=2, plateau_patience=0)
    trainer, notes = trainer_for(settings, stream)
    with caplog.at_level(logging.WARNING, "polarbear"):
        finish(trainer)
    assert {record.rate for record in notes.epochs} == {0.3}
    (message,) = caplog.messages
    assert message.startswith("task 0 has no validation images, so the schedule plateau leaves")


def test_with_validation_images_or_another_schedule_nothing_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "polarbear"):
        finish(trainer_for(tiny("finetune", tasks=1, epochs=1))[0])
        finish(trainer_for(tiny("finetune", tasks=1, schedule="cosine"), shapes_stream(5))[0])
    assert not caplog.messages
