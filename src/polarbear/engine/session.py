"""Whole runs: from settings to a finished run folder, and on from where one stopped."""

import logging
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polarbear.arrays import Bools
from polarbear.benchmarks import find, lasting_name, load
from polarbear.decide import Scores, decision
from polarbear.engine import checkpoint, state
from polarbear.engine.augment import Preparation, preparation, prepare
from polarbear.engine.heads import build_head
from polarbear.engine.learner import Learner
from polarbear.engine.machine import Machine
from polarbear.engine.memory import Memory
from polarbear.engine.model import Model
from polarbear.engine.nets import build_backbone, feature_width
from polarbear.engine.pixels import Pixels, place_pixels
from polarbear.engine.trainer import Progress, Recorder, Trainer
from polarbear.errors import PolarbearError
from polarbear.methods.registry import make_options, resolve
from polarbear.runs import RunError, RunFolder, environment, write_json, writing
from polarbear.settings import Settings
from polarbear.stream import Stream

log = logging.getLogger("polarbear")

OnStep = Callable[[Trainer, Progress], None]
SharedPixels = dict[tuple[object, str, torch.device], Pixels]


@dataclass(frozen=True)
class FolderRecorder:
    """Writes what a run measures into its folder."""

    folder: RunFolder
    keep_scores: bool

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Add a line to epochs.jsonl."""
        self.folder.append("epochs", record)

    def scores(self, record: Mapping[str, Any]) -> None:
        """Add a line to scores.jsonl."""
        self.folder.append("scores", record)

    def answers(self, after: int, predictions: Bools, scores: Scores) -> None:
        """Keep test predictions, and scores if asked."""
        self.folder.save_predictions(after, predictions)
        if self.keep_scores:
            self.folder.save_raw(after, scores)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A run that is ready to go on: its folder, its data and what learns from them."""

    folder: RunFolder
    stream: Stream
    learner: Learner
    threads: int


def run(
    settings: Settings,
    folder: str | Path,
    *,
    stream: Stream | None = None,
    root: str | Path | None = None,
    recorders: tuple[Recorder, ...] = (),
    on_step: OnStep | None = None,
    save_every: float = 60.0,
) -> bool:
    """Train by these settings into a new folder; True when it came to its end.

    ``stream`` replaces the benchmark's own data. The run stops early, and can be resumed, on
    SIGTERM or SIGINT; a checkpoint is written then, after every task, and every ``save_every``
    seconds.
    """
    prepared = begin(settings, folder, stream=stream, root=root)
    return _go(prepared, recorders, on_step, save_every)


def resume(
    folder: str | Path,
    *,
    stream: Stream | None = None,
    root: str | Path | None = None,
    recorders: tuple[Recorder, ...] = (),
    on_step: OnStep | None = None,
    save_every: float = 60.0,
) -> bool:
    """Go on with a run where its newest whole checkpoint was taken; True when it came to its end.

    The scores are those of a run that was never interrupted.
    """
    if RunFolder.open(folder).finished:
        log.info("%s is finished: nothing to do", folder)
        return True
    prepared = reopen(folder, stream=stream, root=root)
    with _threads(prepared.threads):
        return _go(prepared, recorders, on_step, save_every)


def begin(
    settings: Settings,
    folder: str | Path,
    *,
    stream: Stream | None = None,
    root: str | Path | None = None,
    shared: SharedPixels | None = None,
) -> Prepared:
    """Make a new run folder and all that a run needs; ``shared`` holds pixels for several runs."""
    settings = replace(settings, benchmark=lasting_name(settings.benchmark))
    stream = _as_trained(settings, _stream(settings, root) if stream is None else stream)
    learner = build_learner(settings, stream, shared)
    threads = torch.get_num_threads()
    manifest = {
        "settings": settings.to_dict(),
        "root": None if root is None else str(Path(root).resolve()),
        "classes": [list(task) for task in stream.schedule.tasks],
        "data": stream.source.checksum if stream.source else "",
        "environment": environment()
        | {
            "torch": torch.__version__,
            "device": _device_name(learner),
            "precision": learner.machine.precision,
        },
        "threads": threads,
    }
    return Prepared(RunFolder.create(folder, manifest), stream, learner, threads)


def reopen(
    folder: str | Path,
    *,
    stream: Stream | None = None,
    root: str | Path | None = None,
    shared: SharedPixels | None = None,
) -> Prepared:
    """Open an unfinished run folder and make ready what it was run with."""
    opened = RunFolder.open(folder)
    manifest = opened.manifest()
    settings = Settings.from_dict(manifest["settings"])
    if stream is None:
        stream = _stream(settings, root if root is not None else manifest["root"])
    stream = _as_trained(settings, stream)
    _refuse_other_data(manifest, stream)
    learner = build_learner(settings, stream, shared)
    _warn_of_other_machine(manifest, learner)
    return Prepared(opened, stream, learner, manifest["threads"])


def build_learner(
    settings: Settings, stream: Stream, shared: SharedPixels | None = None
) -> Learner:
    """Put model, method and data together on their device."""
    decision(settings.decision)
    method_class = resolve(settings.method)
    options = make_options(method_class, settings.options)
    machine = Machine.of(settings)
    machine.allow_tf32()
    prepared = preparation(settings.preparation or _benchmark_preparation(settings))
    backbone = build_backbone(settings.network, settings.seed, side=_side(stream, prepared))
    width, classes = feature_width(backbone), len(stream.classes)
    head = build_head(method_class.head, width, classes, settings.seed)
    model = Model(backbone, head)
    model.fused = settings.fused and not settings.compile
    model.compiled_batch = settings.batch_size if settings.compile else None
    machine.place(model)
    return Learner(
        settings,
        machine,
        prepared,
        model,
        method_class(model, options),
        Memory(),
        *_pixels(stream, machine.device, {} if shared is None else shared),
    )


