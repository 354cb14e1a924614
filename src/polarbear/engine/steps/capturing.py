"""How work is captured as a CUDA graph, and what PyTorch needs around it."""

import pickle
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from polarbear.engine.steps.attributes import Attributes
from polarbear.engine.task.learner import Learner
from polarbear.engine.task.optimiser import drop_gradients, state_tensors


@dataclass(frozen=True, eq=False)
class Before:
    """Weights, buffers, attributes of a learner, its optimiser's state, and copies of all of it."""

    learner: Learner
    optimiser: torch.optim.Optimizer
    tensors: list[Tensor]
    copies: list[Tensor]
    buffers: list[tuple[nn.Module, dict[str, Tensor | None]]]
    logged: dict[str, Tensor]
    attributes: Attributes
    places: "Places"
    slots: list[int]

    @classmethod
    @torch.no_grad()
    def of(cls, learner: Learner, optimiser: torch.optim.Optimizer) -> "Before":
        """Copy all that steps change.

        Copies that know what they were copied from would keep the places where gradients are
        summed, and with them this stream: a capture on another one would not be allowed there.
        """
        slots = _slots(learner, optimiser)
        tensors = _weights(learner) + slots
        modules = [part for module in _modules(learner) for part in module.modules()]
        if any(isinstance(part, torch.jit.ScriptModule) for part in modules):
            raise RuntimeError("a network has parts in TorchScript, whose tensors are out of sight")
        buffers = [(module, dict(module._buffers)) for module in modules]
        logged = {name: total.clone() for name, total in learner.method.logged.items()}
        copies = [torch.empty_like(tensor) for tensor in tensors]
        copy_all(copies, tensors)
        looked_at = (Attributes.of(learner), Places(learner, frozen_too=True), _addresses(slots))
        return cls(learner, optimiser, tensors, copies, buffers, logged, *looked_at)

    def are_in_place(self) -> bool:
        """Whether every tensor is still where it was, and none has come: a replay sees no other."""
        slots = _addresses(_slots(self.learner, self.optimiser))
        return not self.places.have_moved() and slots == self.slots

    @torch.no_grad()
    def put_back(self) -> None:
        """Bring all values back to where they were."""
        # A step may have put others in the place of buffers, of another shape, or one more.
        for module, buffers in self.buffers:
            module._buffers.clear()
            module._buffers.update(buffers)
        copy_all(self.tensors, self.copies)
        for name, total in self.learner.method.logged.items():
            total.copy_(self.logged.get(name, torch.zeros_like(total)))
        self.attributes.put_back()


@dataclass(frozen=True, eq=False)
class Capture:
    """Captures work on ``stream`` into one pool of memory, after it has been tried out there.

    ``step`` is the cursor that the work moves on.
    """

    before: Before
    step: Tensor
    stream: Any
    pool: Any

    def graph(self, work: Callable[[], Any], warm_up: int) -> tuple[torch.cuda.CUDAGraph, Any]:
        """Return the graph of the work, and what the work returned while it was captured."""
        outer = torch.cuda.current_stream(self.step.device)
        self.stream.wait_stream(outer)
        try:
            with torch.cuda.stream(self.stream):
                for _ in range(warm_up - 1):
                    self._try(work)
                self._refuse_what_replays_wrongly(work)
                drop_gradients(self.before.learner.method)
        finally:
            outer.wait_stream(self.stream)
        make_room(self.step.device)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(self.stream), capturing(graph, self.pool):
            found = work()
        return graph, found

    def _try(self, work: Callable[[], Any]) -> None:
        self.step.zero_()
        work()

    def _refuse_what_replays_wrongly(self, work: Callable[[], Any]) -> None:
        """Do the work once more and see what it leaves behind, before it is captured.

        A replay repeats the arithmetic on the same addresses, and no line of Python: numbers would
        be drawn without the step's seed, or once for all, and a new tensor would stay unknown, as
        would a count that goes on in Python.
        """
        device = self.step.device
        with self.before.learner.machine.seeded(0):
            drawn = random_states(device)
            with waiting_is_an_error(device):
                self._try(work)
            if drawn != random_states(device):
                raise RuntimeError("a step draws random numbers")
        if not self.before.are_in_place():
            raise RuntimeError(
                "a step puts new tensors in the place of weights or buffers: change them in place"
            )
        if name := self.before.attributes.changed():
            raise RuntimeError(
                f"a step changes {name}, which a replay would not: keep it in a buffer, "
                "self.register_buffer(name, tensor), and change that in place"
            )


def make_room(device: torch.device) -> None:
    """Give back the memory that PyTorch keeps for later, where the device has less beside it.

    A graph has memory of its own, about as much as the steps before its capture took and left; no
    capture can take theirs, nor give it back once it has begun. To do so waits for all runs.
    """
    if device.type != "cuda":
        return
    free = torch.cuda.mem_get_info(device)[0]
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    # What graphs hold is unused between their steps, too: it is told apart where that matters.
    # Refused where a capture before has failed, and by cudaMallocAsync: then it stays as it is.
    with suppress(RuntimeError):
        if free < unused and free < _unused_by_steps(device):
            torch.cuda.empty_cache()


