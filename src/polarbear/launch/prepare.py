"""What a run needs before it can begin: its folder, its data, and what learns from them."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from polarbear.base.errors import PolarbearError
from polarbear.base.out_of_memory import enough_memory, smaller
from polarbear.benchmark.checks import refuse_nothing_to_learn
from polarbear.benchmark.stream import Stream
from polarbear.engine.contract.predict import decision_name
from polarbear.engine.images.transform import ImageTransform
from polarbear.engine.machine import Machine
from polarbear.engine.nets.frozen import Frozen
from polarbear.engine.task.learner import Learner
from polarbear.engine.world import World, the_world
from polarbear.launch.assembly import build_learner
from polarbear.launch.inputs import SharedPixels
from polarbear.methods.registry import make_options, resolve
from polarbear.named.registry import find, lasting_name, load, partial_name
from polarbear.runs.environment import environment
from polarbear.runs.folder import RunFolder
from polarbear.runs.guards import RunError, reading
from polarbear.score.decide import OWN_RULE, decision
from polarbear.settings.settings import Settings

log = logging.getLogger("polarbear")

SMALL = "small"  # the network for iirc-shapes


@dataclass(frozen=True, eq=False)
class Prepared:
    """A run that is ready to go on: its folder, its data and what learns from them."""

    folder: RunFolder
    stream: Stream
    learner: Learner
    threads: int


@dataclass(frozen=True)
class Began:
    """What a manifest has beside the settings, for a run that goes on."""

    root: str | None
    classes: list[list[str]]
    data: str
    environment: Mapping[str, Any]
    threads: int


def begin(
    settings: Settings,
    folder: str | Path,
    *,
    stream: Stream | None = None,
    root: str | Path | None = None,
    shared: SharedPixels | None = None,
) -> Prepared:
    """Make a new run folder and all that a run needs; ``shared`` holds pixels for several runs."""
    settings = as_written(settings)
    with enough_memory(smaller()):
        stream = load(settings.benchmark, settings.order, root) if stream is None else stream
        _refuse_hidden_gaps(settings, stream)
        settings.refuse_more_tasks(len(stream))
        stream = _as_trained(settings, stream)
        refuse_nothing_to_learn(stream)
        learner = build_learner(settings, stream, shared)
    count = torch.get_num_threads()
    manifest = {
        "settings": settings.to_dict(),
        "root": None if root is None else str(Path(root).resolve()),
        "classes": [list(task) for task in stream.schedule.tasks],
        "images": _about_images(settings, stream, learner.transform),
        "data": stream.source.checksum if stream.source else "",
        "environment": environment()
        | {
            "torch": torch.__version__,
            "device": _device_name(learner),
            "precision": learner.machine.precision,
            "compiled": learner.model.compilation is not None,
        },
        "threads": count,
    }
    if settings.decision not in (None, OWN_RULE) and decision(settings.decision).oracle:
        manifest["oracle_rule"] = True  # reports import no rule to ask it
    method = type(learner.method)
    manifest |= {"title": method.title} if method.title else {}  # nor a method
    manifest |= {"oracle": True} if method.oracle else {}
    if isinstance(frozen := learner.model.backbone, Frozen):
        manifest["frozen_weights"] = frozen.weights  # checkpoints have none of them
    world = learner.world
    if world.size > 1:
        manifest["processes"] = world.size
        _refuse_different_wishes(world, manifest["settings"], folder)
    made = world.told(lambda: RunFolder.create(folder, manifest))
    return Prepared(made, stream, learner, count)


def _refuse_different_wishes(world: World, *wishes: Any) -> None:
    """Refuse processes that were started together and do not want the same run."""
    wanted = repr(wishes)
    if (first := world.told(lambda: wanted)) != wanted:
        raise PolarbearError(
            f"process {world.rank} of {world.size} wants another run than the first, but those "
            f"that torchrun starts train one run together: {wanted}, not {first}"
        )


def as_written(settings: Settings) -> Settings:
    """Return settings as a manifest has them: the benchmark and the decision rule by name."""
    return replace(
        settings,
        benchmark=lasting_name(settings.benchmark),
        decision=decision_name(settings.decision, resolve(settings.method)),
    )


def reopen(
    folder: str | Path,
    asked: Settings | None = None,
    *,
    stream: Stream | None = None,
    root: str | Path | None = None,
    shared: SharedPixels | None = None,
) -> Prepared:
    """Open an unfinished run folder and make ready what it was run with.

    Whoever asks with settings of their own chooses how fast it goes, and in how many parts a step
    is taken, as by other processes.
    """
    opened = RunFolder(Path(folder))
    manifest = the_world().told(opened.manifest)
    settings = first = Settings.from_dict(manifest["settings"])
    refuse_other_options(opened, first)
    if asked is not None:
        settings = replace(first.as_fast_as(asked), accumulate=asked.accumulate)
        if asked.compile == "auto":  # as it began, and did before there was a choice
            settings = replace(settings, compile=first.compile)
    with reading(opened.path / "manifest.json"):
        began = Began(**{f.name: manifest[f.name] for f in fields(Began)})
    with enough_memory(smaller(opened.path)):
        if stream is None:
            place = root if root is not None else began.root
            # Partial or not, they must be what the run began with.
            stream = load(settings.benchmark, settings.order, place, partial=True)
        stream = _as_trained(settings, stream)
        _refuse_other_data(began, stream)
        with threads(began.threads):  # a frozen network works here already
            learner = build_learner(settings, stream, shared)
    refuse_other_weights(learner, manifest)
    older = {"compiled": first.compile is True}  # before it was noted, it was done as asked
    before = {**older, **began.environment, "accumulate": first.accumulate}
    here = {
        "torch": torch.__version__,
        "device": _device_name(learner),
        "compiled": learner.model.compilation is not None,
        "accumulate": settings.accumulate,
    }
    for what, found in here.items():
        if found != (then := before.get(what)):
            log.warning("began with %s %s, goes on with %s: scores may differ", what, then, found)
    return Prepared(opened, stream, learner, began.threads)


def refuse_other_options(folder: RunFolder, settings: Settings) -> None:
    """Refuse a run whose method has other options by now: it is not the method that was run."""
    try:
        make_options(resolve(settings.method), settings.options)
    except PolarbearError as error:
        raise RunError(
            f"{folder.path} was run with other options than its method has now ({error}): take the "
            "version of the method that ran it, or begin a new run. Reports still read this one"
        ) from error


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with as many threads as the run began with: sums round by how they are shared out."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _about_images(settings: Settings, stream: Stream, prepared: ImageTransform) -> dict[str, Any]:
    """Return what a manifest says of images, so that others can be shown to the trained network."""
    return {
        "size": np.shape(stream.images("train")[:1])[1:3],
        "preparation": settings.preparation or find(settings.benchmark).preparation,
        "mean": prepared.mean,
        "std": prepared.std,
    }


def usual_threads(settings: Settings) -> int | None:
    """Return 1 where more threads would only wait for each other; None leaves it to PyTorch."""
    on_cpu = Machine.of(settings).device.type != "cuda"
    return 1 if on_cpu and settings.network == SMALL else None


def _refuse_hidden_gaps(settings: Settings, stream: Stream) -> None:
    """Refuse a run that is named after whole data and has not all of them, or the other way."""
    benchmark = find(settings.benchmark)
    if stream.name == replace(benchmark, partial=not benchmark.partial).id:
        told = "has all of its images: leave out --partial"
        if not benchmark.partial:
            told = f"lacks images: name the benchmark {partial_name(settings.benchmark)!r}"
        raise PolarbearError(f"the stream {stream.name} {told}")


def _as_trained(settings: Settings, stream: Stream) -> Stream:
    """Put all classes into one task if the method trains so."""
    if not resolve(settings.method).joint:
        return stream
    return replace(stream, schedule=stream.schedule.joint())


def _refuse_other_data(began: Began, stream: Stream) -> None:
    if [list(task) for task in stream.schedule.tasks] != began.classes:
        raise RunError("the class order is not the one this run began with")
    found = stream.source.checksum if stream.source else ""
    if found != began.data:
        raise RunError(
            f"the data are not those this run began with: checksum {found!r}, "
            f"the manifest has {began.data!r}"
        )


def refuse_other_weights(learner: Learner, manifest: Mapping[str, Any]) -> None:
    """Refuse a frozen network that is not the one a run began with."""
    backbone, then = learner.model.backbone, manifest.get("frozen_weights")
    if isinstance(backbone, Frozen) and then not in (None, backbone.weights):
        raise RunError(
            f"the frozen network {learner.settings.network} has other weights than the run began "
            "with: bring those back, or begin a new run"
        )


def _device_name(learner: Learner) -> str:
    device = learner.machine.device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
