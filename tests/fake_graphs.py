"""CUDA graphs on a CPU, for what can be known of them without a GPU.

A capture notes every operation of PyTorch with the tensors it used, a replay does them again on
the same tensors. What a step does with buffers, cursors and addresses is as on a GPU; streams,
races and speed are not. Memory that a capture makes for itself holds rubbish before every replay,
as where other graphs of the same pool have used it meanwhile. Unlike a real one, a capture also
computes, and a replay repeats what a step does to a method's tensors on the host.
"""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from polarbear.engine.steps import captured as captured_module
from polarbear.engine.steps import choice
from polarbear.engine.steps.captured import CapturedSteps, Graphs
from polarbear.engine.steps.capturing import Capture


class Notes(TorchDispatchMode):
    """Notes operations; refuses those that wait for the device, as a capture does."""

    def __init__(self, taken: list[Any]) -> None:
        super().__init__()
        self.taken = taken

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("operation not permitted when stream is capturing")
        result = func(*args, **(kwargs or {}))
        self.taken.append((func, args, kwargs or {}, result))
        return result


class FakeGraph:
    """Operations that were noted and can be done again."""

    def __init__(self) -> None:
        self.operations: list[Any] = []
        self.notes = Notes(self.operations)
        self.pool: list[FakeGraph] = []
        self.made: list[torch.Tensor] = []

    def capture_begin(self, pool: "list[FakeGraph]", capture_error_mode: str) -> None:
        """Note what is done from now on."""
        assert capture_error_mode == "thread_local"
        self.pool = pool
        self.notes.__enter__()

    def capture_end(self) -> None:
        """Note no more."""
        self.notes.__exit__(None, None, None)
        self.made = _made_by(self.operations)
        self.pool.append(self)

    def replay(self) -> None:
        for graph in self.pool:
            for memory in graph.made:
                _spoil(memory)
        with torch.no_grad():
            below = torch._C._AutoDispatchBelowAutograd()
            for func, args, kwargs, results in self.operations:
                again = tree_leaves(func(*args, **kwargs))
                for result, new in zip(tree_leaves(results), again, strict=True):
                    if isinstance(result, torch.Tensor) and result is not new and result.numel():
                        result.copy_(new)
            del below

    def reset(self) -> None:
        self.operations, self.made = [], []
        self.pool.remove(self)


def _made_by(operations: list[Any]) -> list[torch.Tensor]:
    """Return the memory that operations made, flat, and did not find."""
    found, made = set(), {}
    for _, args, kwargs, results in operations:
        for tensor in _tensors((args, kwargs)):
            if (place := tensor.untyped_storage().data_ptr()) not in made:
                found.add(place)
        for tensor in _tensors(results):
            if (place := tensor.untyped_storage().data_ptr()) not in found:
                made.setdefault(place, tensor)
    return [torch.empty(0, dtype=t.dtype).set_(t.untyped_storage()) for t in made.values()]


def _tensors(of: Any) -> list[torch.Tensor]:
    return [t for t in tree_leaves(of) if isinstance(t, torch.Tensor) and t.numel()]


def _spoil(memory: torch.Tensor) -> None:
    if memory.dtype == torch.bool:
        memory.fill_(True)
    else:
        real = memory.is_floating_point()
        memory.fill_(torch.nan if real else torch.iinfo(memory.dtype).max)


class FakeStream:
    """Work that is done at once."""

    device = torch.device("cpu")

    def __init__(self, *_: object) -> None: ...

    def wait_stream(self, other: object) -> None: ...

    def wait_event(self, event: object) -> None: ...

    def synchronize(self) -> None: ...


class FakeEvent:
    """Comes to pass at the second time of asking."""

    asked = 0

    def record(self, stream: object) -> None:
        self.asked = 0

    def query(self) -> bool:
        self.asked += 1
        return self.asked > 1

    def synchronize(self) -> None: ...


class FusedSGD(torch.optim.SGD):
    """The only one that takes its rate from a tensor, as the captured steps do."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more | {"fused": True})


class FusedAdamW(torch.optim.AdamW):
    """The same of AdamW: it counts its steps on the device, too."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more | {"fused": True})


def install(patch: pytest.MonkeyPatch) -> list[CapturedSteps]:
    """Put the fakes in place; gives the list that tasks are added to once they are captured."""
    tried: list[CapturedSteps] = []
    captured: list[CapturedSteps] = []
    inner = CapturedSteps._graphs

    def graphs(self: CapturedSteps, capture: Capture) -> Graphs:
        tried.append(self)
        made = inner(self, capture)
        captured.append(self)
        return made

    def graph() -> FakeGraph:
        tried[-1].step.zero_()  # a real capture does not compute, and so needs no place
        return FakeGraph()

    patch.setattr(CapturedSteps, "_graphs", graphs)
    patch.setattr(choice, "can_capture", lambda learner: True)
    patch.setattr(captured_module, "STEPS_A_TURN", 2)
    for name, fake in {
        "CUDAGraph": graph,
        "Stream": FakeStream,
        "stream": lambda stream: nullcontext(),
        "current_stream": FakeStream,
        "default_stream": FakeStream,
        "Event": FakeEvent,
        "graph_pool_handle": list,
    }.items():
        patch.setattr(torch.cuda, name, fake)
    patch.setattr(torch.Tensor, "pin_memory", torch.Tensor.clone)
    patch.setattr(torch.optim, "SGD", FusedSGD)
    patch.setattr(torch.optim, "AdamW", FusedAdamW)
    return captured
