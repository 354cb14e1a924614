"""Captured steps, with fake graphs on a CPU; `test_fleet.py` has the real ones, for a GPU."""

import itertools
import logging
import operator
import random
import warnings
from array import array
from collections import deque
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fake_graphs
from engine_run import (
    TinyNetwork,
    scores_of_seeds,
    shapes_stream,
    standard_errors_apart,
    tiny,
    trainer_for,
)
from polarbear.benchmark.stream import Stream
from polarbear.engine.contract.batch import Batch, TaskContext
from polarbear.engine.contract.method import frozen_copy
from polarbear.engine.steps.attributes import Attributes, Walk
from polarbear.engine.steps.captured import CapturedSteps
from polarbear.engine.steps.capturing import (
    Before,
    Capture,
    Places,
    capturing,
    copy_all,
    make_room,
)
from polarbear.engine.task.learner import Learner
from polarbear.engine.trainer import Progress, Trainer
from polarbear.launch.runner import resume, run
from polarbear.methods.er import ER
from polarbear.runs.folder import RunFolder

pytestmark = pytest.mark.usefixtures("one_thread")


FIRST_TASK = len(shapes_stream()[0].train)


@pytest.fixture
def captured(monkeypatch: pytest.MonkeyPatch) -> list[CapturedSteps]:
    return fake_graphs.install(monkeypatch)


def epochs(
    folder: Path, method: str = "er", stream: Stream | None = None, **changes: Any
) -> list[dict[str, Any]]:
    settings = tiny(method, learning_rate=0.1, **changes)
    assert run(settings, folder, stream=stream or shapes_stream())
    lines = list(RunFolder(folder).lines("epochs"))
    return [{k: line[k] for k in ("task", "epoch", "loss", "rate", "valid")} for line in lines]


def assert_same(folder: Path, method: str = "er", **changes: Any) -> None:
    fast = epochs(folder / "fast", method, **changes)
    slow = epochs(folder / "slow", method, graph=False, **changes)
    assert fast == [pytest.approx(line) for line in slow]


@pytest.mark.parametrize(
    "method", ["finetune", "er", "mask-seen", "agem", "icarl-cnn", "icarl-norm", "lucir"]
)
def test_replayed_steps_are_the_eager_ones(
    captured: list[CapturedSteps], tmp_path: Path, method: str
) -> None:
    assert_same(tmp_path, method)
    assert len(captured) == 3


def test_what_a_fake_graph_made_for_itself_is_gone_before_the_next_replay() -> None:
    pool: list[fake_graphs.FakeGraph] = []
    first, second = fake_graphs.FakeGraph(), fake_graphs.FakeGraph()
    weight = torch.ones(2)
    with capturing(cast(Any, first), pool):
        left = weight * 2
        weight.add_(left)
    with capturing(cast(Any, second), pool):
        weight.add_(left)
    weight.fill_(1)
    first.replay()
    assert weight.tolist() == [3, 3]
    second.replay()
    assert weight.isnan().all()


@pytest.mark.usefixtures("cpu_bf16")
def test_captured_steps_in_bf16_score_as_eager_ones_in_fp32(
    captured: list[CapturedSteps], tmp_path: Path
) -> None:
    fast = scores_of_seeds(tmp_path / "fast", precision="bf16")
    slow = scores_of_seeds(tmp_path / "slow", precision="fp32", graph=False)
    assert len(captured) == 20
    assert standard_errors_apart(fast, slow) < 2
    halved = scores_of_seeds(tmp_path / "halved", batch_size=64, graph=False)  # half the steps
    assert standard_errors_apart(halved, slow) > 4


@pytest.mark.parametrize("size", [FIRST_TASK - 1, FIRST_TASK, FIRST_TASK + 1, 5000])
def test_batches_of_any_size_beside_the_tasks(
    captured: list[CapturedSteps], tmp_path: Path, size: int
) -> None:
    assert_same(tmp_path, batch_size=size)
    assert len(captured) == 3