def _unused_by_steps(device: torch.device) -> int:
    """Count the bytes that PyTorch keeps for steps that are not captured."""
    number = torch.cuda.current_device() if device.index is None else device.index
    segments: list[dict[str, Any]] = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    ours = [s for s in segments if (s["device"], s["segment_pool_id"]) == (number, (0, 0))]
    return sum(segment["total_size"] - segment["allocated_size"] for segment in ours)


@contextmanager
def capturing(graph: torch.cuda.CUDAGraph, pool: Any) -> Iterator[None]:
    """Capture what the current stream is given, while other runs of a fleet go on.

    ``torch.cuda.graph`` would wait for the whole device and empty the cache before it begins: all
    runs would stand still, three times per task of each. :func:`make_room` does so where it must.
    """
    # Only this thread's work counts, whatever other threads do meanwhile.
    graph.capture_begin(pool, capture_error_mode="thread_local")
    try:
        yield
    finally:
        graph.capture_end()


def copy_all(to: list[Tensor], of: list[Tensor]) -> None:
    """Copy tensors, those of one kind in a few kernels: Kin has 4,500."""
    kinds: dict[torch.dtype, tuple[list[Tensor], list[Tensor]]] = {}
    for here, new in zip(to, of, strict=True):
        alike = kinds.setdefault(here.dtype, ([], []))
        alike[0].append(here)
        alike[1].append(new)
    for alike in kinds.values():
        torch._foreach_copy_(*alike)


def _weights(learner: Learner) -> list[Tensor]:
    return [t for m in _modules(learner) for t in (*m.parameters(), *m.buffers())]


def _slots(learner: Learner, optimiser: torch.optim.Optimizer) -> list[Tensor]:
    """Return what steps change beside weights and buffers."""
    reservoir = [] if learner.reservoir is None else learner.reservoir.tensors()
    return state_tensors(optimiser) + reservoir


def _addresses(tensors: list[Tensor]) -> list[int]:
    return [tensor.data_ptr() for tensor in tensors]


class Places:
    """Where weights and buffers are: all that a replay knows of them.

    Looked at before every epoch, while the device waits, and so without a walk through the
    networks: their parts are noted once. Frozen ones are then known by themselves and by their
    first weight, which moves where all do: Kin's 22 would take longer than one of its steps.
    """

    def __init__(self, learner: Learner, *, frozen_too: bool = False) -> None:
        """Note where everything is now, of frozen networks all of it if asked."""
        self.learner = learner
        roots = _modules(learner) if frozen_too else [learner.model, learner.method]
        parts = [part for root in roots for part in root.modules()]
        self.held: list[dict[str, Any]] = [
            held for part in parts for held in (part._modules, part._parameters, part._buffers)
        ]
        self.frozen = [module for module in _modules(learner) if module not in roots]
        self.first = self._now()

    def have_moved(self) -> bool:
        """Whether anything is elsewhere, or something has come or gone."""
        return self._now() != self.first

    def _now(self) -> list[object]:
        held = chain.from_iterable(map(dict.values, self.held))
        firsts = (weight for network in self.frozen for weight in islice(network.parameters(), 1))
        things = chain(_modules(self.learner), held, firsts)
        return [t.data_ptr() if isinstance(t, Tensor) else t for t in things]


def _modules(learner: Learner) -> list[nn.Module]:
    method = learner.method
    networks = (learner.model, method.teacher, method, *method.networks.values())
    return [m for m in networks if m is not None]


@contextmanager
def searching_for_kernels() -> Iterator[None]:
    """Let cuDNN try out its kernels for each shape and take the fastest."""
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


@contextmanager
def waiting_is_an_error(device: torch.device) -> Iterator[None]:
    """Let a step that waits for the device fail here: a failed capture may spoil later ones."""
    if device.type != "cuda":
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        # It does not see every wait; a capture fails by those that it misses.
        warnings.filterwarnings("ignore", message="Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def free_random_numbers(device: torch.device) -> None:
    """Let eager steps draw again: PyTorch's generator may still wait for a failed capture."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            ours = torch.cuda.default_generators[torch.cuda.current_device()]
        state = ours.get_state()
        ours.graphsafe_set_state(torch.Generator(device).graphsafe_get_state())
        ours.set_state(state)


def random_states(device: torch.device) -> list[bytes]:
    """Return the states of all generators that a step might draw from."""
    states = [torch.default_generator.get_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    # Numbers from elsewhere are no method's to draw, but would be drawn once for all steps.
    elsewhere = np.random.get_state(legacy=False), random.getstate()  # noqa: NPY002
    return [*(state.numpy().tobytes() for state in states), pickle.dumps(elsewhere)]
