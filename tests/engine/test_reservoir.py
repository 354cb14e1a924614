"""A reservoir: Vitter's algorithm R against a plain twin, and what the engine makes of it."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engine_run import (
    AddsReference,
    Step,
    finish,
    row_stream,
    rows_of,
    same,
    tiny,
    trainer_for,
    watch_steps,
)
from engine_run import weights as weights_of
from polarbear.base.errors import PolarbearError
from polarbear.engine.contract.batch import Batch
from polarbear.engine.contract.check_class import check_class
from polarbear.engine.generator import generator_for
from polarbear.engine.task.reservoir import landing_slots
from polarbear.engine.trainer import Trainer

pytestmark = pytest.mark.usefixtures("one_thread")


class Reservoir(AddsReference):
    """ER on a batch of the task and one of a reservoir."""

    replay = "reference"
    selection = "reservoir"
    keep = "last"


class Notes(Reservoir):
    """The same, storing logits that nothing uses, and noting what it stored."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.given: list[tuple[list[int], Tensor]] = []

    def store(self, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        logits = self.model(images)
        if self.model.training:
            self.given.append((rows_of(images), logits))
        return {"logits": logits}


class Mixed(Reservoir):
    """A reservoir that cannot be."""

    replay = "mixed"


class MixedByOption(Reservoir):
    """The same, where only an object can tell."""

    replay = property(lambda self: "mixed")


def plain_reservoir(
    slots: list[Any], size: int, offered: int, images: list[Any], drawn: list[int]
) -> None:
    """Offer images one by one; the number each would draw is given."""
    for number, (image, place) in enumerate(zip(images, drawn, strict=True), start=offered):
        if number < size:
            slots.append(image)
        elif place < size:
            slots[place] = image


def drawn_numbers(count: int, offered: int, random: np.random.Generator) -> list[int]:
    return random.integers(0, offered + np.arange(count) + 1).tolist()


@given(
    st.integers(0, 10**6),
    st.integers(0, 60),
    st.integers(0, 60),
    st.integers(1, 25),
    st.integers(1, 9),
)
def test_landing_is_algorithm_r(seed: int, count: int, offered: int, size: int, step: int) -> None:
    slots: list[Any] = [-1 - i for i in range(min(offered, size))]
    ours = [*slots, *[None] * (size - len(slots)), None]
    landing = landing_slots(count, offered, size, step, np.random.default_rng(seed))
    for begin in range(0, count, step):
        kept = [p for p in landing[begin : begin + step].tolist() if p < size]
        assert len(set(kept)) == len(kept)  # a step writes no slot twice
    for image, place in enumerate(landing.tolist()):
        ours[place] = image
    drawn = drawn_numbers(count, offered, np.random.default_rng(seed))
    plain_reservoir(slots, size, offered, list(range(count)), drawn)
    assert ours[: len(slots)] == slots


def test_every_image_is_equally_likely_to_be_stored() -> None:
    runs, images, size = 4000, 40, 10
    stored = np.zeros(images)
    for seed in range(runs):
        slots = np.full(size + 1, -1)
        landing = landing_slots(images, 0, size, 7, np.random.default_rng(seed))
        for image, place in enumerate(landing):
            slots[place] = image
        stored[slots[:size]] += 1
    share, deviation = size / images, (0.25 * 0.75 / runs) ** 0.5
    assert np.abs(stored / runs - share).max() < 4.5 * deviation
    assert stored.sum() == runs * size


def twin(trainer: Trainer, steps: list[Step], size: int) -> list[list[tuple[int, int]]]:
    """What a plain reservoir holds before each step: (row, number of the step it came at)."""
    slots: list[tuple[int, int]] = []
    held, offered = [], 0
    drawn: list[int] = []
    for number, step in enumerate(steps):
        if step.step == 0:
            count = len(trainer.stream[step.task].train)
            random = generator_for(trainer.settings.seed, "reservoir", step.task, step.epoch)
            drawn = drawn_numbers(count, offered, random)
        held.append(list(slots))
        images = [(row, number) for row in step.rows]
        plain_reservoir(slots, size, offered, images, drawn[: len(images)])
        offered, drawn = offered + len(images), drawn[len(images) :]
    return [*held, slots]


@pytest.mark.parametrize("budget", [{"memory_total": 50}, {"memory_per_class": 2}])
def test_every_step_offers_its_images_and_draws_from_what_was_stored_before(
    budget: dict[str, int],
) -> None:
    size = budget.get("memory_total", 2 * len(row_stream().classes))
    trainer, _ = trainer_for(tiny("test_reservoir:Reservoir", **budget))
    steps = watch_steps(trainer)
    finish(trainer)
    *held, end = twin(trainer, steps, size)
    memory = trainer.learner.memory
    assert memory.rows.tolist() == [row for row, _ in end]
    assert len(memory) == size
    assert memory.offered == sum(len(step.rows) for step in steps)
    assert {steps[number].task for _, number in end} == {0, 1, 2}
    labels = {
        (task.index, int(row)): marks
        for task in trainer.stream
        for row, marks in zip(task.train.rows, task.train.targets, strict=True)
    }
    for before, step in zip(held, steps, strict=True):
        if not before:
            assert step.reference is None
            continue
        assert step.reference is not None
        assert step.reference.replayed.all()
        assert len(step.reference.rows) == min(32, len(before))
        left = list(before)
        for row, targets in zip(step.reference.rows, step.reference.targets > 0, strict=True):
            place = next(
                i
                for i, (r, n) in enumerate(left)
                if r == row and fits(labels, steps[n].task, r, targets)
            )
            left.pop(place)
    drawn = [tuple(step.reference.rows) for step in steps if step.reference]
    assert len(set(drawn)) == len(drawn)
    sizes = [len(step.reference.rows) if step.reference else 0 for step in steps]
    assert sizes[0] == 0 < sizes[1]


def fits(labels: dict[tuple[int, int], Any], task: int, row: int, targets: Tensor) -> bool:
    """Whether an image has the labels it came with, and none of later classes."""
    shown = labels[task, row]
    padded = np.zeros(len(targets), dtype=bool)
    padded[: len(shown)] = shown
    return padded.tolist() == targets.tolist()


def test_what_is_stored_is_what_the_network_gave_at_that_step() -> None:
    trainer, _ = trainer_for(tiny("test_reservoir:Notes", memory_total=50))
    steps = watch_steps(trainer)
    references: list[Batch] = []
    inner = trainer.learner.method.backward

    def backward(batch: Batch, reference: Batch | None) -> Tensor:
        if reference is not None:
            references.append(reference)
        return inner(batch, reference)

    trainer.learner.method.backward = backward  # type: ignore[method-assign]
    finish(trainer)
    *_, end = twin(trainer, steps, 50)
    memory, given = trainer.learner.memory, trainer.learner.method.given
    assert len(given) == len(steps)
    seen = len(trainer.stream[2].seen)
    assert memory.stored["logits"].shape == (50, seen)
    for (row, number), found in zip(end, memory.stored["logits"], strict=True):
        rows, logits = given[number]
        assert rows == steps[number].rows
        expected = logits[rows.index(row)].tolist()
        assert found.tolist() == expected + [0.0] * (seen - len(expected))
    values = {tuple(row) for _, logits in given for row in logits.tolist()}
    for reference in references:
        for logits in reference.stored["logits"].tolist():
            there = (len(logits), *(len(task.seen) for task in trainer.stream))
            assert any(tuple(logits[:width]) in values for width in there)


def test_to_store_changes_nothing_that_is_learnt() -> None:
    ends = []
    for method in ("Reservoir", "Notes"):
        trainer, _ = trainer_for(tiny(f"test_reservoir:{method}"))
        ends.append(weights_of(finish(trainer).learner.model))
    assert same(*ends)
    assert any("running_mean" in name for name in ends[0])


def test_the_logits_stored_are_those_of_the_step_itself_with_dropout_too() -> None:
    network = "engine_run:dropping_network"
    trainer, _ = trainer_for(tiny("test_reservoir:Notes", network=network, tasks=1, epochs=1))
    method, seen = trainer.learner.method, []
    inner = method.loss

    def loss(batch: Batch) -> Tensor:
        handle = method.model.register_forward_hook(lambda *given: seen.append(given[2].detach()))
        try:
            return inner(batch)
        finally:
            handle.remove()

    method.loss = loss  # type: ignore[method-assign]
    finish(trainer)
    stored = [logits for _, logits in method.given]
    of_tasks = [logits for logits in seen if any(torch.equal(logits, one) for one in stored)]
    assert len(of_tasks) == len(stored)


def test_a_reservoir_needs_images_beside_each_step() -> None:
    (found,) = [f for f in check_class(Mixed) if f.level == "error"]
    assert "replay = 'reference'" in found.message
    trainer, _ = trainer_for(tiny("test_reservoir:MixedByOption"))
    with pytest.raises(PolarbearError, match="needs replay = 'reference'"):
        finish(trainer)


def test_a_reservoir_has_an_end() -> None:
    trainer, _ = trainer_for(tiny("test_reservoir:Reservoir", memory_per_class=None))
    with pytest.raises(PolarbearError, match="give memory_total"):
        finish(trainer)
