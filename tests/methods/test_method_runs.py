"""Whole small runs of methods: stopped, captured, and with a task that has no images."""

from dataclasses import replace
from pathlib import Path

import pytest

import fake_graphs
from engine_run import (
    assert_stops_leave_no_trace,
    finish,
    losses_with_and_without_graphs,
    shapes_stream,
    tiny,
    trainer_for,
)
from polarbear.benchmark.schedule import Schedule
from polarbear.launch.check.learner import check_learner
from polarbear.methods.registry import make_options, resolve

pytestmark = pytest.mark.usefixtures("one_thread")

RUN_HERE = ("ewc", "si", "mas", "rwalk", "gem", "gdumb", "hcv", "mtkd")

every_method = pytest.mark.parametrize("method", RUN_HERE)

#: An interval that ends within a task of a few steps.
OPTIONS = {"rwalk": {"interval": 3}}


def test_the_check_finds_nothing_in_rwalk() -> None:
    assert check_learner(resolve("rwalk"), make_options(resolve("rwalk"), OPTIONS["rwalk"])) == ()


@every_method
def test_stopped_anywhere_a_run_ends_as_if_it_had_not_been(tmp_path: Path, method: str) -> None:
    options = OPTIONS.get(method, {})
    settings = tiny(method, epochs=1, batch_size=64, keep_scores=True, options=options)
    assert_stops_leave_no_trace(settings, tmp_path, lambda steps: range(1, steps + 1, 3))


@every_method
def test_captured_steps_are_the_eager_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, method: str
) -> None:
    captured = fake_graphs.install(monkeypatch)
    changes = {"learning_rate": 0.05, "options": OPTIONS.get(method, {})}
    fast, slow = losses_with_and_without_graphs(tmp_path, method, **changes)
    assert len(captured) == 3
    assert fast == pytest.approx(slow, rel=1e-3)


@pytest.mark.parametrize("method", [*RUN_HERE, "eeil", "il2m"])
def test_a_task_without_images_passes(method: str) -> None:
    # With one image a leaf, a superclass's share is none.
    stream = replace(
        shapes_stream(1, 1), schedule=Schedule.of([["spiral", "cloud"], ["circle"], ["moon"]])
    )
    trainer, notes = trainer_for(tiny(method), stream)
    finish(trainer)
    assert len(notes.lines) == 6
