"""What runs of a benchmark will cost: images passed, hours on this machine, bytes.

Passes come from the plan and are exact. Hours come from a measurement: a method in the preset's
network and batch takes steps on made-up pixels for some seconds, then looks without training.
"""

import io
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from polarbear.benchmark.source import Source
from polarbear.benchmark.split import SplitRule
from polarbear.benchmark.stream import Stream
from polarbear.data.decode import LazyImages, need_pillow, workers_or_default
from polarbear.data.pack import shrink_all
from polarbear.data.packed import PackedImages
from polarbear.engine.contract.method import Method
from polarbear.engine.machine import Machine
from polarbear.engine.nets.heads import build_head
from polarbear.engine.nets.model import Model
from polarbear.engine.nets.networks import build_backbone, feature_width
from polarbear.engine.task.learner import Learner
from polarbear.engine.trainer import Trainer
from polarbear.launch.assembly import assemble
from polarbear.launch.checkpoint import KEPT
from polarbear.launch.prepare import threads as with_threads
from polarbear.launch.prepare import usual_threads
from polarbear.launch.workload import stored_images, work_of
from polarbear.methods.presets import settings_for
from polarbear.methods.registry import make_options, resolve
from polarbear.named.registry import find, load, nominal_stream
from polarbear.settings.settings import Settings

MEASURED = "er"  # a step of its first task is the network's, and nothing else
MADE_UP_BYTES = 400e6
MOST_PER_LEAF = 500
BATCH_ON_CPU = 16  # images a step: more are hardly faster there, and a ResNet-50 takes a minute
SIDES = {"imagenet": 256}  # of images as they are stored, where the data are not there
USUAL_SIDE = 32
PACKED_QUALITY = 90  # as pack has it


@dataclass(frozen=True)
class Rate:
    """Images per second, ``trained`` on and ``looked`` at, and on what that was measured.

    ``peak`` is the most memory of the GPU, None on a CPU.
    """

    trained: float
    looked: float
    steps: int
    network: str
    batch_size: int
    device: str
    precision: str
    peak: int | None = None


@dataclass(frozen=True)
class Cost:
    """What one run of a method takes.

    ``passes`` are images in steps, ``looks`` those of validation, test and, where the method has a
    teacher, what that one sees. ``kept`` are bytes of stored images, ``checkpoints`` those on disk;
    networks that a method keeps for good, and phases of its own, are not counted.
    """

    method: str
    passes: int
    looks: int
    stored: int
    kept: int
    checkpoints: int

    def hours(self, rate: Rate) -> float:
        """Return how long it takes at a rate."""
        return (self.passes / rate.trained + self.looks / rate.looked) / 3600


def stream_to_count(benchmark: str, order: int, stream: Stream | None) -> tuple[Stream, bool]:
    """Return a stream with a benchmark's number of images, and whether its counts are exact.

    It is the one given; without the data, one of the published counts, or of their mean.
    """
    found = stream or nominal_stream(benchmark, order)
    if found is not None:
        return found, True
    published, leaves = find(benchmark).published_images, find(benchmark).hierarchy().leaves
    if published is None:
        return load(benchmark, order), True  # which says what is missing
    mean = round(published.in_all / published.leaves) if published.in_all else published.most
    train, test = np.repeat(leaves, mean), np.repeat(leaves, published.test)
    return load(benchmark, order, leaf_train=train, leaf_test=test), False


def image_shape(benchmark: str, stream: Stream) -> tuple[int, int, int]:
    """Return the shape of an image, as the data have it, or as they usually have."""
    if stream.source is not None:
        height, width = np.shape(stream.images("train")[:1])[1:3]
        return height, width, 3
    side = SIDES.get(find(benchmark).preparation, USUAL_SIDE)
    return side, side, 3


def largest_task_bytes(stream: Stream, image_bytes: int) -> int:
    """Return the bytes of the images, decoded, that a task trains on and validates with, at most.

    A task's memory comes beside them.
    """
    return image_bytes * max(len(np.union1d(task.train.rows, task.valid.rows)) for task in stream)


def are_files(stream: Stream) -> bool:
    """Whether a stream's images are decoded from files; data that are not there are taken to be."""
    return stream.source is None or isinstance(stream.source.train, LazyImages)


def is_packed(stream: Stream) -> bool:
    """Whether a stream's images are there, and packed."""
    images = stream.source and stream.source.train
    return isinstance(images, LazyImages) and isinstance(images.files, PackedImages)


def packing_hours(images: int, side: int, seconds: float) -> float:
    """Return how long it takes to pack image files of ImageNet's usual size, reading them aside.

    One core packs a made-up one for so many seconds; all of them are said to be as fast.
    """
    photograph, done, begun = _photograph(), 0, time.perf_counter()
    while not done or time.perf_counter() - begun < seconds:
        shrink_all(None, [photograph], side, PACKED_QUALITY)
        done += 1
    each = (time.perf_counter() - begun) / done
    return images * each / workers_or_default(None) / 3600


def _photograph() -> bytes:
    """Return a JPEG of 500 × 375 pixels and some 100 KB, as ImageNet's are: smooth, with grain."""
    need_pillow()
    from PIL import Image

    draw = np.random.default_rng(0)
    patches = Image.fromarray(draw.integers(0, 256, (12, 16, 3), dtype=np.uint8))
    smooth = np.asarray(patches.resize((500, 375), Image.Resampling.BICUBIC))
    pixels = (smooth + draw.normal(0, 9, smooth.shape)).clip(0, 255).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG", quality=95)
    return out.getvalue()


