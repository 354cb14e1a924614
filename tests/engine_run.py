"""Tiny runs for tests of the engine: data that say which row they are, spies, real processes."""

import hashlib
import io
import json
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from polarbear.base.arrays import Floats, Pixels
from polarbear.base.errors import PolarbearError
from polarbear.benchmark.source import Source
from polarbear.benchmark.stream import Stream
from polarbear.data.decode import LazyImages
from polarbear.data.shapes import shapes
from polarbear.engine.contract.batch import Batch
from polarbear.engine.images.transform import TRANSFORMS
from polarbear.engine.trainer import Trainer
from polarbear.launch.assembly import build_learner
from polarbear.launch.checkpoint import Checkpoint, from_newest
from polarbear.launch.runner import resume, run
from polarbear.methods.er import ER
from polarbear.methods.finetune import Finetune
from polarbear.named.registry import find
from polarbear.runs.folder import RunFolder
from polarbear.score.record import EpochRecord, ScoreRecord
from polarbear.settings.settings import Settings

METHODS = (
    *("finetune", "er", "er-infinite", "mask-seen", "agem", "icarl-cnn", "icarl-norm", "lucir"),
    *("joint", "incremental-joint"),
)

UNFINISHED, REFUSED = 3, 4


class TinyNetwork(nn.Module):
    """Two convolutions with batch norm between: (n, 3, h, w) → (n, 8)."""

    out_features = 8

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2),
            nn.BatchNorm2d(8),
            nn.SiLU(),  # smooth: at a kink, rounding alone may change a gradient
            nn.Dropout(dropout),
            nn.Conv2d(8, 8, 3, 2),
        )

    def maps(self, images: Tensor) -> list[Tensor]:
        first = self.layers[:2](images)
        return [first, self.layers[2:](first)]

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images).mean(dim=(2, 3))


def network_without_batch_norm() -> nn.Module:
    """A network that looks at each image by itself."""
    network = TinyNetwork()
    network.layers[1] = nn.GroupNorm(2, 8)
    return network


def dropping_network() -> nn.Module:
    return TinyNetwork(dropout=0.5)


def large_network() -> nn.Module:
    """A network that takes images of 224×224 and no others."""

    class OnlyLarge(TinyNetwork):
        def forward(self, images: Tensor) -> Tensor:
            return super().forward(images.view(len(images), 3, 224, 224))

    return OnlyLarge()


class NaNAt(Finetune):
    """Finetuning whose loss is no number at the sixth step of the second task."""

    steps = 0

    def loss(self, batch: Batch) -> Tensor:
        loss = super().loss(batch)
        if self.context.task == 1:
            self.steps += 1
            return loss * float("nan") if self.steps == 6 else loss
        return loss


class OwnReference(ER):
    """A method with batches of memory beside it, and without an option for their size."""

    replay = "reference"


def tiny(method: str, **changes: Any) -> Settings:
    values: dict[str, Any] = {
        "benchmark": "iirc-shapes",
        "network": "engine_run:TinyNetwork",
        "epochs": 2,
        "batch_size": 32,
        "learning_rate": 0.3,
        "memory_per_class": 3,
        "tasks": 3,
        "device": "cpu",
    }
    return Settings(method, **values | changes)


def scores_of_seeds(folder: Path, **changes: Any) -> Floats:
    """Return the mean R_j of short ER runs that differ in nothing but their seed."""
    values = {"network": "small", "epochs": 10, "tasks": 2, "memory_per_class": 10}
    means = []
    for seed in range(10):
        run(tiny("er", seed=seed, **values | changes), folder / str(seed), stream=shapes_stream())
        records = RunFolder(folder / str(seed)).lines("scores")
        means.append(np.mean([r["scores"]["pw_jaccard"] for r in records if r["split"] == "test"]))
    return np.array(means)


def standard_errors_apart(one: Floats, other: Floats) -> float:
    """Return the distance of two samples' means in its standard errors."""
    error = (one.var(ddof=1) / len(one) + other.var(ddof=1) / len(other)) ** 0.5
    return float(abs(one.mean() - other.mean()) / error)


@cache
def shapes_stream(train_per_leaf: int = 20, test_per_leaf: int = 4, order: int = 0) -> Stream:
    benchmark = find("iirc-shapes")
    source = shapes(train_per_leaf=train_per_leaf, test_per_leaf=test_per_leaf)
    return Stream.from_source(source, benchmark.hierarchy(), benchmark.schedule(order))


@dataclass(frozen=True, eq=False)
class Pngs:
    """Encoded images in memory, which note the rows that are asked for."""

    files: tuple[bytes, ...]
    read: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.files)

    def encoded(self, row: int) -> bytes:
        self.read.append(row)
        return self.files[row]

    def name(self, row: int) -> str:
        return f"{row}.png"

    def where(self, row: int) -> str:
        return self.name(row)


def png(image: Pixels) -> bytes:
    out = io.BytesIO()
    Image.fromarray(image).save(out, "PNG")
    return out.getvalue()


