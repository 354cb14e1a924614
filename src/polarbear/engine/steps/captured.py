"""A task's steps as CUDA graphs: the same mathematics, launched as one.

An eager step of a small network is bound by the host, which launches some 500 kernels one by one.
Here gathering, augmentation, loss, gradients and the optimiser's step are captured once a task and
replayed. What changes from step to step (which images, which crops, the rate) lies in buffers on
the device; a cursor there moves on by itself, so that an epoch needs no word from the host.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from polarbear.base.arrays import Ints
from polarbear.engine.images.pixels import ResidentPixels
from polarbear.engine.images.transform import prepare
from polarbear.engine.nets.model import Model, weights_are_finite
from polarbear.engine.steps.buffers import PoolBuffers
from polarbear.engine.steps.capturing import free_random_numbers, random_states, waiting_is_an_error
from polarbear.engine.steps.method_tensors import MethodState
from polarbear.engine.task.epoch_plan import Epoch
from polarbear.engine.task.learner import Learner

WARM_UP = 2  # steps before the first capture, so that libraries have chosen their kernels


@contextmanager
def _searching_for_kernels() -> Iterator[None]:
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def can_graph(learner: Learner) -> bool:
    """Whether a learner's steps might be captured: on a GPU, with the data there."""
    resident = isinstance(learner.train_pixels, ResidentPixels)
    return learner.machine.device.type == "cuda" and resident