def test_a_run_resumed_among_captured_steps_ends_the_same(
    captured: list[CapturedSteps], tmp_path: Path
) -> None:
    settings = tiny("agem", learning_rate=0.1)
    assert run(settings, tmp_path / "whole", stream=shapes_stream())
    pauses = 0

    def stop(trainer: Trainer, progress: Progress) -> None:
        nonlocal pauses
        pauses += 1
        if pauses == 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(settings, tmp_path / "broken", stream=shapes_stream(), on_step=stop, save_every=0)
    assert resume(tmp_path / "broken", stream=shapes_stream())
    assert len(captured) == 3 + 4
    whole, broken = (losses(tmp_path / name) for name in ("whole", "broken"))
    assert broken == whole


def losses(folder: Path) -> list[float]:
    return [line["loss"] for line in RunFolder(folder).lines("epochs")]


class DrawingER(ER):
    """ER whose loss is weighed at random."""

    def loss(self, batch: Batch) -> Tensor:
        return super().loss(batch) * torch.rand(())


class CountingER(ER):
    """ER that adds up what it has seen, in a buffer."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.register_buffer("images", torch.zeros(1))

    def loss(self, batch: Batch) -> Tensor:
        self.images += len(batch.images)
        return super().loss(batch)


class ReplacingER(CountingER):
    """The same, with another tensor at every step."""

    def loss(self, batch: Batch) -> Tensor:
        self.images = self.images + len(batch.images)
        return ER.loss(self, batch)


class OldER(ER):
    """The same, in a tensor that a checkpoint keeps as it was done before there were buffers."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.images = torch.zeros(())

    def loss(self, batch: Batch) -> Tensor:
        self.images += len(batch.images)
        return super().loss(batch)

    def state(self) -> dict[str, Tensor]:
        return {"images": self.images}

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.images = state["images"]


class GrowingER(CountingER):
    """A method that notes each step's images in a tensor one longer."""

    def loss(self, batch: Batch) -> Tensor:
        self.images = torch.cat([self.images, torch.tensor([float(len(batch.images))])])
        return ER.loss(self, batch)


class LateER(ER):
    """A method that has no tensor of its own before its first step."""

    def loss(self, batch: Batch) -> Tensor:
        if not self.state():
            self.register_buffer("images", torch.zeros(()))
        self.images += len(batch.images)
        return super().loss(batch)


class PythonER(ER):
    """A method that counts its steps in Python."""

    steps = 0

    def loss(self, batch: Batch) -> Tensor:
        self.steps += 1
        return super().loss(batch)

    def state(self) -> dict[str, Tensor]:
        return {"steps": torch.tensor(self.steps)}

    def load_state(self, state: dict[str, Tensor]) -> None:
        self.steps = int(state["steps"])


class StepsER(ER):
    """A method that counts its steps in Python and weighs them by the count."""

    steps = 0

    def loss(self, batch: Batch) -> Tensor:
        self.steps += 1
        return super().loss(batch) / self.steps


class MeanER(ER):
    """A method that holds on to a moving mean of its losses, in a tensor that is no buffer."""

    def begin_task(self, context: TaskContext) -> None:
        self.mean = torch.zeros(())

    def loss(self, batch: Batch) -> Tensor:
        loss = super().loss(batch)
        self.mean = 0.9 * self.mean + 0.1 * loss.detach()
        return loss + (loss - self.mean) ** 2


class InPlaceER(MeanER):
    """The same, changed in place."""

    def loss(self, batch: Batch) -> Tensor:
        loss = ER.loss(self, batch)
        self.mean.lerp_(loss.detach(), 0.1)
        return loss + (loss - self.mean) ** 2


