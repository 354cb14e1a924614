"""Networks through ``torch.compile``: how often that compiles, and what happens where it fails."""

import logging
import re
import shutil
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

import fake_graphs
from doc_pages import bench_script
from engine_run import TinyNetwork, interrupt_at, shapes_stream, tiny
from polarbear.engine import compiling
from polarbear.engine.contract.batch import Batch
from polarbear.engine.contract.method import bce, frozen_copy
from polarbear.engine.images.transform import CIFAR, PadCrop, augment
from polarbear.engine.nets.model import Compilation, Model
from polarbear.engine.nets.networks import basic_block, imagenet_resnet
from polarbear.launch.compiling import wants_compiling
from polarbear.launch.runner import resume, run, train
from polarbear.methods.er import ER
from polarbear.runs.folder import RunFolder
from polarbear.score.record import EpochRecord

pytestmark = [
    pytest.mark.usefixtures("one_thread", "_forgotten"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning:torch"),  # its own, of its own lines
]

Backend = str | Callable[..., Any]


def small_resnet() -> nn.Module:
    """A ResNet as those for 224×224 images, with a block per stage."""
    return imagenet_resnet(basic_block, (1, 1, 1, 1))


@pytest.fixture
def _forgotten() -> Iterator[None]:
    """What was compiled or said elsewhere counts for nothing."""

    def forget() -> None:
        compiling.compiled.cache_clear()
        compiling.say_once.cache_clear()
        torch._dynamo.reset()
        counters.clear()

    forget()
    yield
    forget()


def compile_by(monkeypatch: pytest.MonkeyPatch, backend: Backend) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend=backend))


def for_batches(size: int) -> Compilation:
    return Compilation("tiny", frozenset([size]))


def compilations() -> int:
    return int(counters["stats"]["unique_graphs"])


class Counting:
    """Notes how much has been compiled when an epoch is over, by task."""

    def __init__(self) -> None:
        self.by_task: dict[int, int] = {}

    def epoch(self, record: EpochRecord) -> None:
        self.by_task[record.task] = compilations()

    def scores(self, record: object) -> None: ...

    def answers(self, *_: object) -> None: ...


def losses(folder: Path) -> list[float]:
    return [line["loss"] for line in RunFolder(folder).lines("epochs")]