@cache
def encoded(file: str) -> tuple[bytes, ...]:
    return tuple(map(png, shapes_stream().images(file)))


def png_stream() -> tuple[Stream, Pngs]:
    """The stream of the other tests, its images encoded without loss."""
    plain = shapes_stream()
    files = Pngs(encoded("train"))
    source = replace(
        plain.source, train=LazyImages(files), test=LazyImages(Pngs(encoded("test"))), checksum=""
    )
    return replace(plain, source=source), files


SIDE = 16


@cache
def row_stream(train_per_leaf: int = 30, test_per_leaf: int = 3) -> Stream:
    """The classes of iirc-shapes, each image of the colour that says its row and file."""
    stream = shapes_stream(1, 1)
    leaves = stream.source.leaves
    files = []
    for blue, count in ((0, train_per_leaf), (200, test_per_leaf)):
        row = np.arange(count * len(leaves))
        colour = np.stack([row % 256, row // 256, np.full_like(row, blue)], axis=1)
        images = np.broadcast_to(colour[:, None, None], (len(row), SIDE, SIDE, 3))
        files += [np.ascontiguousarray(images, dtype=np.uint8), row % len(leaves)]
    source = Source(leaves, *files, checksum="rows")
    return Stream.from_source(source, stream.hierarchy, stream.schedule)


def rows_of(images: Tensor) -> list[int]:
    """Rows of prepared images of :func:`row_stream`; those of the test file count from 10 000."""
    prepared = TRANSFORMS["plain"]
    middle = images[:, :, SIDE // 2, SIDE // 2].detach().numpy()
    colour = np.rint((middle * prepared.std + prepared.mean) * 255).astype(int)
    return [r + 256 * g + (10_000 if blue else 0) for r, g, blue in colour.tolist()]


@dataclass(frozen=True)
class Step:
    """What a method was given at a step."""

    task: int
    epoch: int
    step: int
    rows: list[int]
    targets: Tensor
    replayed: Tensor
    reference: "Step | None"


class AddsReference(ER):
    """ER that adds the loss of memory images beside a step, where there are any."""

    def backward(self, batch: Batch, reference: Batch | None) -> Tensor:
        loss = self.loss(batch)
        if reference is not None:
            loss = loss + self.loss(reference)
        loss.backward()
        return loss.detach()


def interrupt_at(step: int) -> Callable[..., None]:
    """Return an ``on_step`` that raises KeyboardInterrupt at a step, counted from 1."""
    taken = 0

    def on_step(*_: object) -> None:
        nonlocal taken
        taken += 1
        if taken == step:
            raise KeyboardInterrupt

    return on_step


def losses_with_and_without_graphs(
    folder: Path, method: str, **changes: Any
) -> tuple[list[float], list[float]]:
    """Return the losses of a run's epochs, captured (where that is so) and eager."""
    found = []
    for graph in (True, False):
        place = folder / str(graph)
        assert run(tiny(method, graph=graph, **changes), place, stream=shapes_stream())
        found.append([line["loss"] for line in RunFolder(place).lines("epochs")])
    return found[0], found[1]


class Notes:
    """Records of a run in memory, with anything else to be done at each."""

    def __init__(self) -> None:
        self.epochs: list[EpochRecord] = []
        self.lines: list[dict[str, Any]] = []
        self.kept: dict[int, tuple[Any, Any]] = {}
        self.at_epoch: list[Callable[[], None]] = []
        self.at_scores: list[Callable[[], None]] = []

    def epoch(self, record: EpochRecord) -> None:
        self.epochs.append(record)
        for also in self.at_epoch:
            also()

    def scores(self, record: ScoreRecord) -> None:
        self.lines.append(record)
        for also in self.at_scores:
            also()

    def answers(self, after: int, predictions: Any, logits: Any) -> None:
        self.kept[after] = (predictions, logits)


def trainer_for(settings: Settings, stream: Stream | None = None) -> tuple[Trainer, Notes]:
    notes = Notes()
    stream = row_stream() if stream is None else stream
    return Trainer(stream, build_learner(settings, stream), (notes,)), notes


def watch_steps(trainer: Trainer, also: Callable[[Batch], None] | None = None) -> list[Step]:
    """Note what the method is given; ``also`` is called after each backward pass."""
    steps: list[Step] = []
    inner = trainer.learner.method.backward

    def backward(batch: Batch, reference: Batch | None) -> Tensor:
        p = trainer.progress

        def noted(one: Batch, other: Step | None = None) -> Step:
            given = (one.targets.clone(), one.replayed.clone())
            return Step(p.task, p.epoch, p.step, rows_of(one.images), *given, other)

        steps.append(noted(batch, None if reference is None else noted(reference)))
        loss = inner(batch, reference)
        if also:
            also(batch)
        return loss

    trainer.learner.method.backward = backward
    return steps


@dataclass
class Looks:
    """Rows the model was shown in evaluation mode, since the last :meth:`take`."""

    rows: list[int] = field(default_factory=list)

    def take(self) -> list[int]:
        rows, self.rows = self.rows, []
        return rows


def watch_looks(trainer: Trainer) -> Looks:
    looks = Looks()

    def noted(model: nn.Module, inputs: tuple[Tensor], _: Tensor) -> None:
        if not model.training:
            looks.rows += rows_of(inputs[0])

    trainer.learner.model.register_forward_hook(noted)
    return looks


def finish(trainer: Trainer) -> Trainer:
    for _ in trainer.steps():
        pass
    return trainer


def weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def same(left: Mapping[str, Tensor], right: Mapping[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


def newest_checkpoint(folder: Path) -> tuple[int, Checkpoint] | None:
    return next(from_newest(folder), None)


def outcome(folder: Path) -> dict[str, Any]:
    """All a run measured and answered, byte for byte but for the seconds."""
    epochs = [{**line, "seconds": None} for line in RunFolder(folder).lines("epochs")]
    files = sorted([*folder.glob("predictions/*"), *folder.glob("raw/*")])
    return {
        "scores": (folder / "scores.jsonl").read_bytes(),
        "epochs": json.dumps(epochs),
        "files": {
            str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in files
        },
        "finished": RunFolder(folder).finished,
    }


# Real processes. A fork server imports this file once; its children can be killed like any other.
# The first optimiser of a process imports half of PyTorch: that too is done once.
torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
shapes_stream()


@dataclass(frozen=True)
class Orders:
    """What a child process does, and what happens to it there."""

    settings: Settings
    folder: Path
    save_every: float = 0.0
    die_at: int | None = None
    """Kill -9 itself at this system call that changes files."""
    file_limit: int | None = None
    """Most bytes a file may have."""
    wait_at: int | None = None
    """Step at which to wait until the file ``go`` is there."""


def child(orders: Orders) -> None:
    """Run or resume; the exit code says how it ended."""
    torch.set_num_threads(1)
    if orders.die_at is not None:
        _die_at(orders.die_at)
    if orders.file_limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (orders.file_limit, resource.RLIM_INFINITY))
    more = {
        "stream": shapes_stream(),
        "save_every": orders.save_every,
        "on_step": _waiter(orders),
    }
    try:
        if (orders.folder / "manifest.json").exists():
            ended = resume(orders.folder, **more)
        else:
            ended = run(orders.settings, orders.folder, **more)
    except PolarbearError as error:
        message = orders.folder.with_name(f"{orders.folder.name}.message")
        message.write_text(f"{type(error).__name__}: {error}"[: orders.file_limit])
        sys.exit(REFUSED)
    sys.exit(0 if ended else UNFINISHED)


def _waiter(orders: Orders) -> Callable[[Trainer, object], None]:
    taken = 0

    def on_step(*_: object) -> None:
        nonlocal taken
        taken += 1
        if taken == orders.wait_at:
            (orders.folder / "ready").touch()
            while not (orders.folder / "go").exists():
                time.sleep(0.005)

    return on_step


def _die_at(count: int) -> None:
    """End this process, without any ado, at its ``count``-th call that changes files."""
    calls = 0

    def dying(call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == count:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return wrapped

    for name in ("fsync", "replace", "rename", "unlink", "truncate", "mkdir"):
        setattr(os, name, dying(getattr(os, name)))


def start(orders: Orders) -> Any:
    context = multiprocessing.get_context("forkserver")
    # Before Python 3.13 the server looks for what it imports on PYTHONPATH alone.
    path = os.pathsep.join(path for path in sys.path if path)
    context.set_forkserver_preload(["engine_run"])
    process = context.Process(target=child, args=(orders,))
    with mock.patch.dict(os.environ, {"PYTHONPATH": path}):
        process.start()
    return process


def go(orders: Orders) -> int:
    """Run a child to its end; its exit code."""
    process = start(orders)
    process.join(60)
    assert process.exitcode is not None, "the child hangs"
    return process.exitcode


def go_on_until_finished(orders: Orders) -> None:
    assert go(replace(orders, die_at=None, file_limit=None, wait_at=None)) == 0


def assert_stops_leave_no_trace(
    settings: Settings, folder: Path, at: Callable[[int], Iterable[int]]
) -> None:
    """Stop a run at steps of all, as ``at`` chooses of their number; each must end as unbroken."""
    taken: list[object] = []
    more: dict[str, Any] = {"stream": shapes_stream(), "save_every": 0}
    assert run(settings, folder / "whole", on_step=lambda *now: taken.append(now), **more)
    whole = outcome(folder / "whole")
    for step in at(len(taken)):
        with pytest.raises(KeyboardInterrupt):
            run(settings, folder / f"{step}", on_step=interrupt_at(step), **more)
        assert resume(folder / f"{step}", **more)
        assert outcome(folder / f"{step}") == whole, f"stopped after {step} of {len(taken)}"
