"""The part of ``check_learner`` that trains, on a tiny stream."""

import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from polarbear.base.arrays import Bools
from polarbear.base.findings import Finding
from polarbear.benchmark.stream import Stream
from polarbear.data.shapes import shapes
from polarbear.engine.contract.method import Method
from polarbear.engine.task.epoch_plan import EpochPlan
from polarbear.engine.task.learner import Learner
from polarbear.engine.task.training_set import TrainingSet
from polarbear.engine.trainer import Trainer
from polarbear.launch import checkpoint
from polarbear.launch.assembly import assemble
from polarbear.launch.check.notes import Notes
from polarbear.launch.check.step import check_step
from polarbear.launch.prepare import threads
from polarbear.launch.snapshot import restore, take_snapshot
from polarbear.named.registry import find
from polarbear.score.decide import RawScores
from polarbear.score.record import EpochRecord
from polarbear.settings.settings import Settings

PLACES = ("in the first task", "in a later task")
WHOLE = "a whole batch"


class Answers:
    """A recorder that keeps what is predicted of test images after each task, and by what."""

    def __init__(self) -> None:
        """Begin with none."""
        self.after: dict[int, tuple[Bools, RawScores]] = {}

    def epoch(self, record: EpochRecord) -> None:
        """Pass over it."""

    def scores(self, record: Any) -> None:
        """Pass over it."""

    def answers(self, after: int, predictions: Bools, scores: RawScores) -> None:
        """Keep both."""
        self.after[after] = (predictions, scores)


def check_training(method: type[Method], options: Any = None) -> tuple[Finding, ...]:
    """Return what goes wrong when a method is trained."""
    notes = Notes(method)
    with threads(1):  # with so little work, several of them only wait for each other
        with notes.at("when it is made"):
            _check_constructor(method, options, notes)
        if not notes.places:
            for task, place in enumerate(PLACES[:1] if method.joint else PLACES):
                with notes.at(place):
                    _check_steps(_before_task(method, options, task), place, notes)
                if notes.has(f"{place}, {WHOLE}"):
                    break
        if not notes.places:
            with notes.at("when it goes on from a checkpoint"):
                _check_resume(method, options, notes)
    return notes.findings()


def _check_constructor(method: type[Method], options: Any, notes: Notes) -> None:
    learner = _learner(method, options)
    wanted = {"model": learner.model, "options": options}
    for name, value in wanted.items():
        if value is not None and getattr(learner.method, name, None) is not value:
            notes.add(
                f"self.{name} is not what the constructor was given: begin __init__(self, model, "
                "options=None) with super().__init__(model, options), and set things up in "
                "begin_task",
                "when it is made",
            )


def _check_steps(trainer: Trainer, place: str, notes: Notes) -> None:
    learner, where = trainer.learner, (trainer.progress.task, 0)
    for what, images in _few_images(trainer):
        with notes.at(f"{place}, {what}"):
            plan = EpochPlan.plan(learner, images, trainer.images.reference, where)
            batch, beside = next(iter(plan.batches()))
            for complaint in check_step(learner, batch, beside):
                notes.add(complaint, f"{place}, {what}")


def _few_images(trainer: Trainer) -> Iterator[tuple[str, TrainingSet]]:
    """Return images for a whole batch and for the smallest ones an epoch can end with."""
    images = trainer.images.training_set
    own, stored = np.flatnonzero(~images.replayed), np.flatnonzero(images.replayed)
    half = trainer.settings.batch_size // 2
    yield WHOLE, images.take(np.concatenate([own[-half:], stored[:half]]))
    yield "two images of the task", images.take(own[:2])
    yield "one image of the task", images.take(own[:1])
    if len(stored):
        yield "one image from memory", images.take(stored[:1])


def _check_resume(method: type[Method], options: Any, notes: Notes) -> None:
    """Compare runs that go on from checkpoints with the one that never stopped."""
    unbroken = Answers()
    trainer = _trainer(method, options, unbroken)
    with tempfile.TemporaryDirectory() as folder:
        saved = _save_on_the_way(trainer, Path(folder))
        for place, path in saved.items():
            resumed = Answers()
            again = _trainer(method, options, resumed)
            restore(again, next(checkpoint.from_newest(path))[1])
            for _ in again.steps():
                pass
            for after, found in resumed.after.items():
                if not all(map(np.array_equal, found, unbroken.after[after])):
                    notes.add(_FORGETS, place)
                    break


_FORGETS = (
    "a run that goes on from a checkpoint ends with other scores. A checkpoint holds the model, "
    "the teacher and the memory: what else the method must remember belongs into a buffer, "
    "self.register_buffer(name, tensor) in __init__, or must be worked out again in begin_task"
)


def _save_on_the_way(trainer: Trainer, folder: Path) -> dict[str, Path]:
    """Train to the end; give checkpoints of the middle of a task and of the time between two."""
    last = trainer.tasks - 1
    saved: dict[str, Path] = {}
    for progress in trainer.steps():
        if progress.task == max(last - 1, 0) and progress.step == 2:
            place = "stopped within a task"
        elif progress.task == last and not progress.begun:
            place = "stopped between tasks"
        else:
            continue
        if place not in saved:
            saved[place] = folder / str(len(saved))
            saved[place].mkdir()
            checkpoint.save(saved[place], 1, take_snapshot(trainer))
    return saved


def _before_task(method: type[Method], options: Any, task: int) -> Trainer:
    """Return a trainer with all made ready for the first step of a task."""
    trainer = _trainer(method, options, Answers())
    steps = trainer.steps()
    while trainer.progress.task < task:
        next(steps)
    trainer.begin_task()
    return trainer


def _trainer(method: type[Method], options: Any, answers: Answers) -> Trainer:
    return Trainer(_stream(method.joint), _learner(method, options), (answers,))


def _learner(method: type[Method], options: Any) -> Learner:
    settings = Settings(
        method=method.__name__,
        benchmark="iirc-shapes",
        epochs=1,
        first_task_factor=1,
        batch_size=24,
        learning_rate=0.1,
        network="small",
        memory_per_class=3,
        device="cpu",
        tasks=3,
    )
    return assemble(settings, _stream(method.joint), method, options)


@cache
def _stream(joint: bool) -> Stream:
    benchmark = find("iirc-shapes")
    schedule = benchmark.schedule(0)
    return Stream.from_source(
        shapes(train_per_leaf=10, test_per_leaf=2),
        benchmark.hierarchy(),
        schedule.joint() if joint else schedule,
    )