class GraphedTask:
    """The training steps and the validation of one task, captured.

    Built for the shapes of a task's first epoch; every epoch of the task has the same.
    """

    def __init__(
        self, learner: Learner, optimiser: torch.optim.SGD, epoch: Epoch, valid_rows: Ints
    ) -> None:
        """Allocate the buffers and capture."""
        self.learner, self.optimiser = learner, optimiser
        self.device = learner.machine.device
        self.size, self.images = learner.settings.batch_size, len(epoch.order)
        self.pool = PoolBuffers.of(epoch.pool, epoch.order, epoch.jitter, self.device)
        self.beside = self._beside(epoch)
        self.step = torch.zeros((), dtype=torch.long, device=self.device)
        self.losses = torch.zeros(self.steps, device=self.device)
        self.valid_rows = torch.tensor(valid_rows, device=self.device)
        self.ended = False
        self.done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._make_momentum()
        self._capture()

    @property
    def steps(self) -> int:
        """Steps of an epoch."""
        return -(-self.images // self.size)

    def start(self, epoch: Epoch, rate: float, first: int, losses: list[Tensor]) -> None:
        """Hand over an epoch's plan, from step ``first`` on; ``losses`` are those before."""
        if losses:
            self.losses[:first] = torch.stack(losses)
        self.pool.plan(epoch.order, epoch.jitter)
        if self.beside is not None and epoch.beside is not None:
            self.beside.plan(epoch.beside.order, epoch.beside.jitter)
        self.step.fill_(first)
        self.ended = False
        for group in self.optimiser.param_groups:
            group["lr"].fill_(rate)

    def queue_step(self, number: int) -> None:
        """Queue one step; nothing is waited for."""
        full = (number + 1) * self.size <= self.images
        graph = self.full_step if full else self.partial_step
        cast(torch.cuda.CUDAGraph, graph).replay()

    def queue_end(self) -> None:
        """Queue the epoch's validation and the way of its results to the host."""
        self.validation.replay()
        self.host_losses.copy_(self.losses, non_blocking=True)
        self.host_scores.copy_(self.scores, non_blocking=True)
        self.host_finite.copy_(self.finite, non_blocking=True)
        self.done.record(torch.cuda.current_stream(self.device))
        self.ended = True

    def has_ended(self) -> bool:
        """Whether the device has come to the end of the epoch; asks without waiting."""
        return bool(self.done.query())  # type: ignore[no-untyped-call]

    def loss_values(self, steps: int) -> NDArray[np.float64]:
        """Give the losses of the epoch's first steps: (steps,)."""
        if self.ended:
            self.done.synchronize()
            return self.host_losses.numpy()[:steps].astype(np.float64)
        return self.losses[:steps].double().cpu().numpy()

    def validation_scores(self) -> NDArray[np.float32]:
        """Give the model's scores on the validation images after the epoch: (v, seen)."""
        self.done.synchronize()
        return self.host_scores.numpy().copy()

    def weights_are_finite(self) -> bool:
        """Whether every weight was a number when the epoch ended."""
        self.done.synchronize()
        return bool(self.host_finite)

    def close(self) -> None:
        """Free the graphs, before what they point to goes."""
        torch.cuda.synchronize(self.device)
        for graph in (self.full_step, self.partial_step, self.validation):
            if graph is not None:
                graph.reset()

    def _beside(self, epoch: Epoch) -> PoolBuffers | None:
        if epoch.beside is None:
            return None
        beside = epoch.beside
        self.beside_size = beside.order.shape[1]
        return PoolBuffers.of(beside.pool, beside.order, beside.jitter, self.device)

    def _make_momentum(self) -> None:
        """Start momentum at 0: equal to starting it with the first gradient, but capturable."""
        for group in self.optimiser.param_groups:
            group["lr"] = torch.as_tensor(group["lr"], dtype=torch.float32, device=self.device)
            for parameter in group["params"]:
                state = self.optimiser.state[parameter]
                if state.get("momentum_buffer") is None:
                    state["momentum_buffer"] = torch.zeros_like(parameter)

    def _capture(self) -> None:
        """Capture the three graphs and leave every weight as it was, even where that fails."""
        before = self._snapshot()
        outer = torch.cuda.current_stream(self.device)
        try:
            # A capture that fails may leave its stream behind as the current one.
            with torch.cuda.stream(outer):
                self._capture_graphs(_capturable(outer))
        except RuntimeError:
            free_random_numbers(self.device)
            raise
        finally:
            outer.synchronize()
            self._put_back(before)

    def _capture_graphs(self, side: Any) -> None:
        pool = torch.cuda.graph_pool_handle()
        full, rest = self.images >= self.size, self.images % self.size
        # A search for the fastest kernels pays for the shape of nearly all steps alone.
        with _searching_for_kernels():
            self.full_step = self._step_graph(self.size, side, pool, WARM_UP) if full else None
        warm_up = 1 if full else WARM_UP
        self.partial_step = self._step_graph(rest, side, pool, warm_up) if rest else None
        self.validation = self._graph(self._validate, side, pool, 1)
        self.host_losses = torch.empty_like(self.losses, device="cpu").pin_memory()
        self.host_scores = torch.empty_like(self.scores, device="cpu").pin_memory()
        self.host_finite = torch.empty_like(self.finite, device="cpu").pin_memory()

    def _step_graph(self, size: int, side: Any, pool: Any, warm_up: int) -> torch.cuda.CUDAGraph:
        return self._graph(lambda: self._train(size), side, pool, warm_up)

    def _graph(self, work: Any, side: Any, pool: Any, warm_up: int) -> torch.cuda.CUDAGraph:
        outer = torch.cuda.current_stream(self.device)
        side.wait_stream(outer)
        try:
            with torch.cuda.stream(side):
                for _ in range(warm_up - 1):
                    self._try(work)
                self._refuse_what_replays_wrongly(work)
                self.optimiser.zero_grad(set_to_none=True)
        finally:
            outer.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        # Other runs of a fleet go on while this one is captured: only this thread's work counts.
        with torch.cuda.graph(graph, pool=pool, stream=side, capture_error_mode="thread_local"):
            work()
        return graph

    def _try(self, work: Any) -> None:
        self.step.zero_()
        work()

    def _refuse_what_replays_wrongly(self, work: Any) -> None:
        """Do the work once more and see what it leaves behind, before it is captured.

        A replay repeats the arithmetic on the same addresses, and no line of Python: numbers would
        be drawn without the step's seed, or once for all, and a new tensor would stay unknown.
        """
        with self.learner.machine.seeded(0):
            drawn = random_states(self.device)
            with waiting_is_an_error(self.device):
                self._try(work)
            if drawn != random_states(self.device):
                raise RuntimeError("a step draws random numbers")
        now = [tensor.data_ptr() for tensor in self._tensors()]
        if now != [tensor.data_ptr() for tensor in self.tensors_before]:
            raise RuntimeError("a step puts new tensors in the place of weights or buffers")
        if not self.method_before.can_be_replayed(self.learner.method):
            raise RuntimeError(
                "the method changes what a replay would not: tensors of its own must stay in "
                "their places on the device"
            )

    def _train(self, size: int) -> None:
        learner = self.learner
        learner.model.train()
        self.optimiser.zero_grad(set_to_none=True)
        batch = self.pool.batch(self.step * self.size, size, learner)
        reference = None
        if self.beside is not None:
            at = self.step * self.beside_size
            reference = self.beside.batch(at, self.beside_size, learner)
        with learner.machine.autocast():
            loss = learner.method.backward(batch, reference)
        self.optimiser.step()
        self.losses.index_copy_(0, self.step[None], loss.float()[None])
        self.step += 1

    @torch.no_grad()
    def _validate(self) -> None:
        learner = self.learner
        learner.model.eval()
        pixels: ResidentPixels = learner.train_pixels  # type: ignore[assignment]
        parts = []
        # No rows would be split into one part of none.
        chosen = torch.split(self.valid_rows, learner.at_once) if len(self.valid_rows) else ()
        for rows in chosen:
            with learner.machine.autocast():
                parts.append(learner.model(prepare(pixels.data[rows], learner.preparation)).float())
        self.scores = torch.cat(parts) if parts else torch.zeros((0, 0), device=self.device)
        self.finite = weights_are_finite(learner.model)

    @torch.no_grad()
    def _snapshot(self) -> list[Tensor]:
        """Copy all that the steps before a capture change.

        Copies that know what they were copied from would keep the places where gradients are
        summed, and with them this stream: a capture on another one would not be allowed there.
        """
        self.method_before = MethodState.of(self.learner.method, self.device)
        self.tensors_before = self._tensors()
        modules = [module for model in self._models() for module in model.modules()]
        self.buffers_before = [(module, dict(module._buffers)) for module in modules]
        return [tensor.clone() for tensor in self.tensors_before]

    def _put_back(self, before: list[Tensor]) -> None:
        # A step may have put others in the place of buffers, of another shape, or one more.
        for module, buffers in self.buffers_before:
            module._buffers.clear()
            module._buffers.update(buffers)
        with torch.no_grad():
            for tensor, was in zip(self.tensors_before, before, strict=True):
                tensor.copy_(was)
            self.method_before.put_back(self.learner.method)
        self.losses.zero_()

    def _tensors(self) -> list[Tensor]:
        groups = self.optimiser.param_groups
        momentum = [self.optimiser.state[p]["momentum_buffer"] for g in groups for p in g["params"]]
        return [t for m in self._models() for t in (*m.parameters(), *m.buffers())] + momentum

    def _models(self) -> list[Model]:
        teacher = self.learner.method.teacher
        return [self.learner.model] if teacher is None else [self.learner.model, teacher]


def _capturable(stream: Any) -> Any:
    """Give a run's own stream, or another for the default one, which cannot be captured.

    Its own, because libraries have one workspace a stream: graphs of two runs that were captured
    on the same stream would write into the same one at the same time.
    """
    if stream != torch.cuda.default_stream(stream.device):
        return stream
    return torch.cuda.Stream(stream.device)  # type: ignore[no-untyped-call]