class IteratingER(ER):
    """A method that takes its weights from an iterator."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.turns = itertools.cycle([1.0, 2.0])

    def loss(self, batch: Batch) -> Tensor:
        return super().loss(batch) * next(self.turns)


class Slotted:
    """An object that counts, without a __dict__."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class Counts:
    """An object that counts, of which a method keeps no more than what counts."""

    calls = 0

    def count(self) -> int:
        self.calls += 1
        return self.calls


class KeepsER(ER):
    """A method that keeps things of many kinds, of which a step changes the one in ``where``."""

    where = ""
    shared: ClassVar[list[int]] = []
    total = 0

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.log = logging.getLogger("a method's own")
        self.table = {"inner": [1, {"deep": 2}]}
        self.past = deque([1.0], maxlen=3)
        self.names = {"bear"}
        self.array = np.zeros(2)
        self.numpy = np.random.default_rng(0)
        self.torch = torch.Generator()
        self.plain = random.Random(0)
        self.slotted = Slotted()
        self.pair = (float("nan"), [self.slotted])
        self.layer = nn.ReLU()
        self.layer.calls = 0
        self.integers = array("i", [0])
        self.tensor = torch.zeros(())
        self.bound = Counts().count
        self.given = partial(operator.iadd, [0])

    def loss(self, batch: Batch) -> Tensor:
        drawn = {
            "": lambda: None,
            "self.table['inner'][1]": lambda: self.table["inner"][1].update(deep=self.deep() + 1),
            "self.past": lambda: self.past.append(self.past[-1] + 1),
            "self.names": lambda: self.names.add(str(len(self.names))),
            "self.array": lambda: self.array.fill(self.array[0] + 1),
            "self.numpy": self.numpy.random,
            "self.torch": lambda: torch.rand((), generator=self.torch),
            "self.plain": self.plain.random,
            "self.slotted.count": lambda: setattr(self.slotted, "count", self.slotted.count + 1),
            "self.pair": lambda: setattr(self, "pair", (0.0, [])),
            "self.layer.calls": lambda: setattr(self.layer, "calls", self.layer.calls + 1),
            "self.integers": lambda: self.integers.append(1),
            "self.tensor": lambda: setattr(self.tensor, "data", self.tensor + 1),
            "self.bound.__self__.calls": self.bound,
            "self.given.args[0]": lambda: len(self.given([1])),
            "KeepsER.shared": lambda: self.shared.append(1),
            "KeepsER.total": lambda: setattr(KeepsER, "total", KeepsER.total + 1),
            "self.new": lambda: setattr(self, "new", 1),
        }[self.where]()
        kept = (self.deep(), *self.past, len(self.names), self.array[0], self.slotted.count)
        more = (self.layer.calls, len(self.shared), self.total, self.pair[0] == 0)
        factor = 1 + 0.1 * float(sum(kept) + sum(more) + self.integers[-1]) + float(drawn or 0)
        return super().loss(batch) * (factor + self.tensor)

    def deep(self) -> int:
        return self.table["inner"][1]["deep"]


WHERE = [
    *("self.table['inner'][1]", "self.past", "self.names", "self.array", "self.numpy"),
    *("self.torch", "self.plain", "self.slotted.count", "self.pair", "self.layer.calls"),
    *("KeepsER.shared", "KeepsER.total", "self.new", "self.integers", "self.tensor"),
    *("self.bound.__self__.calls", "self.given.args[0]"),
]


class CallsNetwork(TinyNetwork):
    """A network that counts its calls in Python and says more with each."""

    calls = 0

    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            self.calls += 1
        return super().forward(images) * (1 + self.calls)


class LateMeasureER(ER):
    """A method whose loss weighs what its last validation said, which Python alone knows."""

    weight = 1.0

    def loss(self, batch: Batch) -> Tensor:
        return super().loss(batch) * self.weight

    def measure(self, scores: Tensor, targets: Tensor) -> float:
        self.weight = 1 + abs(float(scores.mean()))
        return 0.5