def _pixels(stream: Stream, device: torch.device, shared: SharedPixels) -> list[Pixels]:
    """Give training and test pixels; runs on the same data use the same ones."""
    checksum = stream.source.checksum if stream.source else ""
    placed = []
    for split in ("train", "test"):
        # Data without a checksum stand for themselves; as a key they are kept, and so is their id.
        key = (checksum or stream.source or stream, split, device)
        if key not in shared:
            shared[key] = place_pixels(stream.images(split), device)
        placed.append(shared[key])
    return placed


def _stream(settings: Settings, root: str | Path | None) -> Stream:
    return load(settings.benchmark, settings.order, root)


def _as_trained(settings: Settings, stream: Stream) -> Stream:
    """Put all classes into one task if the method trains so."""
    if not resolve(settings.method).joint:
        return stream
    return replace(stream, schedule=stream.schedule.joint())


def _side(stream: Stream, prepared: Preparation) -> int:
    """Give the height of images as the network gets them."""
    first = torch.from_numpy(np.array(stream.images("train")[:1]))
    return prepare(first, prepared).shape[2]


def _benchmark_preparation(settings: Settings) -> str:
    return find(settings.benchmark).preparation


def _refuse_other_data(manifest: Mapping[str, Any], stream: Stream) -> None:
    if [list(task) for task in stream.schedule.tasks] != manifest["classes"]:
        raise RunError("the class order is not the one this run began with")
    found = stream.source.checksum if stream.source else ""
    if found != manifest["data"]:
        raise RunError(
            f"the data are not those this run began with: checksum {found!r}, "
            f"the manifest has {manifest['data']!r}"
        )


def _warn_of_other_machine(manifest: Mapping[str, Any], learner: Learner) -> None:
    here = {"torch": torch.__version__, "device": _device_name(learner)}
    for what, found in here.items():
        if found != (began := manifest["environment"][what]):
            log.warning("began with %s %s, goes on with %s: scores may differ", what, began, found)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Compute with as many threads as the run began with: sums round by how they are shared out."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _go(
    prepared: Prepared, recorders: tuple[Recorder, ...], on_step: OnStep | None, save_every: float
) -> bool:
    with stop_on_signal() as stop:
        going = advance(prepared, stop, recorders, on_step, save_every)
        while True:
            try:
                next(going)
            except StopIteration as end:
                return bool(end.value)


def advance(
    prepared: Prepared,
    stop: threading.Event,
    recorders: tuple[Recorder, ...] = (),
    on_step: OnStep | None = None,
    save_every: float = 60.0,
) -> Generator[Progress, None, bool]:
    """Go on with a run, yielding wherever it may be left for a while; gives whether it ended."""
    with prepared.folder.held():
        return (yield from _advance(prepared, stop, recorders, on_step, save_every))


def _advance(
    prepared: Prepared,
    stop: threading.Event,
    recorders: tuple[Recorder, ...],
    on_step: OnStep | None,
    save_every: float,
) -> Generator[Progress, None, bool]:
    folder, learner = prepared.folder, prepared.learner
    own = FolderRecorder(folder, learner.settings.keep_scores)
    trainer = Trainer(prepared.stream, learner, (own, *recorders))
    learner.machine.allow_tf32()  # runs that were made ready since may have another precision
    number, before = _restore_newest(folder, trainer)
    began = time.monotonic() - before
    saved, task = time.monotonic(), trainer.progress.task
    told = None
    for progress in trainer.steps():
        # While a GPU is at work a run may pause in the same place many times.
        if on_step and progress is not told:
            on_step(trainer, progress)
            told = progress
        stopping = stop.is_set()
        if stopping or progress.task != task or time.monotonic() - saved > save_every:
            number += 1
            _save(folder, number, trainer, time.monotonic() - began)
            saved, task = time.monotonic(), progress.task
        if stopping:
            log.warning("stopped at %s; `polarbear resume %s` goes on", progress, folder.path)
            return False
        yield progress
        learner.machine.allow_tf32()
    with writing(folder.path):
        facts = {"tasks": trainer.tasks, "seconds": time.monotonic() - began}
        write_json(folder.path / "finished.json", facts)
    return True


def _save(folder: RunFolder, number: int, trainer: Trainer, seconds: float) -> None:
    taken = state.capture(trainer)
    facts = {**taken.facts, "lines": folder.sizes(), "seconds": seconds}
    try:
        checkpoint.save(
            folder.path / "checkpoint", number, checkpoint.Checkpoint(taken.tensors, facts)
        )
    except OSError as error:
        raise PolarbearError(
            f"no checkpoint could be written to {folder.path}: {error}. The one before is kept; "
            f"make room, then `polarbear resume {folder.path}`"
        ) from error


def _restore_newest(folder: RunFolder, trainer: Trainer) -> tuple[int, float]:
    """Go to the newest checkpoint; gives its number and the seconds the run had taken by then."""
    newest = checkpoint.load_newest(folder.path / "checkpoint")
    if newest is None:
        folder.cut_back({"epochs": 0, "scores": 0})
        return 0, 0.0
    number, found = newest
    folder.cut_back(found.facts["lines"])
    state.restore(trainer, found)
    return number, found.facts["seconds"]


def _device_name(learner: Learner) -> str:
    device = learner.machine.device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"


@contextmanager
def stop_on_signal() -> Iterator[threading.Event]:
    """Turn SIGTERM and the first Ctrl-C into an event; elsewhere than the main thread, neither."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(*_: object) -> None:
        stop.set()
        signal.signal(signal.SIGINT, signal.default_int_handler)

    handlers = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