def cost_of(name: str, benchmark: str, stream: Stream, image_bytes: int) -> Cost:
    """Return what a method's run costs, with the preset's settings."""
    kind, settings = resolve(name), settings_for(name, benchmark)
    if kind.joint:
        stream = replace(stream, schedule=stream.schedule.joint())
    method = kind(_model(kind, settings, len(stream.classes)), make_options(kind, settings.options))
    work, stored = work_of(method, settings, stream), stored_images(method, settings, stream)
    by_teacher = sum(task.passes for task in work[1:]) if kind.wants_teacher else 0
    return Cost(
        name,
        sum(task.passes for task in work) * kind.views,
        sum(task.looks for task in work) + by_teacher,
        stored,
        stored * image_bytes,
        _checkpoint_bytes(method, settings),
    )


def _model(method: type[Method], settings: Settings, classes: int) -> Model:
    backbone = build_backbone(settings.network, settings.seed, settings.network_options)
    model = Model(backbone, build_head(method.head, feature_width(backbone), classes, 0))
    model.head.grow(classes)  # type: ignore[operator]
    return model


def _checkpoint_bytes(method: Method, settings: Settings) -> int:
    """Return the bytes of a run's checkpoints within its last task."""
    weights = _bytes(method.model.state_dict())
    learnt = sum(p.numel() * p.element_size() for p in method.model.parameters())
    moments = {"sgd": int(settings.momentum > 0), "adamw": 2}[settings.optimiser]
    networks = 1 + (method.keep == "best") + method.wants_teacher
    return KEPT * (networks * weights + moments * learnt + _bytes(method.state()))


def _bytes(tensors: Mapping[str, Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def measure_rate(benchmark: str, shape: tuple[int, int, int], seconds: float) -> Rate:
    """Take steps for so many seconds, at least two, then look at images for a quarter of that."""
    # A plateau would complain that there are no validation images.
    settings = settings_for(
        MEASURED, benchmark, epochs=1_000_000, first_task_factor=1.0, schedule="constant"
    )
    if Machine.of(settings).device.type == "cpu":
        settings = replace(settings, batch_size=min(settings.batch_size, BATCH_ON_CPU))
    with with_threads(usual_threads(settings) or torch.get_num_threads()):
        stream, kind = _made_up(benchmark, shape), resolve(MEASURED)
        learner = assemble(settings, stream, kind, make_options(kind, settings.options))
        learner.machine.allow_tf32()
        trained, steps = _trained_per_second(Trainer(stream, learner, ()), seconds)
        looked = _looked_at_per_second(learner, stream, trained, seconds / 4)
    device, peak = learner.machine.device, None
    name = "cpu"
    if device.type == "cuda":
        name, peak = torch.cuda.get_device_name(device), torch.cuda.max_memory_allocated(device)
    about = (settings.network, settings.batch_size, name, learner.machine.precision, peak)
    return Rate(trained, looked, steps, *about)


def _made_up(benchmark: str, shape: tuple[int, int, int]) -> Stream:
    """Return a stream of one task with all classes, whose images are one image of chance."""
    one = find(benchmark)
    leaves = one.hierarchy().leaves
    each = int(max(1, min(MOST_PER_LEAF, MADE_UP_BYTES // (np.prod(shape) * len(leaves)))))
    leaf = np.repeat(np.arange(len(leaves)), each)
    image = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    images = np.broadcast_to(image, (len(leaf), *shape))
    source = Source(leaves, images, leaf, images[: len(leaves)], leaf[::each])
    rule = SplitRule(valid=0, post_valid=0)  # an epoch is steps alone
    return Stream.from_source(source, one.hierarchy(), one.schedule(0).joint(), rule=rule)


def _trained_per_second(trainer: Trainer, seconds: float) -> tuple[float, int]:
    """Return images per second, the first step or seconds aside, and how many steps were taken."""
    device, batch = trainer.learner.machine.device, trainer.settings.batch_size
    begun, first = time.perf_counter(), None
    for progress in trainer.steps():
        now = time.perf_counter()
        an_epoch = len(trainer.images.training_set)
        images = progress.epoch * an_epoch + min(progress.step * batch, an_epoch)
        if first is None:
            if images and now - begun > seconds / 8:  # warm: captured, compiled, chosen
                first = (now, images)
        elif images > first[1] and now - begun > seconds:
            break
    _wait_for(device)
    assert first is not None
    passed = images - first[1]
    return passed / (time.perf_counter() - first[0]), -(-passed // batch)


def _looked_at_per_second(
    learner: Learner, stream: Stream, trained: float, seconds: float
) -> float:
    """Return images per second that are looked at without training."""
    rows = np.arange(len(stream.train_leaf))[: int(max(16, min(learner.at_once, 4 * trained)))]
    looks = 0
    begun = time.perf_counter()
    while not looks or time.perf_counter() - begun < seconds:
        learner.scores_of(learner.train_pixels, rows, len(stream.classes))
        looks += len(rows)
    return looks / (time.perf_counter() - begun)


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
