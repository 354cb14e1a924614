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
from polarbear.engine.contract.method import Method
from polarbear.engine.contract.predict import decision_name
from polarbear.engine.images.pixels import ResidentPixels
from polarbear.engine.images.preparation import find_transform, refuse_bad_crop
from polarbear.engine.images.transform import ImageTransform, for_evaluation
from polarbear.engine.machine import Machine
from polarbear.engine.nets.frozen import Frozen
from polarbear.engine.nets.heads import build_head
from polarbear.engine.nets.model import Model
from polarbear.engine.nets.networks import build_backbone, feature_width, refuse_bad_features
from polarbear.engine.nets.wanted_images import as_wanted
from polarbear.engine.task.learner import Learner
from polarbear.engine.task.replay_memory import ReplayMemory
from polarbear.engine.world import World, the_world
from polarbear.launch.compiling import compilation_of
from polarbear.launch.inputs import FILES, SharedPixels, feature_inputs, key_of, pixels_of
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


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with as many threads as the run began with: sums round by how they are shared out."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def build_learner(
    settings: Settings, stream: Stream, shared: SharedPixels | None = None
) -> Learner:
    """Put model, method and data together on their device."""
    method = resolve(settings.method)
    decision_name(settings.decision, method)  # refused before anything is made ready
    return assemble(settings, stream, method, make_options(method, settings.options), shared)


def assemble(
    settings: Settings,
    stream: Stream,
    method: type[Method],
    options: Any,
    shared: SharedPixels | None = None,
) -> Learner:
    """Put together a learner of a class, whatever method the settings name."""
    first = torch.from_numpy(np.array(stream.images("train")[:1]))
    made = make_learner(
        settings, method, options, preparation(settings, first), first, len(stream.classes)
    )
    inputs = feature_inputs if isinstance(made.model.backbone, Frozen) else pixels_of
    made.train_pixels, made.test_pixels = inputs(made, stream, {} if shared is None else shared)
    return made


def make_learner(
    settings: Settings,
    method: type[Method],
    options: Any,
    prepared: ImageTransform,
    image: torch.Tensor,
    classes: int,
) -> Learner:
    """Make a learner without pixels, for images like one (1, h, w, 3) and so many classes."""
    machine = Machine.of(settings)
    machine.allow_tf32()
    backbone = build_backbone(settings.network, settings.seed, settings.network_options)
    if settings.preparation is None:
        usual, prepared = prepared, as_wanted(backbone, prepared)
        if prepared != usual:
            log.info("images are prepared as %s wants them: %s", settings.network, prepared)
    side = for_evaluation(image, prepared).shape[2]  # as the network gets them
    refuse_bad_features(settings.network, backbone, side)
    if settings.frozen or getattr(backbone, "frozen", False):
        _refuse_two_views(method)
        machine.place(backbone)
        backbone = Frozen(backbone)
    head = build_head(method.head, feature_width(backbone), classes, settings.seed)
    model = Model(backbone, head)
    # Neither sums its batch norm over several processes.
    alone = the_world().size == 1
    model.fused = settings.fused and settings.compile is not True and alone
    machine.place(model)
    taught = method(model, options)
    model.compilation = compilation_of(taught, settings, machine, side) if alone else None
    none = ResidentPixels(image[:0], machine.device)
    return Learner(settings, machine, prepared, model, taught, ReplayMemory(), none, none)


def _refuse_two_views(method: type[Method]) -> None:
    if isinstance(method.views, int) and method.views > 1:
        raise PolarbearError(
            f"{method.__name__} wants {method.views} views of each image, and a frozen network's "
            "features are of the image as it is: leave out --frozen, or choose another method"
        )


def preparation(settings: Settings, image: torch.Tensor) -> ImageTransform:
    """Return how images are prepared: as asked for, else as the benchmark says."""
    asked, benchmark = settings.preparation, find(settings.benchmark)
    found = find_transform(asked or benchmark.preparation, settings.preparation_options)
    if asked is None and (own := benchmark.colours) is not None:
        found = replace(found, mean=own.mean, std=own.std)
    if ":" in (asked or benchmark.preparation):
        refuse_bad_crop(asked or benchmark.preparation, found, image)
    return found


def _about_images(settings: Settings, stream: Stream, prepared: ImageTransform) -> dict[str, Any]:
    """Return what a manifest says of images, so that others can be shown to the trained network."""
    return {
        "size": np.shape(stream.images("train")[:1])[1:3],
        "preparation": settings.preparation or find(settings.benchmark).preparation,
        "mean": prepared.mean,
        "std": prepared.std,
    }


def untrained(learner: Learner, stream: Stream) -> Learner:
    """Return a learner as it was made, on the same pixels: all it was taught or given is gone."""
    keys = [key_of(learner, stream, file) for file in FILES]
    shared = dict(zip(keys, (learner.train_pixels, learner.test_pixels), strict=True))
    return build_learner(learner.settings, stream, shared)


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
