"""A task's steps as CUDA graphs: the same mathematics, launched as one.

An eager step of a small network is bound by the host, which launches some 500 kernels one by one.
Here gathering, augmentation, loss, gradients and the optimiser's step are captured once a task and
replayed. What changes from step to step (which images, which crops, the rate) lies in buffers on
the device; a cursor there moves on by itself, so that an epoch needs no word from the host.
"""

from collections.abc import Generator, Iterator
from contextlib import closing, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from polarbear.base.arrays import Floats
from polarbear.benchmark.stream import View
from polarbear.engine.contract.method import Method
from polarbear.engine.contract.phase import Phase
from polarbear.engine.contract.predict import raw_scores
from polarbear.engine.images.pixels import ResidentPixels
from polarbear.engine.images.task_pixels import resident
from polarbear.engine.images.transform import for_evaluation
from polarbear.engine.nets.model import weights_are_finite
from polarbear.engine.steps.attributes import Attributes
from polarbear.engine.steps.buffers import TrainingSetBuffers
from polarbear.engine.steps.capturing import (
    Before,
    Capture,
    Places,
    free_random_numbers,
    searching_for_kernels,
)
from polarbear.engine.steps.parts import backward_in_parts
from polarbear.engine.task.epoch_plan import EpochPlan, number_of_parts
from polarbear.engine.task.learner import Learner
from polarbear.engine.task.optimiser import clip_and_step, fill_state
from polarbear.engine.task.reservoir import Reservoir
from polarbear.score.decide import RawScores

STEPS_A_TURN = 64  # captured steps queued before other runs have their turn
WARM_UP = 2  # steps before the first capture, so that libraries have chosen their kernels


def can_capture(learner: Learner) -> bool:
    """Whether a learner's steps might be captured: on a GPU."""
    return learner.machine.device.type == "cuda"


@dataclass(frozen=True, eq=False)
class Graphs:
    """A whole step, an epoch's last one of fewer images, and validation with what it finds out.

    Where images are brought to the steps, validation is not captured.
    """

    full_step: torch.cuda.CUDAGraph | None
    partial_step: torch.cuda.CUDAGraph | None
    validation: torch.cuda.CUDAGraph | None
    found: tuple[Tensor, ...]


