"""The loop over tasks, epochs and steps."""

import logging
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from polarbear.base.arrays import Bools, Floats, Ints
from polarbear.base.errors import PolarbearError
from polarbear.benchmark.stream import Stream, View
from polarbear.engine.contract.method import frozen_copy
from polarbear.engine.nets.model import weights_are_finite
from polarbear.engine.steps.captured import CapturedSteps, can_capture
from polarbear.engine.steps.eager import EagerSteps
from polarbear.engine.steps.steps import Steps
from polarbear.engine.task.epoch_plan import EpochPlan
from polarbear.engine.task.learner import Learner
from polarbear.engine.task.plateau import Plateau
from polarbear.engine.task.training_set import TaskImages
from polarbear.score import metrics
from polarbear.score.decide import Logits, decision
from polarbear.score.evaluate import Evaluator
from polarbear.score.record import EpochRecord, ScoreRecord
from polarbear.score.table import mean

log = logging.getLogger("polarbear")


class DivergedError(PolarbearError):
    """A loss that is no number any more."""


class Recorder(Protocol):
    """Receives what a run measures: the run folder, TensorBoard, a progress display."""

    def epoch(self, record: EpochRecord) -> None:
        """Take the record of an epoch."""
        ...

    def scores(self, record: ScoreRecord) -> None:
        """Take the scores on one split after a task."""
        ...

    def answers(self, after: int, predictions: Bools, logits: Logits) -> None:
        """Take the test predictions after a task and the logits behind them: (n, seen) each."""
        ...