def said_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What a user reads of compiling; PyTorch logs for itself."""
    return [
        one.message
        for one in caplog.records
        if one.name == "polarbear" and "compile" in one.message
    ]


@pytest.mark.parametrize(("method", "in_all"), [("er", 1), ("icarl-norm", 2), ("lucir", 2)])
def test_a_network_is_compiled_once_and_its_teacher_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, method: str, in_all: int
) -> None:
    compile_by(monkeypatch, "aot_eager")
    network = "test_compiling:small_resnet"
    changes = {"network": network, "learning_rate": 0.01, "epochs": 1, "compile": True}
    found = Counting()
    for seed in (1, 2):
        settings = tiny(method, **changes | {"seed": seed, "tasks": 4})
        run(settings, tmp_path / str(seed), stream=shapes_stream(), recorders=(found,))
        if seed == 1:
            assert found.by_task == {0: 1, 1: in_all, 2: in_all, 3: in_all}
    assert found.by_task == dict.fromkeys(range(4), in_all)
    assert RunFolder(tmp_path / "1").manifest()["environment"]["compiled"] is True


class BothViews(ER):
    """ER on two views of each image, both in one batch."""

    views = 2

    def loss(self, batch: Batch) -> Tensor:
        return bce(self.model(torch.cat(batch.views)), torch.cat([batch.targets] * 2))


@pytest.mark.parametrize(
    ("method", "changes", "sizes", "in_all"),
    [
        ("ss-il", {"options": {"beside": 8}}, [32, 40], 3),  # a teacher's too
        ("ss-il", {"options": {"beside": 8}, "accumulate": 2}, [16, 20], 3),
        ("agem", {"options": {"reference_batch_size": 8}}, [32, 8], 2),
        ("test_compiling:BothViews", {}, [32, 64], 2),
    ],
)
def test_the_batches_that_a_method_really_takes_are_compiled(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    method: str,
    changes: dict[str, Any],
    sizes: list[int],
    in_all: int,
) -> None:
    compile_by(monkeypatch, "aot_eager")
    run(tiny(method, compile=True, tasks=2, **changes), tmp_path / "run", stream=shapes_stream())
    said = [re.findall(r"is compiled for batches of (\d+): ", line) for line in said_in(caplog)]
    assert said == [[str(size)] for size in sizes]
    assert compilations() == in_all


def test_captured_steps_compile_the_augmentation_of_memory_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    fake_graphs.install(monkeypatch)
    compile_by(monkeypatch, "aot_eager")
    beside = {"reference_batch_size": 8}
    settings = tiny("agem", compile=True, tasks=2, options=beside)
    run(settings, tmp_path / "run", stream=shapes_stream())
    assert compilations() == 2 * 2


def test_more_kinds_of_batches_than_pytorch_compiles_one_function_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compile_by(monkeypatch, "eager")
    network, sizes = TinyNetwork(), range(2, 14)
    assert len(sizes) > torch._dynamo.config.recompile_limit
    for n in sizes:
        images = torch.zeros(n, 3, 16, 16)
        assert torch.equal(for_batches(n).features(network, images), network(images))
    assert compilations() == len(sizes)


def test_evaluation_compiles_nothing_and_a_teacher_does(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_by(monkeypatch, "eager")
    model, images = Model(TinyNetwork(), nn.Identity()), torch.zeros(4, 3, 16, 16)
    model.compilation = for_batches(4)
    teacher = frozen_copy(model)
    with torch.no_grad():
        model.eval()(images)
        assert compilations() == 0
        teacher(images[:3])
        assert compilations() == 0
        teacher(images)
        assert compilations() == 1
    model.train()(images)
    assert compilations() == 2


def failing(times: int) -> Callable[..., Any]:
    """A compiler that works so many times, then for want of another never again."""
    left = iter(range(times))

    def compiler(module: Any, example: Any) -> Any:
        if next(left, None) is None:
            raise RuntimeError(f"Failed to find a compiler: {'-I/folder ' * 100}\nIt is CC's")
        return module.forward

    return compiler


def test_where_nothing_can_be_compiled_a_run_says_so_and_goes_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    compile_by(monkeypatch, failing(0))
    run(tiny("er", compile=True), tmp_path / "failed", stream=shapes_stream())
    run(tiny("er", compile=False), tmp_path / "eager", stream=shapes_stream())
    assert losses(tmp_path / "failed") == losses(tmp_path / "eager")
    assert RunFolder(tmp_path / "failed").manifest()["environment"]["compiled"] is False
    first, second = said_in(caplog)
    assert first.startswith("engine_run:TinyNetwork is compiled for batches of 32: about a minute")
    assert "(--no-compile does not try): RuntimeError: Failed to find a compiler: -I/fo" in second
    assert second.endswith(" …")
    assert len(second) < 350


class Uncopied(TinyNetwork):
    """A network that holds what Python does not copy."""

    def __init__(self) -> None:
        super().__init__()
        self.lock = threading.Lock()


def test_a_network_that_cannot_be_copied_is_trained_as_it_is(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = tiny("er", network="test_compiling:Uncopied", compile=True, tasks=1)
    run(settings, tmp_path / "run", stream=shapes_stream())
    assert RunFolder(tmp_path / "run").manifest()["environment"]["compiled"] is False
    _, said = said_in(caplog)
    assert said.endswith("TypeError: cannot pickle '_thread.lock' object")


def test_a_teacher_that_cannot_be_compiled_leaves_steps_captured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    captured = fake_graphs.install(monkeypatch)
    run(tiny("icarl-norm", compile=False), tmp_path / "eager", stream=shapes_stream())
    compile_by(monkeypatch, failing(1))
    run(tiny("icarl-norm", compile=True), tmp_path / "failed", stream=shapes_stream())
    assert len(captured) == 2 * 3
    assert losses(tmp_path / "failed") == pytest.approx(losses(tmp_path / "eager"))
    _, said = said_in(caplog)
    assert "Failed to find a compiler" in said


def test_a_run_resumed_where_nothing_can_be_compiled_says_that_it_goes_on_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings, folder = tiny("er", compile=True), tmp_path / "run"
    with monkeypatch.context() as first:
        compile_by(first, "eager")
        with pytest.raises(KeyboardInterrupt):
            run(settings, folder, stream=shapes_stream(), on_step=interrupt_at(3), save_every=0.0)
    compiling.compiled.cache_clear()
    compile_by(monkeypatch, failing(0))
    assert resume(folder, stream=shapes_stream())
    assert "began with compiled True, goes on with False: scores may differ" in caplog.text


def test_advice_to_multiply_in_tf32_is_kept_from_users_and_nothing_else_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torch._inductor import compile_fx  # it warns of its own lines

    def compiler(module: Any, example: Any) -> Any:
        with monkeypatch.context() as gpu:  # all that PyTorch asks of one before it advises
            gpu.setattr(torch.cuda, "is_available", lambda: True)
            gpu.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
            compile_fx._warn_tf32_disabled.__wrapped__()
        warnings.warn("another warning", UserWarning, stacklevel=1)
        return module.forward

    compile_by(monkeypatch, compiler)
    with pytest.warns(UserWarning, match="another warning") as told:
        for_batches(4).features(TinyNetwork(), torch.zeros(4, 3, 16, 16))
    assert len(told) == 1


def test_the_check_of_a_gpu_takes_what_is_compiled_for_no_refusal() -> None:
    logger, refusals = logging.getLogger("polarbear"), bench_script("check_gpu").Refusals()
    logger.addHandler(refusals)
    try:
        Compilation("resnet20", frozenset({48})).announce(48)
        with pytest.raises(RuntimeError, match="does not work here"):
            compiling.say_why_not(OSError("no compiler"))
    finally:
        logger.removeHandler(refusals)


def test_a_run_that_was_compiled_goes_on_without_where_that_is_asked(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    compile_by(monkeypatch, "eager")
    asked, folder = tiny("er", compile=True, tasks=1), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(asked, folder, stream=shapes_stream(), on_step=interrupt_at(3), save_every=0.0)
    assert train(replace(asked, compile=False), folder, stream=shapes_stream())
    assert "began with compiled True, goes on with False: scores may differ" in caplog.text


def test_no_memory_is_no_reason_to_compile_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiler(module: Any, example: Any) -> Any:
        def call(*_: Any) -> None:
            raise torch.OutOfMemoryError

        return call

    compile_by(monkeypatch, compiler)
    with pytest.raises(torch.OutOfMemoryError):
        for_batches(4).works(TinyNetwork(), torch.zeros(4, 3, 16, 16))


def test_a_trial_changes_neither_weights_nor_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_by(monkeypatch, "aot_eager")
    network = TinyNetwork().eval()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    assert for_batches(4).works(network, torch.ones(4, 3, 16, 16))
    assert not network.training
    assert all(p.grad is None for p in network.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


def test_a_network_that_does_not_learn_can_be_compiled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_by(monkeypatch, "aot_eager")
    network = TinyNetwork().requires_grad_(False)
    assert for_batches(4).works(network, torch.zeros(4, 3, 16, 16))


def test_with_a_frozen_network_there_is_nothing_to_compile(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = tiny("ncm", compile=True, frozen=True, tasks=1)
    run(settings, tmp_path / "run", stream=shapes_stream())
    assert RunFolder(tmp_path / "run").manifest()["environment"]["compiled"] is False
    assert said_in(caplog) == []


@pytest.mark.parametrize(
    ("device", "changes", "wanted"),
    [
        ("cuda", {"network": "resnet50"}, True),
        ("cuda", {"network": "resnet18"}, True),
        ("cpu", {"network": "resnet50"}, False),
        ("cuda", {"network": "resnet32"}, False),
        ("cuda", {"network": "resnet32", "fused": False}, False),
        ("cuda", {"network": "engine_run:TinyNetwork"}, False),
        ("cuda", {"network": "resnet50", "compile": False}, False),
        ("cpu", {"network": "engine_run:TinyNetwork", "compile": True}, True),
    ],
)
def test_large_networks_of_ours_are_compiled_on_a_gpu(
    device: str, changes: dict[str, Any], wanted: bool
) -> None:
    assert wants_compiling(tiny("er", **changes), torch.device(device)) is wanted


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.skipif(" " in torch.__file__, reason="PyTorch compiles in no folder with a blank")
def test_compiled_steps_are_the_eager_ones(tmp_path: Path) -> None:
    for compiled in (True, False):
        settings = tiny("icarl-norm", compile=compiled, learning_rate=0.1, tasks=2)
        run(settings, tmp_path / str(compiled), stream=shapes_stream())
    assert compilations() == 2
    assert losses(tmp_path / "True") == pytest.approx(losses(tmp_path / "False"), rel=1e-3)


def test_a_crop_of_ones_own_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_by(monkeypatch, "eager")

    class Own(PadCrop):
        """A crop that may do anything."""

    images = torch.zeros(4, 32, 32, 3, dtype=torch.uint8)
    for crop, expected in ((Own(), 0), (PadCrop(), 1)):
        jitter = crop.draw(4, np.random.default_rng(0))
        augment(images, jitter, replace(CIFAR, crop=crop), compiled=True)
        assert compilations() == expected
