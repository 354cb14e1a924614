"""The loop over tasks, epochs and steps."""

import logging
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import nn

from polarbear.base.arrays import Floats
from polarbear.base.errors import PolarbearError
from polarbear.benchmark.stream import Stream
from polarbear.engine.contract.method import frozen_copy
from polarbear.engine.contract.phase import Phase
from polarbear.engine.evaluation import Evaluation
from polarbear.engine.images.task_pixels import TaskPixels
from polarbear.engine.nets.model import weights_are_finite
from polarbear.engine.recorder import Recorder
from polarbear.engine.steps.choice import StepsChoice
from polarbear.engine.steps.steps import Steps
from polarbear.engine.task.best_weights import Weights, copied, put_back, weights_of
from polarbear.engine.task.context import context_of
from polarbear.engine.task.epoch_plan import EpochPlan
from polarbear.engine.task.learner import Learner
from polarbear.engine.task.optimiser import build_optimiser
from polarbear.engine.task.phase_images import later_phases, main_images, phase_set, task_rows
from polarbear.engine.task.plateau import Plateau
from polarbear.engine.task.schedule import TaskRates
from polarbear.engine.task.training_set import TaskImages, TrainingSet
from polarbear.score.record import EpochRecord
from polarbear.score.table import mean

log = logging.getLogger("polarbear")


class DivergedError(PolarbearError):
    """A loss that is no number any more."""


@dataclass(frozen=True)
class Progress:
    """Where a run stands: before step ``step`` of epoch ``epoch`` of task ``task``.

    ``begun`` tells whether the task has been made ready; phase 0 is its main one.
    """

    task: int = 0
    begun: bool = False
    phase: int = 0
    epoch: int = 0
    step: int = 0
    plateau: Plateau = field(default_factory=lambda: Plateau(0.0))
    best_score: float = -math.inf