@dataclass(frozen=True)
class Progress:
    """Where a run stands: before step ``step`` of epoch ``epoch`` of task ``task``.

    ``begun`` tells whether the task has been made ready.
    """

    task: int = 0
    begun: bool = False
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
        self.best: dict[str, Tensor] = {}
        self.losses: Floats = np.empty(0)  # of the epoch's steps before a checkpoint was taken
        self.optimiser: torch.optim.SGD
        self.images: TaskImages
        self.task_steps: Steps | None = None
        self.decide = decision(self.settings.decision)
        self._planned: dict[int, EpochPlan] = {}
        self._captures = self.settings.graph and can_capture(learner)

    @property
    def tasks(self) -> int:
        """Tasks this run goes through."""
        return min(len(self.stream), self.settings.tasks or len(self.stream))

    def steps(self) -> Iterator[Progress]:
        """Train from where the run stands to its end."""
        while self.progress.task < self.tasks:
            if not self.progress.begun:
                self.begin_task()
            while self.progress.epoch < self.settings.epochs_of(self.progress.task):
                yield from self._train_epoch()
            self._finish_task()
            yield self.progress

    def begin_task(self) -> None:
        """Make model, method and optimiser ready for the task the run stands before."""
        method, model = self.learner.method, self.learner.model
        task = self.stream[self.progress.task]
        if method.wants_teacher and task.index > 0:
            method.teacher = frozen_copy(model)
        model.head.grow(len(task.seen))  # type: ignore[operator]
        self.prepare_method()
        self.best = {}
        rate = self.settings.learning_rate
        self.progress = Progress(task=task.index, begun=True, plateau=Plateau(rate))

    def prepare_method(self) -> None:
        """Tell the method where it stands, start a fresh optimiser and gather the task's images."""
        learner, settings, task = self.learner, self.settings, self.progress.task
        method, device = learner.method, learner.machine.device
        learner.machine.place(learner.model)
        method.to(device)
        method.context = learner.context(self.stream[task])
        method.begin_task(method.context)
        method.to(device)  # buffers that it has only now
        self.optimiser = torch.optim.SGD(
            [p for p in learner.model.parameters() if p.requires_grad],
            lr=settings.learning_rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            fused=device.type == "cuda",
        )
        learner.open_reservoir(self.stream[task], len(self.stream.classes))
        self.images = TaskImages.of(self.stream, task, learner)
        self._planned = {}

    def _train_epoch(self) -> Iterator[Progress]:
        began, p = time.perf_counter(), self.progress
        plan = self._planned.pop(p.epoch, None) or self._plan(p.epoch)
        steps = self.task_steps = self.task_steps or self._make_steps(plan)
        for done in steps.epoch(plan, p.plateau.rate, p.step, self.losses):
            # A run that pauses in the same place stands before the same progress, told once.
            if done != self.progress.step:
                self.progress = replace(p, step=done)
            # The next epoch is planned while the device is at work on this one.
            if done == plan.steps and p.epoch + 1 < self.settings.epochs_of(p.task):
                self._planned = self._planned or {p.epoch + 1: self._plan(p.epoch + 1)}
            yield self.progress
        self.refuse_divergence()
        self._finish_epoch(steps, len(plan.drawn.order), time.perf_counter() - began)
        yield self.progress

    def _plan(self, epoch: int) -> EpochPlan:
        images, place = self.images, (self.progress.task, epoch)
        return EpochPlan.plan(self.learner, images.training_set, images.reference, place)

    def _make_steps(self, plan: EpochPlan) -> Steps:
        """Return the task's steps: captured where that can be, else eager."""
        if self._captures:
            try:
                return CapturedSteps(self.learner, self.optimiser, plan, self.images.valid)
            except RuntimeError as error:
                log.warning(
                    "steps cannot be captured as a CUDA graph, so they run one by one "
                    "and slower: %s",
                    str(_first_cause(error)),  # text alone: an error holds on to its frames
                )
                self._captures = False
        return EagerSteps(self.learner, self.optimiser, self.images.valid)

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
            return bool(weights_are_finite(self.learner.model))
        return self.task_steps.weights_are_finite()

    def loss_values(self) -> Floats:
        """Return this epoch's losses so far: (steps,)."""
        if self.task_steps is None:
            return self.losses
        return self.task_steps.loss_values(self.progress.step)

    def _finish_epoch(self, steps: Steps, images: int, seconds: float) -> None:
        score = self._validation_score(steps)
        self._keep_best(score)
        p = self.progress
        loss = mean(self.loss_values())
        record = EpochRecord(p.task, p.epoch, loss, p.plateau.rate, score, images, seconds)
        for recorder in self.recorders:
            recorder.epoch(record)
        self.losses = np.empty(0)
        plateau = p.plateau.update(score, self.settings)
        self.progress = replace(p, epoch=p.epoch + 1, step=0, plateau=plateau)

    def _validation_score(self, steps: Steps) -> float:
        view = self.images.valid
        if not len(view):
            return 0.0
        predicted = self._predicted(view, steps.validation_logits())
        return float(metrics.pw_jaccard(predicted, view.targets).mean())

    def _keep_best(self, score: float) -> None:
        """Copy the weights of the best epoch; of equal ones the later."""
        if self.learner.method.keep != "best" or score < self.progress.best_score:
            return
        # Asked for anew: a network may have put another tensor in the place of a buffer.
        weights = self.learner.model.state_dict()
        if self.best:
            torch._foreach_copy_([self.best[name] for name in weights], list(weights.values()))
        else:
            self.best = {name: tensor.clone() for name, tensor in weights.items()}
        self.progress = replace(self.progress, best_score=score)

    def _predicted(self, view: View, logits: Logits) -> Bools:
        if not len(view):
            return np.zeros((0, len(view.classes)), dtype=bool)
        return self.decide(logits, self.learner.method.inclusive, self._levels(view.classes))

    def _levels(self, classes: tuple[str, ...]) -> Ints:
        """Depth of each class, all leaves together at the lowest level: (s,)."""
        hierarchy = self.stream.hierarchy
        numbers = [hierarchy.index(name) for name in classes]
        leaf = hierarchy.is_leaf[numbers]
        return np.where(leaf, hierarchy.depth.max(), hierarchy.depth[numbers])

    def _finish_task(self) -> None:
        learner, after = self.learner, self.progress.task
        if self.task_steps is not None:
            self.task_steps.close()
            self.task_steps = None
        if self.best:
            learner.model.load_state_dict(self.best)
        learner.method.end_task()
        learner.remember(self.stream[after], self.progress.epoch * len(self.images.training_set))
        learner.method.teacher = None
        for split in ("post_valid", "test"):
            self._evaluate(split, after)
        self.best = {}
        self.progress = Progress(task=after + 1)

    def _evaluate(self, split: str, after: int) -> None:
        """Predict each seen image once; the union's and every task's scores come from that."""
        evaluator = Evaluator(self.stream, split)
        view = evaluator.view(after)
        logits = self.learner.logits(view)
        predicted = self._predicted(view, logits)
        evaluator.add(after, predicted)
        for recorder in self.recorders:
            recorder.scores(evaluator.record(after))
            if split == "test":
                recorder.answers(after, predicted, logits)


def _first_cause(error: BaseException) -> BaseException:
    """Return what went wrong first: a capture that ends after an error ends in another one."""
    while error.__context__ is not None and not error.__suppress_context__:
        error = error.__context__
    return error