class ReplacingNetwork(TinyNetwork):
    """A network that puts another tensor in the place of a buffer at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, images: Tensor) -> Tensor:
        if self.training:
            self.steps = self.steps + 1
        return super().forward(images)


class PassesNetwork(ReplacingNetwork):
    """A network that does so in validation, too."""

    def forward(self, images: Tensor) -> Tensor:
        self.steps = self.steps + 1
        return TinyNetwork.forward(self, images)


class CachingNetwork(TinyNetwork):
    """A network with an index as long as the batch, made anew for a batch of another size."""

    def __init__(self) -> None:
        super().__init__()
        self.layers.register_buffer("index", torch.arange(2), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        if len(self.layers.index) != len(images):
            self.layers.index = torch.arange(len(images))
        return super().forward(images)


class LateNetwork(TinyNetwork):
    """A network that makes a buffer at its first training step."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", None, persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        if self.training and self.mask is None:
            self.mask = torch.ones(8)
        features = super().forward(images)
        return features if self.mask is None else features * self.mask


class ScriptedNetwork(TinyNetwork):
    """A network with a part in TorchScript, which keeps its tensors out of Python's sight."""

    def __init__(self) -> None:
        super().__init__()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch would rather have no new ones
            self.layers[0] = torch.jit.script(self.layers[0])


class NumpyDrawingER(ER):
    """ER whose loss is weighed at random, by NumPy."""

    def loss(self, batch: Batch) -> Tensor:
        return super().loss(batch) * float(np.random.beta(1, 1))  # noqa: NPY002


class PlainDrawingER(ER):
    """The same, by Python."""

    def loss(self, batch: Batch) -> Tensor:
        return super().loss(batch) * random.random()


class MovingTeacherER(ER):
    """ER whose teacher follows the model and pulls it back."""

    wants_teacher = True

    def loss(self, batch: Batch) -> Tensor:
        loss = super().loss(batch)
        if self.teacher is None:
            return loss
        pairs = zip(self.teacher.parameters(), self.model.parameters(), strict=True)
        for kept, moving in [pair for pair in pairs if pair[0].shape == pair[1].shape]:
            kept.data.lerp_(moving.data, 0.5)
            loss = loss + ((moving - kept) ** 2).sum()
        return loss