class CapturedSteps:
    """The training steps of one phase, and its validation, captured.

    Built for the shapes of a phase's first epoch; every epoch of the phase has the same.
    """

    def __init__(
        self,
        learner: Learner,
        optimiser: torch.optim.Optimizer,
        phase: Phase,
        plan: EpochPlan,
        valid: View,
        *,
        rates_change: bool,
    ) -> None:
        """Allocate the buffers and capture; ``rates_change`` from step to step, or do not."""
        if type(learner.method).state is not Method.state:
            raise RuntimeError(
                "the method has a state() of its own, and a replay knows tensors that stay in "
                "their places alone: use self.register_buffer(name, tensor) instead"
            )
        self.learner, self.optimiser, self.phase = learner, optimiser, phase
        self.device = device = learner.machine.device
        self.images, self.steps = len(plan.drawn.order), plan.steps
        self.training_set = TrainingSetBuffers.of(plan.drawn, learner)
        self.beside: TrainingSetBuffers | None = None
        self.landing: Tensor | None = None
        if plan.beside is not None:
            self.beside = TrainingSetBuffers.of(plan.beside, learner)
        if plan.slots is not None:
            reservoir = cast(Reservoir, learner.reservoir)
            self.beside = TrainingSetBuffers.of_slots(plan.slots, reservoir)
            self.landing = torch.tensor(plan.slots.landing, device=device)
        self.step = learner.method.context.step
        self.losses = torch.zeros(self.steps, device=device)
        self.rates = torch.zeros(self.steps, device=device) if rates_change else None
        self.valid, self.valid_rows = valid, torch.tensor(valid.rows, device=device)
        self.seen = len(valid.classes)
        self.ended = False
        self.done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self.queue = torch.cuda.current_stream(device)
        self._place_rates()
        fill_state(optimiser)
        self.graphs = self._capture()
        self.attributes, self.places = Attributes.of(learner), Places(learner)
        self.found = (self.losses, *self.graphs.found)
        self.on_host = [torch.empty_like(t, device="cpu").pin_memory() for t in self.found]

    def epoch(self, plan: EpochPlan, rates: Floats, first: int, losses: Floats) -> Iterator[int]:
        """Queue the steps from ``first`` on; while the device works, so may other runs.

        A turn queues many steps, so that the device has work while another run has its turn.
        """
        self._start(plan, rates, first, losses)
        with closing(self._brought(plan, first)) as brought:
            for step in range(first, self.steps):
                while not next(brought):
                    yield step
                self._replay(plan, step)
                if (step + 1) % STEPS_A_TURN == 0 and step + 1 < self.steps:
                    yield step + 1
        self._queue_end()
        yield self.steps
        while not self.done.query():  # type: ignore[no-untyped-call]
            yield self.steps

    def _brought(self, plan: EpochPlan, first: int) -> Generator[bool, None, None]:
        """Yields True when a step's images are on the device or on their way, False before."""
        sources = [(self.training_set.feed, plan.drawn)]
        if self.beside is not None and plan.beside is not None:
            sources.append((self.beside.feed, plan.beside))
        feeds = [
            feed.batches([drawn.of_step(step, slice).rows for step in range(first, self.steps)])
            for feed, drawn in sources
            if feed is not None
        ]
        for _ in range(first, self.steps):
            for feed in feeds:
                while not next(feed):
                    yield False
            yield True

    def _replay(self, plan: EpochPlan, step: int) -> None:
        size = self.training_set.size
        images = min(size, self.images - step * size)
        if plan.slots is not None and plan.slots.counts[step] < plan.slots.size:
            # The first steps of a run find a reservoir that is not full: their shapes are others.
            self._train(images, int(plan.slots.counts[step]))
            return
        graph = self.graphs.full_step if images == size else self.graphs.partial_step
        cast(torch.cuda.CUDAGraph, graph).replay()

    def _start(self, plan: EpochPlan, rates: Floats, first: int, losses: Floats) -> None:
        self.losses[:first].copy_(torch.from_numpy(losses[:first]))
        self.training_set.take(plan.drawn)
        if self.beside is not None and plan.beside is not None:
            self.beside.take(plan.beside)
        if self.beside is not None and self.landing is not None and plan.slots is not None:
            self.beside.take(plan.slots)
            landing = torch.from_numpy(plan.slots.landing).pin_memory()
            self.landing.copy_(landing, non_blocking=True)
        self.step.fill_(first)
        self.ended = False
        if self.rates is not None:
            self.rates.copy_(torch.from_numpy(rates).float().pin_memory(), non_blocking=True)
        elif self.steps:  # one rate for all: no step need look for its own
            for group in self.optimiser.param_groups:
                group["lr"].fill_(float(rates[0]) * group["rate"])

    def _queue_end(self) -> None:
        """Queue the epoch's validation and the way of its results to the host."""
        if self.graphs.validation is not None:
            self.graphs.validation.replay()
        for host, tensor in zip(self.on_host, self.found, strict=True):
            host.copy_(tensor, non_blocking=True)
        self.done.record(torch.cuda.current_stream(self.device))
        self.ended = True

    def loss_values(self, steps: int) -> Floats:
        """Return the losses of the epoch's first steps: (steps,)."""
        if self.ended:
            self.done.synchronize()
            return self.on_host[0].numpy()[:steps].astype(np.float64)
        return self.losses[:steps].double().cpu().numpy()

    def validation_scores(self) -> RawScores:
        """Return the method's scores for the validation images after the epoch: (v, seen)."""
        if self.graphs.validation is None:
            return self.learner.scores(self.valid, validation=True)
        self.done.synchronize()
        return self.on_host[1].numpy().copy()

    @property
    def replays_validation(self) -> bool:
        """Whether validation is captured, too."""
        return self.graphs.validation is not None

    def overtaken_by(self) -> str | None:
        """Return the name of an attribute that has changed since, which no replay would see."""
        if self.places.have_moved():
            return "the place of a weight or buffer"
        return self.attributes.changed()

    def weights_are_finite(self) -> bool:
        """Whether every weight is a number, or was when the epoch ended."""
        if not self.ended or self.graphs.validation is None:
            return bool(weights_are_finite(self.learner.model, self.learner.method))
        self.done.synchronize()
        return bool(self.on_host[2])

    def close(self) -> None:
        """Free the graphs, before what they point to goes."""
        self.queue.synchronize()
        for graph in (self.graphs.full_step, self.graphs.partial_step, self.graphs.validation):
            if graph is not None:
                graph.reset()

    def _place_rates(self) -> None:
        """Let the optimiser read its rates from the device, where they can change."""
        for group in self.optimiser.param_groups:
            group["lr"] = torch.as_tensor(group["lr"], dtype=torch.float32, device=self.device)

    def _capture(self) -> Graphs:
        """Capture the three graphs and leave every weight as it was, even where that fails."""
        before = Before.of(self.learner, self.optimiser)
        outer = torch.cuda.current_stream(self.device)
        try:
            # A capture that fails may leave its stream behind as the current one.
            with torch.cuda.stream(outer):
                pool = torch.cuda.graph_pool_handle()
                return self._graphs(Capture(before, self.step, _capturable(outer), pool))
        except RuntimeError:
            free_random_numbers(self.device)
            raise
        finally:
            outer.synchronize()
            before.put_back()

    def _graphs(self, capture: Capture) -> Graphs:
        full_step = partial_step = None
        size = self.training_set.size
        if self.images >= size:
            # A search for the fastest kernels pays for the shape of nearly all steps alone.
            with searching_for_kernels():
                full_step, _ = capture.graph(lambda: self._train(size), WARM_UP)
        if rest := self.images % size:
            warm_up = 1 if full_step else WARM_UP
            partial_step, _ = capture.graph(lambda: self._train(rest), warm_up)
        if self.training_set.feed is not None:
            return Graphs(full_step, partial_step, None, ())
        return Graphs(full_step, partial_step, *capture.graph(self._validate, 1))

    def _train(self, images: int, beside: int | None = None) -> None:
        """Take a step of some images and, where they are fewer than usual, some ``beside``."""
        learner = self.learner
        learner.model.train(not self.phase.evaluation)
        batch = self.training_set.batch(self.step, images, learner)
        reference, sizes = None, [images]
        if self.beside is not None and beside != 0:
            sizes.append(beside or self.beside.size)
            reference = self.beside.batch(self.step, sizes[1], learner)
        found = {} if self.landing is None else learner.store_at_step(batch)
        backward = partial(self.phase.backward, learner.method.backward)
        parts = number_of_parts(learner.settings.accumulate, *sizes)
        given = (learner, backward, batch, reference, parts)
        loss = backward_in_parts(*given, lambda part: nullcontext())  # what draws is not captured
        if self.rates is not None:
            rate = self.rates.take(self.step)
            for group in self.optimiser.param_groups:
                group["lr"].copy_(rate * group["rate"])
        clip_and_step(self.optimiser, learner.settings)
        if self.landing is not None:
            learner.put(self.landing[self.training_set.at(self.step, images)], batch, found)
        self.losses.index_copy_(0, self.step[None], loss.float()[None])
        self.step += 1

    @torch.no_grad()
    def _validate(self) -> tuple[Tensor, Tensor]:
        """Return the method's scores (v, seen), and whether all weights are finite."""
        learner = self.learner
        pixels = cast(ResidentPixels, resident(learner.train_pixels))
        parts = []
        # No rows would be split into one part of none.
        chosen = torch.split(self.valid_rows, learner.at_once) if len(self.valid_rows) else ()
        with learner.evaluating():
            for rows in chosen:
                with learner.machine.autocast():
                    images = for_evaluation(pixels.at(rows), learner.transform)
                    parts.append(raw_scores(learner.method, images, self.seen, validation=True))
        scores = torch.cat(parts) if parts else torch.zeros((0, 0), device=self.device)
        return scores, weights_are_finite(learner.model, learner.method)


def _capturable(stream: Any) -> Any:
    """Return a run's own stream, or another for the default one, which cannot be captured.

    Its own, because libraries have one workspace a stream: graphs of two runs that were captured
    on the same stream would write into the same one at the same time.
    """
    if stream != torch.cuda.default_stream(stream.device):
        return stream
    return torch.cuda.Stream(stream.device)  # type: ignore[no-untyped-call]
