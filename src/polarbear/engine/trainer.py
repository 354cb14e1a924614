"""The loop over tasks, epochs and steps."""

import logging
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from polarbear.base.arrays import Bools, Floats, Ints
from polarbear.base.errors import PolarbearError
from polarbear.benchmark.stream import Stream, View
from polarbear.engine.contract.batch import Batch
from polarbear.engine.contract.method import frozen_copy
from polarbear.engine.generator import keyed
from polarbear.engine.nets.model import weights_are_finite
from polarbear.engine.steps.captured import GraphedTask, can_graph
from polarbear.engine.task.epoch_plan import Epoch
from polarbear.engine.task.learner import Learner
from polarbear.engine.task.plateau import Plateau
from polarbear.engine.task.training_set import Pool, training_view, validation_view
from polarbear.score import metrics
from polarbear.score.decide import Scores, decision
from polarbear.score.evaluate import Evaluator
from polarbear.score.table import mean

log = logging.getLogger("polarbear")

STEPS_A_TURN = 64  # captured steps queued before other runs have their turn


class DivergedError(PolarbearError):
    """A loss that is no number any more."""


class Recorder(Protocol):
    """Receives what a run measures: the run folder, TensorBoard, a progress display."""

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Take the record of an epoch."""
        ...

    def scores(self, record: Mapping[str, Any]) -> None:
        """Take the scores on one split after a task."""
        ...

    def answers(self, after: int, predictions: Bools, scores: Scores) -> None:
        """Take the test predictions after a task and the scores behind them: (n, seen) each."""
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
        self.losses: list[Tensor] = []
        self.optimiser: torch.optim.SGD
        self.decide = decision(self.settings.decision)
        self._planned: dict[int, Epoch] = {}
        self.graphed: GraphedTask | None = None
        self.can_graph = self.settings.graph and can_graph(learner)

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
        """Tell the method where it stands and start a fresh optimiser."""
        learner, settings = self.learner, self.settings
        learner.machine.place(learner.model)
        learner.method.moment = learner.moment(self.stream[self.progress.task])
        learner.method.begin_task(learner.method.moment)
        self.optimiser = torch.optim.SGD(
            [p for p in learner.model.parameters() if p.requires_grad],
            lr=settings.learning_rate,
            momentum=settings.momentum,
            weight_decay=settings.weight_decay,
            fused=learner.machine.device.type == "cuda",
        )
        self._make_pools()

    def _train_epoch(self) -> Iterator[Progress]:
        began = time.perf_counter()
        epoch = self._plan_epoch(self.progress.epoch)
        yield from self._graphed_epoch(epoch) if self._graph(epoch) else self._eager_epoch(epoch)
        self.refuse_divergence()
        self._finish_epoch(len(epoch.pool), time.perf_counter() - began)
        yield self.progress

    def _eager_epoch(self, epoch: Epoch) -> Iterator[Progress]:
        for group in self.optimiser.param_groups:
            group["lr"] = self.progress.plateau.rate
        for batch, reference in epoch.batches(first=self.progress.step):
            self.losses.append(self._step(batch, reference))
            self.progress = replace(self.progress, step=self.progress.step + 1)
            yield self.progress

    def _graphed_epoch(self, epoch: Epoch) -> Iterator[Progress]:
        """Queue the epoch's steps; while the device works, a caller can queue other runs' epochs.

        A turn queues many steps, so that the device has work while another run has its turn.
        """
        graphed, p = cast(GraphedTask, self.graphed), self.progress
        graphed.start(epoch, p.plateau.rate, p.step, self.losses)
        for step in range(p.step, graphed.steps):
            graphed.queue_step(step)
            self.progress = replace(p, step=step + 1)
            if self.progress.step % STEPS_A_TURN == 0:
                yield self.progress
        graphed.queue_end()
        if p.epoch + 1 < self.settings.epochs_of(p.task):
            self._planned = {p.epoch + 1: self._plan_epoch(p.epoch + 1)}
        yield self.progress
        while not graphed.has_ended():
            yield self.progress

    def _graph(self, epoch: Epoch) -> bool:
        """Capture the task's steps, where that can be and is not done yet."""
        if self.graphed is None and self.can_graph:
            rows = self._valid_view.rows
            try:
                self.graphed = GraphedTask(self.learner, self.optimiser, epoch, rows)
            except RuntimeError as error:
                log.warning(
                    "steps cannot be captured as a CUDA graph, so they run one by one "
                    "and slower: %s",
                    str(_first_cause(error)),  # text alone: an error holds on to its frames
                )
                self.can_graph = False
        return self.graphed is not None

    def _plan_epoch(self, number: int) -> Epoch:
        if number in self._planned:
            return self._planned.pop(number)
        task = self.progress.task
        pool, beside = self._pools
        return Epoch.plan(self.learner, pool, beside, (task, number))

    def _make_pools(self) -> None:
        """Gather what the task trains on and is validated on: the same in every epoch."""
        learner, task = self.learner, self.progress.task
        method = learner.method
        view = training_view(self.stream, task, method.complete)
        mixed = learner.memory if method.replay == "mixed" else None
        beside = method.replay == "reference" and len(learner.memory.rows) > 0
        stored = Pool.of_memory(learner.memory, len(view.classes)) if beside else None
        self._pools = Pool.of(view, mixed), stored
        self._valid_view = validation_view(self.stream, task, method.complete)
        self._planned = {}

    def _step(self, batch: Batch, reference: Batch | None) -> Tensor:
        self.learner.model.train()
        self.optimiser.zero_grad(set_to_none=True)
        p, machine = self.progress, self.learner.machine
        key = keyed(self.settings.seed, "dropout", p.task, p.epoch, p.step)
        with machine.seeded(int(key.integers(2**63))), machine.autocast():
            loss = self.learner.method.backward(batch, reference)
        self.optimiser.step()
        return loss

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
        if self._in_graph and cast(GraphedTask, self.graphed).ended:
            return cast(GraphedTask, self.graphed).weights_are_finite()
        return bool(weights_are_finite(self.learner.model))

    def loss_values(self) -> Floats:
        """Give this epoch's losses so far: (steps,)."""
        if self._in_graph:
            return cast(GraphedTask, self.graphed).loss_values(self.progress.step)
        if not self.losses:
            return np.empty(0)
        return torch.stack(self.losses).double().cpu().numpy()

    @property
    def _in_graph(self) -> bool:
        """Whether this epoch has been queued as graphs."""
        return self.graphed is not None and self.progress.step > 0

    def _finish_epoch(self, images: int, seconds: float) -> None:
        score = self._validation_score()
        self._keep_best(score)
        p = self.progress
        record = {
            "task": p.task,
            "epoch": p.epoch,
            "loss": mean(self.loss_values()),
            "rate": p.plateau.rate,
            "valid": score,
            "images": images,
            "seconds": seconds,
        }
        for recorder in self.recorders:
            recorder.epoch(record)
        self.losses = []
        plateau = p.plateau.update(score, self.settings)
        self.progress = replace(p, epoch=p.epoch + 1, step=0, plateau=plateau)

    def _validation_score(self) -> float:
        view = self._valid_view
        in_graph = self._in_graph and len(view)
        scores = cast(GraphedTask, self.graphed).validation_scores() if in_graph else None
        named = self._decisions(view, self.learner.scores(view) if scores is None else scores)
        return float(metrics.pw_jaccard(named, view.targets).mean()) if len(view) else 0.0

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

    def _decisions(self, view: View, scores: Scores) -> Bools:
        if not len(view):
            return np.zeros((0, len(view.classes)), dtype=bool)
        return self.decide(scores, self.learner.method.inclusive, self._levels(view.classes))

    def _levels(self, classes: tuple[str, ...]) -> Ints:
        """Depth of each class, all leaves together at the lowest level: (s,)."""
        hierarchy = self.stream.hierarchy
        numbers = [hierarchy.index(name) for name in classes]
        leaf = hierarchy.is_leaf[numbers]
        return np.where(leaf, hierarchy.depth.max(), hierarchy.depth[numbers])

    def _finish_task(self) -> None:
        learner, after = self.learner, self.progress.task
        if self.graphed is not None:
            self.graphed.close()
            self.graphed = None
        if self.best:
            learner.model.load_state_dict(self.best)
        learner.method.end_task()
        learner.remember(self.stream[after])
        learner.method.teacher = None
        for split in ("post_valid", "test"):
            self._evaluate(split, after)
        self.best = {}
        self.progress = Progress(task=after + 1)

    def _evaluate(self, split: str, after: int) -> None:
        """Predict each seen image once; the union's and every task's scores come from that."""
        evaluator = Evaluator(self.stream, split)
        view = evaluator.view(after)
        scores = self.learner.scores(view)
        named = self._decisions(view, scores)
        found = dict(evaluator.add(after, named))
        by_task = {k: t[after, : after + 1] for k, t in evaluator.table.by_task.items()}
        record = {"after": after, "split": split, "scores": found, "by_task": by_task}
        for recorder in self.recorders:
            recorder.scores(record)
            if split == "test":
                recorder.answers(after, named, scores)


def _first_cause(error: BaseException) -> BaseException:
    """Give what went wrong first: a capture that ends after an error ends in another one."""
    while error.__context__ is not None and not error.__suppress_context__:
        error = error.__context__
    return error
