"""What networks look at: the images of both files or, where the network is frozen, their features.

Runs on the same data share them; features may also be kept in a folder, for runs to come.
"""

import logging
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Literal, cast

import numpy as np
import torch
from torch import Tensor

from polarbear.base.errors import DataError, PolarbearError
from polarbear.base.files import write_whole
from polarbear.base.guarded import naming, read_npz
from polarbear.base.how_far import HowFar
from polarbear.benchmark.stream import Stream
from polarbear.engine.images.pixels import (
    Pixels,
    ResidentFeatures,
    StreamedPixels,
    place_pixels,
)
from polarbear.engine.images.task_pixels import TaskPixels
from polarbear.engine.nets.frozen import Frozen
from polarbear.engine.task.learner import Learner
from polarbear.engine.world import the_world

log = logging.getLogger("polarbear")

SharedPixels = dict[tuple[object, ...], Pixels]
FILES: tuple[Literal["train", "test"], ...] = ("train", "test")


def key_of(learner: Learner, stream: Stream, file: str) -> tuple[object, ...]:
    """Return what a file's pixels are shared by or, where the network is frozen, its features."""
    backbone = learner.model.backbone
    whose = backbone.fingerprint if isinstance(backbone, Frozen) else ""
    # Data without a checksum stand for themselves; as a key they are kept, and so is their id.
    return _checksum(stream) or stream.source or stream, file, learner.machine.device, whose


def pixels_of(learner: Learner, stream: Stream, shared: SharedPixels) -> list[Pixels]:
    """Return training and test pixels; runs on the same data use the same ones.

    What a task keeps of encoded training images is each run's own.
    """
    keys = [key_of(learner, stream, file) for file in FILES]
    for file, key in zip(FILES, keys, strict=True):
        if key not in shared:
            shared[key] = place_pixels(stream.images(file), learner.machine.device)
    train, test = (shared[key] for key in keys)
    if isinstance(train, StreamedPixels):
        way, sharers = learner.settings.images, learner.world.size
        train = TaskPixels(train.images, train.device, way, sharers)
    return [train, test]


def feature_inputs(learner: Learner, stream: Stream, shared: SharedPixels) -> list[Pixels]:
    """Return features of training and test images, by the learner's frozen network.

    They are looked for among the ``shared`` ones, then in a folder, and else worked out.
    """
    network, how = cast(Frozen, learner.model.backbone), (learner.transform, learner.machine)
    pixels = {file: place_pixels(stream.images(file), learner.machine.device) for file in FILES}
    network.look_at_first(pixels["train"], *how)
    keys = [key_of(learner, stream, file) for file in FILES]
    for file, key in zip(FILES, keys, strict=True):
        if key in shared:
            continue

        def work_out(file: Literal["train", "test"] = file) -> Tensor:
            log.info("working out the features of %d %s images", len(pixels[file]), file)
            told = HowFar(f"features of {file} images") if the_world().is_first else None
            return network.features_of(pixels[file], *how, told=told)

        shape = (len(pixels[file]), network.out_features, 1, 1)
        cache = _cache_file(learner, stream, file)
        found = work_out() if cache is None else _kept(cache, shape, work_out)
        shared[key] = ResidentFeatures(found.to(learner.machine.device))
    return [shared[key] for key in keys]


def _cache_file(learner: Learner, stream: Stream, file: str) -> Path | None:
    folder = learner.settings.features_in
    if folder is None:
        return None
    data = _checksum(stream)
    if not data:
        raise PolarbearError(
            f"features_in = {folder!r}: these data have no checksum, so that nobody could tell "
            "whose features are kept there; leave it out"
        )
    whose = cast(Frozen, learner.model.backbone).fingerprint
    name = sha256(f"{data} {whose} {file}".encode()).hexdigest()
    return Path(folder) / f"features-{name[:32]}.npz"


def _kept(cache: Path, shape: tuple[int, ...], work_out: Callable[[], Tensor]) -> Tensor:
    """Return the features in a file, or work them out and keep them there.

    Processes that train together do the same: where one lacks the file, on a disk of its own or
    because another run wrote it only now, all work them out.
    """
    found = _read(cache, shape) if cache.exists() else None
    (lacking,) = the_world().any(found is None)
    if found is not None and not lacking:
        return found
    features = work_out()
    values = features.cpu().numpy()
    write_whole(cache, lambda out: np.savez(out, features=values), many_writers=True)
    return features


def _read(cache: Path, shape: tuple[int, ...]) -> Tensor | None:
    """Return the features in a file, None where it is not whole, which is said."""
    try:
        with naming(cache, "features", remedy=""):
            found = read_npz(cache, ("features",))["features"]
            if found.shape != shape or found.dtype != np.float32:
                raise ValueError(f"it holds {found.dtype} {found.shape}, not {shape}")
            return torch.from_numpy(found)
    except DataError as error:
        log.warning("the features are worked out again: %s", error)
        return None


def _checksum(stream: Stream) -> str:
    return stream.source.checksum if stream.source else ""