class Trainer:
    """Takes a learner through a stream.

    :meth:`steps` yields after every step and every task, so that a caller can save, show progress
    or stop there. Everything random comes by key from the seed and the place in the stream.
    """

    def __init__(self, stream: Stream, learner: Learner, recorders: tuple[Recorder, ...]) -> None:
        """Stand before the first task."""
        self.stream, self.learner, self.recorders = stream, learner, recorders
        self.settings = learner.settings
        self.progress = Progress()
        self.best: Weights = {}
        self.losses: Floats = np.empty(0)  # of the epoch's steps before a checkpoint was taken
        self.optimiser: torch.optim.Optimizer
        self.images: TaskImages
        self.phases: tuple[Phase, ...]
        self.learning: list[nn.Parameter]
        self.task_steps: Steps | None = None
        self.evaluation = Evaluation(stream, learner)
        self._told = False
        self._planned: dict[int, EpochPlan] = {}
        self._choice = StepsChoice(learner)

    @property
    def tasks(self) -> int:
        """Tasks this run goes through."""
        return min(len(self.stream), self.settings.tasks or len(self.stream))

    def steps(self) -> Iterator[Progress]:
        """Train from where the run stands to its end."""
        while self.progress.task < self.tasks:
            if not self.progress.begun:
                self.begin_task()
            while self.progress.phase < len(self.phases):
                while self.progress.epoch < self.phase.epochs:
                    yield from self._train_epoch()
                self._finish_phase()
            self._finish_task()
            yield self.progress

    @property
    def phase(self) -> Phase:
        """The phase the run stands in."""
        return self.phases[self.progress.phase]

    def begin_task(self) -> None:
        """Make model, method and optimiser ready for the task the run stands before."""
        method, model = self.learner.method, self.learner.model
        task = self.stream[self.progress.task]
        if method.wants_teacher and task.index > 0:
            method.teacher = frozen_copy(model)
        model.head.grow(len(task.seen))  # type: ignore[operator]
        self.best = {}
        rate = self.settings.learning_rate
        self.progress = Progress(task=task.index, begun=True, plateau=Plateau(rate))
        self.prepare_method()
        self.prepare_phase()

    def prepare_method(self) -> None:
        """Tell the method where it stands, and gather the task's images."""
        learner, task = self.learner, self.progress.task
        method, device = learner.method, learner.machine.device
        learner.machine.place(learner.model)
        method.to(device)
        self.images = main_images(learner, self.stream, task)
        method.context = context_of(learner, self.stream[task], self.images)
        method.begin_task(method.context)
        method.to(device)  # buffers that it has only now
        trained = [*learner.model.parameters(), *method.parameters()]
        self.learning = [parameter for parameter in trained if parameter.requires_grad]
        self.ask_for_phases()

    def ask_for_phases(self) -> None:
        """Put the task's main phase before those that the method wants."""
        settings, method, task = self.settings, self.learner.method, self.progress.task
        epochs = settings.epochs_of(task) if method.trains_in(task) else 0
        main = Phase("", epochs, settings.learning_rate, on="all", schedule=settings.schedule)
        self.phases = (main, *later_phases(self.learner, task))

    def prepare_phase(self, training_set: TrainingSet | None = None) -> None:
        """Gather a later phase's images, unless they are given, and start a fresh optimiser."""
        phase, learner, task = self.phase, self.learner, self.progress.task
        method = learner.method
        if self.progress.phase == 0:
            learner.open_reservoir(self.stream[task], len(self.stream.classes))
            if learner.reservoir is not None:  # steps draw from its slots, which are there only now
                self.images = main_images(learner, self.stream, task)
        else:
            if training_set is None:
                training_set = phase_set(learner, self.stream, task, phase)
            self.images = replace(self.images, training_set=training_set, reference=None)
        groups = method.parameter_groups()
        if phase.parameters is not None:
            groups = [{"params": phase.parameters}]
            for parameter in self.learning:
                parameter.requires_grad_(False)
            for parameter in phase.parameters:
                parameter.requires_grad_(True)
        device = learner.machine.device
        self.optimiser = build_optimiser(method, groups, self.settings, device)
        self._planned = {}
        self._tell_of_no_plateau()

    def _finish_phase(self) -> None:
        """Leave a phase with the weights that are kept of it, and make the next one ready."""
        if self.task_steps is not None:
            self.task_steps.close()
            self.task_steps = None
        if self.best and self.progress.phase == 0:
            put_back(self.learner, self.best)
        self.best = {}  # a later phase ends with its last weights
        for parameter in self.phase.parameters or ():
            parameter.requires_grad_(False)  # as it was, if it is not among those that learn
        for parameter in self.learning:
            parameter.requires_grad_(True)
        if self.progress.phase == 0:
            self.learner.close_reservoir(self.phase.epochs * len(self.images.training_set))
        number = self.progress.phase + 1
        self.progress = Progress(self.progress.task, begun=True, phase=number)
        if number < len(self.phases):
            rate = self.phase.learning_rate
            self.progress = replace(self.progress, plateau=Plateau(rate))
            if self.phase.begin is not None:  # not in prepare_phase: a resumed run comes by there
                self.phase.begin()
            self.prepare_phase()

    def _tell_of_no_plateau(self) -> None:
        """Say once that without validation images the rate does not fall."""
        plateau = self.phase.schedule == "plateau" and self.phase.epochs > 0
        if plateau and not len(self.images.valid) and not self._told:
            log.warning(
                "task %d has no validation images, so the schedule plateau leaves its rate as it "
                "is: with --schedule cosine it would fall by itself",
                self.progress.task,
            )
            self._told = True

    @property
    def rate(self) -> float:
        """Learning rate of the step that the run stands before; after an epoch's last, of that."""
        p = self.progress
        if not p.begun:
            return p.plateau.rate
        rates = self._rates()
        step = p.epoch * rates.steps + min(p.step, max(rates.steps - 1, 0))
        return float(rates.at(np.array([step]), p.plateau.rate)[0])

    def _rates(self) -> TaskRates:
        steps = -(-len(self.images.training_set) // self.settings.batch_size)
        own = self.phase.schedule if self.progress.phase else None
        return TaskRates(self.settings, self.phase.epochs, steps, own)

    def _train_epoch(self) -> Iterator[Progress]:
        began, p = time.perf_counter(), self.progress
        plan = self._planned.pop(p.epoch, None) or self._plan(p.epoch)
        self.task_steps = self._choice.unless_overtaken(self.task_steps)
        self.learner.method.context.epoch.fill_(p.epoch)
        yield from self._keep_images()
        steps = self.task_steps = self.task_steps or self._choice.make(
            *(self.optimiser, self.phase, plan, self.images.valid),
            rates_change=self._rates().change_by_the_step,
        )
        rates = self._rates().of_epoch(p.epoch, p.plateau.rate)
        weights: Weights = {}
        for done in steps.epoch(plan, rates, p.step, self.losses):
            # A run that pauses in the same place stands before the same progress, told once.
            if done != self.progress.step:
                self.progress = replace(p, step=done)
            # The next epoch is planned while the device is at work on this one.
            if done == plan.steps and p.epoch + 1 < self.phase.epochs:
                self._planned = self._planned or {p.epoch + 1: self._plan(p.epoch + 1)}
            if done == plan.steps and self._keeps_best and steps.replays_validation:
                weights = weights or weights_of(self.learner)
            yield self.progress
        self.refuse_divergence()
        self._finish_epoch(steps, plan, time.perf_counter() - began, weights)
        yield self.progress

    def _keep_images(self) -> Iterator[Progress]:
        """Decode what the task's epochs look at, where it can be kept and is not yet."""
        pixels = self.learner.train_pixels
        if isinstance(pixels, TaskPixels) and self.task_steps is None:
            alone = self.learner.world.size == 1
            for _ in pixels.keep(task_rows(self.learner, self.stream, self.progress.task)):
                if alone:  # several agree at every pause, and need not decode as much
                    yield self.progress

    def _plan(self, epoch: int) -> EpochPlan:
        images, p = self.images, self.progress
        place = (p.task, epoch) if p.phase == 0 else (p.task, epoch, p.phase)
        return EpochPlan.plan(self.learner, images.training_set, images.reference, place)

    def refuse_divergence(self) -> None:
        """Raise if a loss of this epoch or a weight is no number; asks the device twice."""
        losses, p = self.loss_values(), self.progress
        bad = np.flatnonzero(~np.isfinite(losses))
        if not bad.size and self._weights_are_finite():
            return
        what = f"the loss became {losses[bad[0]]}" if bad.size else "weights became infinite or NaN"
        step = bad[0] if bad.size else p.step - 1
        raise DivergedError(
            f"{what} at step {step} of epoch {p.epoch} of task {p.task}: try a lower learning_rate "
            f"(it is {p.plateau.rate:g}) or precision fp32. The last good checkpoint is kept"
        )

    def _weights_are_finite(self) -> bool:
        if self.task_steps is None:
            return bool(weights_are_finite(self.learner.model, self.learner.method))
        return self.task_steps.weights_are_finite()

    def loss_values(self) -> Floats:
        """Return this epoch's losses so far: (steps,)."""
        if self.task_steps is None:
            return self.losses
        return self.task_steps.loss_values(self.progress.step)

    def _finish_epoch(
        self, steps: Steps, plan: EpochPlan, seconds: float, weights: Weights
    ) -> None:
        world, method = self.learner.world, self.learner.method
        # What a method keeps of its own share of the images is that of the first process then.
        modules = (self.learner.model, method)
        world.agree(t for m in modules for t in (*m.parameters(), *m.buffers()))
        world.collect(method.logged)
        found = self._validation_score(steps)
        score = world.told(lambda: found)  # the last digit decides on rates, and on what is kept
        self._keep_best(score, weights)
        p = self.progress
        own = method.take_logged()
        measured = (mean(self.loss_values()), self.rate, score, len(plan.drawn.order), seconds)
        record = EpochRecord(p.task, p.epoch, *measured, self.phase.name, own, plan.memory_images)
        for recorder in self.recorders:
            recorder.epoch(record)
        self.losses = np.empty(0)
        plateau = p.plateau
        if self.phase.schedule == "plateau" and len(self.images.valid):
            plateau = plateau.update(score, self.settings)
        self.progress = replace(p, epoch=p.epoch + 1, step=0, plateau=plateau)

    def _validation_score(self, steps: Steps) -> float:
        view = self.images.valid
        if not len(view):
            return 0.0
        return self.evaluation.of_validation(view, steps.validation_scores())

    @property
    def _keeps_best(self) -> bool:
        return self.learner.method.keep == "best" and self.progress.phase == 0

    def _keep_best(self, score: float, weights: Weights) -> None:
        """Copy the weights of the best epoch; of equal ones the later.

        ``weights`` were asked for while the device was at work, where nobody can replace one since.
        """
        if not self._keeps_best or score < self.progress.best_score:
            return
        self.best = copied(weights or weights_of(self.learner), self.best)
        self.progress = replace(self.progress, best_score=score)

    def _finish_task(self) -> None:
        learner, after = self.learner, self.progress.task
        learner.remember(self.stream[after])
        learner.method.end_task()
        learner.method.teacher = None
        self.evaluation.after_task(after, self.recorders)
        self.progress = Progress(task=after + 1)