class MaskedNetwork(TinyNetwork):
    """A network with a buffer that holds an infinity on purpose."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tensor([0.0, float("-inf")]))


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"method": "test_graphed:DrawingER"}, "draws random numbers"),
        ({"method": "er", "network": "engine_run:dropping_network"}, "draws random numbers"),
        ({"method": "test_graphed:ReplacingER"}, "weights or buffers"),
        ({"method": "test_graphed:GrowingER"}, "weights or buffers"),
        ({"method": "test_graphed:LateER"}, "weights or buffers"),
        ({"method": "test_graphed:OldER"}, "self.register_buffer"),
        ({"method": "test_graphed:PythonER"}, "self.register_buffer"),
        ({"method": "test_graphed:StepsER"}, "a step changes self.steps, which a replay would not"),
        ({"method": "test_graphed:MeanER"}, "a step changes self.mean, which"),
        ({"method": "test_graphed:InPlaceER"}, "a step changes self.mean, which"),
        ({"method": "test_graphed:IteratingER"}, "self.turns is an iterator"),
        (
            {"method": "er", "network": "test_graphed:CallsNetwork"},
            "a step changes self.model.backbone.calls, which",
        ),
        ({"method": "er", "network": "test_graphed:ReplacingNetwork"}, "weights or buffers"),
        ({"method": "er", "network": "test_graphed:CachingNetwork"}, "weights or buffers"),
        ({"method": "er", "network": "test_graphed:LateNetwork"}, "weights or buffers"),
        ({"method": "er", "network": "test_graphed:ScriptedNetwork"}, "parts in TorchScript"),
    ],
)
def test_steps_that_a_replay_would_get_wrong_are_not_captured(
    captured: list[CapturedSteps],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    changes: dict[str, str],
    why: str,
) -> None:
    with caplog.at_level(logging.WARNING, "polarbear"):
        assert_same(tmp_path, **changes)
    assert [why in message for message in caplog.messages if "captured" in message] == [True]
    assert not captured


@pytest.mark.parametrize("where", ["", *WHERE])
def test_whatever_a_step_changes_in_python_is_named_and_trained_as_it_says(
    captured: list[CapturedSteps],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
) -> None:
    monkeypatch.setattr(KeepsER, "where", where)
    found = {}
    for graph in (True, False):
        monkeypatch.setattr(KeepsER, "shared", [])
        monkeypatch.setattr(KeepsER, "total", 0)
        found[graph] = epochs(tmp_path / str(graph), "test_graphed:KeepsER", graph=graph, tasks=1)
    assert found[True] == [pytest.approx(line) for line in found[False]]
    assert bool(captured) == (where == "")
    told = [
        f"a step changes {where}, which" in text for text in caplog.messages if "captured" in text
    ]
    assert told == ([True] if where else [])


def test_what_a_context_looks_up_is_not_gone_through() -> None:
    learner, walk = object.__new__(Learner), Walk(set())
    walk.look("self.look_up", partial(learner.class_images, 0))
    assert id(learner) not in walk.seen  # else a run's images would be copied at every capture


def test_what_changes_between_epochs_ends_captured_steps(
    captured: list[CapturedSteps], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changes = {"epochs": 3, "stream": shapes_stream(40)}
    fast = epochs(tmp_path / "fast", "test_graphed:LateMeasureER", **changes)
    told = ["self.weight has changed between two epochs" in text for text in caplog.messages]
    slow = epochs(tmp_path / "slow", "test_graphed:LateMeasureER", graph=False, **changes)
    assert len(captured) == 1
    assert told == [True]
    assert fast == [pytest.approx(line) for line in slow]


@pytest.mark.parametrize("device", ["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
def test_tensors_of_all_kinds_and_shapes_are_copied_to_the_bit(device: str) -> None:
    channels_last = torch.randn(3, 4, 5, 6).to(memory_format=torch.channels_last)
    values = torch.tensor([-0.0, float("nan"), float("inf"), 1e-45])
    whole = torch.tensor(7), torch.arange(5), torch.tensor([True, False])
    empty = torch.empty(0, 3)
    # A GPU copies a NaN of bf16 by way of fp32, where it may lose its sign: an H200 did.
    short = values[~values.isnan()].bfloat16()
    of = [t.to(device) for t in (channels_last, values, *whole, empty, short)]
    to = [torch.empty_like(tensor) for tensor in of]
    copy_all(to, of)
    for here, new in zip(to, of, strict=True):
        assert here.stride() == new.stride()
        assert here.cpu().contiguous().view(-1).view(torch.uint8).tolist() == (
            new.cpu().contiguous().view(-1).view(torch.uint8).tolist()
        )


def _moved(learner: Learner) -> None:
    weight = learner.model.head.weight
    weight.data = weight.data.clone()


def _replaced(learner: Learner) -> None:
    norm = next(m for m in learner.model.modules() if isinstance(m, nn.BatchNorm2d))
    norm.running_mean = norm.running_mean.clone()


def _come(learner: Learner) -> None:
    learner.method.register_buffer("late", torch.zeros(2))


def _gone(learner: Learner) -> None:
    learner.model.head.register_parameter("bias", None)


def _another_part(learner: Learner) -> None:
    learner.model.backbone = nn.Sequential(learner.model.backbone)


def _another_teacher(learner: Learner) -> None:
    learner.method.teacher = frozen_copy(learner.model)


@pytest.mark.parametrize(
    "change", [_moved, _replaced, _come, _gone, _another_part, _another_teacher]
)
def test_weights_that_are_elsewhere_are_noticed(change: Callable[[Learner], None]) -> None:
    learner = trainer_for(tiny("er", network="small"))[0].learner
    learner.method.teacher = frozen_copy(learner.model)
    places = [Places(learner), Places(learner, frozen_too=True)]
    with torch.no_grad():
        learner.model.head.weight += 1
    assert [one.have_moved() for one in places] == [False, False]
    change(learner)
    assert [one.have_moved() for one in places] == [True, True]


def test_a_frozen_network_is_looked_into_before_a_capture_and_known_by_its_first_weight() -> None:
    learner = trainer_for(tiny("er", network="small"))[0].learner
    teacher = learner.method.teacher = frozen_copy(learner.model)
    places, thorough = Places(learner), Places(learner, frozen_too=True)
    teacher.head.weight.data = teacher.head.weight.data.clone()
    assert (places.have_moved(), thorough.have_moved()) == (False, True)
    learner.method.teacher = deepcopy(teacher)
    assert places.have_moved()
    learner.method.teacher = teacher
    assert not places.have_moved()
    for weight in teacher.parameters():
        weight.data = weight.data.clone()
    assert places.have_moved()


def _equal_list(method: Any) -> None:
    method.kept = [1, 2]


def _other_name(method: Any) -> None:
    method.other = method.none
    del method.none


def _other_number(method: Any) -> None:
    method.number = 1.0


def _one_more(method: Any) -> None:
    method.more = None


@pytest.mark.parametrize(
    ("change", "names"),
    [
        (_equal_list, {"self.kept"}),
        (_other_name, {"self.none", "self.other"}),
        (_other_number, {"self.number"}),
        (_one_more, {"self.more"}),
        (lambda method: method.kept.append(3), {"self.kept"}),
        (lambda method: method.eval(), {None}),
    ],
)
def test_attributes_are_the_same_things_by_the_same_names(
    change: Callable[[Any], None], names: set[str | None]
) -> None:
    learner = trainer_for(tiny("er"))[0].learner
    method: Any = learner.method
    method.kept, method.none, method.number = [1, 2], None, 1
    attributes = Attributes.of(learner)
    assert attributes.changed() is None
    change(method)
    assert attributes.changed() in names


@pytest.mark.parametrize("method", ["NumpyDrawingER", "PlainDrawingER"])
def test_numbers_drawn_elsewhere_are_not_drawn_once_for_all(
    captured: list[CapturedSteps], tmp_path: Path, method: str
) -> None:
    epochs(tmp_path / "run", f"test_graphed:{method}", tasks=1)
    assert not captured


def test_the_steps_before_a_capture_leave_no_trace_in_a_teacher(
    captured: list[CapturedSteps], tmp_path: Path
) -> None:
    assert_same(tmp_path, "test_graphed:MovingTeacherER")
    assert len(captured) == 3


def test_a_capture_that_fails_leaves_the_weights_as_they_were(
    captured: list[CapturedSteps],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(capture: Capture, work: Callable[[], None], warm_up: int) -> None:
        work()  # the steps before a capture move the weights
        try:
            raise RuntimeError("operation not permitted when stream is capturing")
        finally:
            raise RuntimeError("operation failed due to a previous error during capture")

    monkeypatch.setattr(Capture, "graph", fail)
    assert_same(tmp_path)
    assert "cannot be captured" in caplog.text
    assert "operation not permitted" in caplog.text
    assert "previous error" not in caplog.text


@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
@pytest.mark.parametrize(("free", "emptied"), [(40, 0), (30, 0), (29, 1)])
def test_memory_kept_for_later_is_given_back_where_a_capture_may_need_it(
    monkeypatch: pytest.MonkeyPatch, free: int, emptied: int, device: str
) -> None:
    def segment(device: int, pool: tuple[int, int], total: int, allocated: int) -> dict[str, Any]:
        sizes = {"total_size": total, "allocated_size": allocated}
        return {"device": device, "segment_pool_id": pool, **sizes}

    calls: list[str] = []
    ours = [segment(1, (0, 0), 25, 10), segment(1, (0, 0), 15, 0)]
    others = [segment(0, (0, 0), 90, 0), segment(1, (0, 3), 20, 10)]  # another GPU's, a graph's
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 60)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 20)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (free, 100))
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: ours + others)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append("emptied"))
    make_room(torch.device("cpu"))
    make_room(torch.device(device))
    assert len(calls) == emptied


@pytest.mark.parametrize("what", ["empty_cache", "memory_snapshot"])
def test_memory_that_cannot_be_given_back_ends_no_capture(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    def refuse() -> None:
        calls.append("asked")
        raise RuntimeError("not with a capture underway, nor with cudaMallocAsync")

    calls: list[str] = []
    kept = {"device": 0, "segment_pool_id": (0, 0), "total_size": 60, "allocated_size": 20}
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 60)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 20)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (10, 100))
    monkeypatch.setattr(torch.cuda, "memory_snapshot", lambda: [kept])
    monkeypatch.setattr(torch.cuda, what, refuse)
    make_room(torch.device("cuda:0"))
    assert calls == ["asked"]


def test_no_copy_binds_gradients_to_the_stream_before_a_capture(
    captured: list[CapturedSteps], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies: list[torch.Tensor] = []
    inner = Before.put_back

    def put_back(before: Before) -> None:
        copies.extend(before.copies)
        inner(before)

    monkeypatch.setattr(Before, "put_back", put_back)
    run(tiny("er", tasks=1), tmp_path / "run", stream=shapes_stream())
    assert captured
    assert copies
    assert not any(copy.requires_grad for copy in copies)


@pytest.mark.parametrize("method", ["CountingER", "ReplacingER", "OldER", "GrowingER", "PythonER"])
def test_the_steps_before_a_capture_leave_no_trace_in_a_method(
    captured: list[CapturedSteps], tmp_path: Path, method: str
) -> None:
    seen: dict[bool, Any] = {}

    def look(graph: bool) -> Callable[[Trainer, Progress], None]:
        def on_step(trainer: Trainer, progress: Progress) -> None:
            (seen[graph],) = (t.tolist() for t in trainer.learner.method.state().values())

        return on_step

    for graph in (True, False):
        settings = tiny(f"test_graphed:{method}", graph=graph)
        run(settings, tmp_path / str(graph), stream=shapes_stream(), on_step=look(graph))
    assert bool(captured) == (method == "CountingER")
    assert seen[True] == seen[False] != 0


def test_an_infinity_on_purpose_is_no_divergence(
    captured: list[CapturedSteps], tmp_path: Path
) -> None:
    assert_same(tmp_path, network="test_graphed:MaskedNetwork")
    assert len(captured) == 3


def test_the_best_weights_hold_a_buffer_that_was_replaced_in_validation(tmp_path: Path) -> None:
    found: list[tuple[float, float]] = []

    def look(trainer: Trainer, progress: Progress) -> None:
        if (progress.epoch, progress.step) == (
            1,
            0,
        ):  # none is better than the first, before others
            passes = float(trainer.learner.model.backbone.steps)
            found.append((float(trainer.best["backbone.steps"]), passes))

    settings = tiny("er", network="test_graphed:PassesNetwork", tasks=1)
    assert run(settings, tmp_path / "run", stream=shapes_stream(40), on_step=look)
    ((kept, passes),) = found
    assert kept == passes  # a run resumed between steps and validation knows no other


def test_the_best_weights_hold_a_buffer_that_was_replaced(tmp_path: Path) -> None:
    kept: list[nn.Module] = []
    settings = tiny("er", network="test_graphed:ReplacingNetwork", tasks=1)

    def keep(trainer: Trainer, progress: Progress) -> None:
        kept.append(trainer.learner.model)

    assert run(settings, tmp_path / "run", stream=shapes_stream(), on_step=keep)
    steps = -(-FIRST_TASK // 32)
    assert float(kept[0].backbone.steps) % steps == 0 < float(kept[0].backbone.steps)
