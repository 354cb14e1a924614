"""A learner, put together from settings and data: network, head, method, memory and pixels."""

import logging
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from polarbear.base.errors import PolarbearError
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
from polarbear.engine.world import the_world
from polarbear.launch.compiling import compilation_of
from polarbear.launch.inputs import FILES, SharedPixels, feature_inputs, key_of, pixels_of
from polarbear.methods.registry import make_options, resolve
from polarbear.named.registry import find
from polarbear.settings.settings import Settings

log = logging.getLogger("polarbear")


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


def untrained(learner: Learner, stream: Stream) -> Learner:
    """Return a learner as it was made, on the same pixels: all it was taught or given is gone."""
    keys = [key_of(learner, stream, file) for file in FILES]
    shared = dict(zip(keys, (learner.train_pixels, learner.test_pixels), strict=True))
    return build_learner(learner.settings, stream, shared)
