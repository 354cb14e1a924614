"""ImageNet's speed: decoding, steady epochs, whole tasks, and two tasks at real sizes.

Pictures are made up, with about the sizes in pixels and in bytes that ImageNet's have at a short
side of 256; a few hundred of them stand for all, read from a packed file. Ratios are to the bare
network, compiled, on one batch that stays on the device.

    python bench/imagenet.py                              # all parts: eight minutes of an H200
    python bench/imagenet.py --parts decode reference     # some
    python bench/imagenet.py --tiny                       # a rehearsal on a CPU
    python bench/imagenet.py --csv bench/results/imagenet.csv

Results are printed as they come, and a table of all at the end. What matters most comes first; a
part that fails leaves the others alone, and one that no longer fits into ``--within`` seconds is
left out. ``full`` is killed once, amid the steps of its first task, and resumed.
"""

import argparse
import csv
import io
import json
import logging
import math
import os
import platform
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

from polarbear import Source, Stream
from polarbear.data.decode import LazyImages, decode, workers_or_default
from polarbear.data.decoders import WORTH_A_START
from polarbear.data.filenames import FileNames
from polarbear.data.packed import PackedImages
from polarbear.engine.machine import Machine
from polarbear.engine.nets.networks import build_backbone, feature_width
from polarbear.launch.bill import cost_of
from polarbear.launch.runner import resume, run
from polarbear.methods.presets import settings_for
from polarbear.named.registry import find
from polarbear.score.record import EpochRecord, ScoreRecord
from polarbear.settings.settings import Settings

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DIFFERENT = 256  # pictures that are made; each stands for many
#: Parts in their order, and the seconds that each takes on an H200 with 16 cores, at most.
PARTS = {
    "decode": 45, "bare": 80, "er": 95, "icarl-norm": 70, "reference": 30, "full": 200,
    "eager": 30, "pinned": 30, "streamed": 30,
}  # fmt: skip
WITH_TEACHER = 3 / 4  # a forward pass more: the arithmetic of a third more of a step


# Data


def picture(seed: int, short: int = 256) -> bytes:
    """Return a JPEG of some 23 KB at quality 90: smooth, with a photograph's fine grain.

    ImageNet's have 26 KB there, and as many pixels.
    """
    from PIL import Image

    draw = np.random.default_rng(seed)
    long = int(short * draw.uniform(1.0, 1.5))
    width, height = (long, short) if draw.random() < 0.8 else (short, long)
    total = np.zeros((height, width, 3))
    for cells, strength in ((4, 60), (16, 30), (64, 12), (256, 5)):
        noise = draw.normal(0, 1, (cells, cells, 3)) * 40 + 128
        layer = Image.fromarray(noise.clip(0, 255).astype(np.uint8))
        total += (np.asarray(layer.resize((width, height), Image.Resampling.BICUBIC)) - 128.0) * (
            strength / 40
        )
    out = io.BytesIO()
    Image.fromarray((total + 128).clip(0, 255).astype(np.uint8)).save(out, "JPEG", quality=90)
    return out.getvalue()


@dataclass(frozen=True, eq=False)
class Repeated:
    """A few pictures of a packed file that stand for many rows."""

    few: PackedImages
    count: int

    def __len__(self) -> int:
        return self.count

    def encoded(self, row: int) -> bytes:
        return self.few.encoded(row * 7919 % len(self.few))

    def name(self, row: int) -> str:
        return f"{row}.JPEG"

    where = name


def packed_pictures(folder: Path, pictures: int) -> PackedImages:
    """Write pictures one after another, as ``polarbear pack`` does."""
    made = [picture(seed) for seed in range(pictures)]
    (folder / "images.bin").write_bytes(b"".join(made))
    offsets = np.concatenate([[0], np.cumsum([len(one) for one in made])])
    print(f"{pictures} pictures of {offsets[-1] / pictures / 1e3:.1f} KB stand for all")
    names = FileNames.of([f"{i}.JPEG" for i in range(pictures)])
    return PackedImages(folder / "images.bin", offsets, np.zeros((pictures, 2), np.int32), names)


def made_up_stream(name: str, few: PackedImages, per_class: int, test: int) -> Stream:
    """Return a published benchmark with so many pictures a class."""
    benchmark = find(name)
    hierarchy = benchmark.hierarchy()
    leaves = hierarchy.leaves
    files = []
    for count in (per_class, test):
        images = LazyImages(Repeated(few, count * len(leaves)), 256)
        files += [images, np.repeat(np.arange(len(leaves)), count)]
    source = Source(leaves, *files, checksum=f"made-up-{per_class}-{test}")
    return Stream.from_source(source, hierarchy, benchmark.schedule(0), rule=benchmark.rule)


# Decoding


def by_pillow(encoded: bytes) -> Any:
    from PIL import Image

    image = Image.open(io.BytesIO(encoded)).convert("RGB")
    left, top = (image.width - 256) // 2, (image.height - 256) // 2
    return np.array(image.crop((left, top, left + 256, top + 256)))


def by_simplejpeg(encoded: bytes) -> Any:
    import simplejpeg

    return simplejpeg.decode_jpeg(encoded)


def by_turbojpeg(encoded: bytes) -> Any:
    from turbojpeg import TJPF_RGB, TurboJPEG

    global _TURBO
    _TURBO = globals().get("_TURBO") or TurboJPEG()
    return _TURBO.decode(encoded, pixel_format=TJPF_RGB)


LIBRARIES: dict[str, Callable[[bytes], Any]] = {
    "Pillow": by_pillow,
    "simplejpeg": by_simplejpeg,
    "PyTurboJPEG": by_turbojpeg,
    "ours, one by one": lambda encoded: decode(encoded, "", 256),
}


def rate_of(library: str, pictures: list[bytes], seconds: float) -> float:
    """Return how many images a second one process decodes."""
    function, done = LIBRARIES[library], 0
    function(pictures[0])
    began = time.perf_counter()
    while (spent := time.perf_counter() - began) < seconds:
        function(pictures[done % len(pictures)])
        done += 1
    return done / spent


def measure_decoding(few: PackedImages, args: argparse.Namespace, found: "Found") -> None:
    pictures = [few.encoded(row) for row in range(len(few))]
    cores = workers_or_default(None)
    print(f"decoding, {cores} cores, images/s: one process, and one per core")
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        for library in LIBRARIES:
            try:
                alone = pool.submit(rate_of, library, pictures, args.seconds).result()
            except (ImportError, RuntimeError, OSError) as error:
                print(f"  {library}: absent ({error})")
                continue
            work = [pool.submit(rate_of, library, pictures, args.seconds) for _ in range(cores)]
            together = sum(one.result() for one in work)
            print(f"  {library}: {alone:,.0f} and {together:,.0f}")
            found.add(f"decoding, {library}, one process", alone, "alone")
            found.add(f"decoding, {library}", together, "decode")
    images = LazyImages(Repeated(few, 10**6), 256)
    images[:WORTH_A_START]  # processes begin here
    began = time.perf_counter()
    for i in range(args.batches):
        images[np.arange(512) + 512 * i]
    rate = 512 * args.batches / (time.perf_counter() - began)
    print(f"  batches of 512 as a run asks for them: {rate:,.0f}")
    found.add("decoding, as a run asks for it", rate, "decode")
    if args.device == "cuda":
        measure_nvjpeg(pictures, args, found)


def measure_nvjpeg(pictures: list[bytes], args: argparse.Namespace, found: "Found") -> None:
    """Measure torchvision's decoder on the GPU, whose pixels are not quite libjpeg's."""
    try:
        from torchvision.io import decode_jpeg
    except (ImportError, RuntimeError) as error:
        print(f"  torchvision on the GPU: absent ({error})")
        return
    batch = [torch.frombuffer(bytearray(one), dtype=torch.uint8) for one in pictures]
    decoded = decode_jpeg(batch, device="cuda")
    torch.cuda.synchronize()
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        decoded = decode_jpeg(batch, device="cuda")
        torch.cuda.synchronize()
        done += len(batch)
    rate = done / (time.perf_counter() - began)
    here = torch.from_numpy(decode(pictures[0], "")).permute(2, 0, 1)
    found.add("decoding, torchvision on the GPU", rate, "decode")
    off = (decoded[0].cpu().int() - here.int()).abs().float()
    print(f"  torchvision on the GPU: {rate:,.0f}; off by {off.mean():.2f} on average, "
          f"{off.max():.0f} at most, of 255")  # fmt: skip


# The network alone, and the reference's way


def network(args: argparse.Namespace) -> tuple[torch.nn.Module, Machine]:
    settings = Settings("er", network=args.network, device=args.device)
    machine = Machine.of(settings)
    backbone = build_backbone(args.network, 0, {})
    model = torch.nn.Sequential(backbone, torch.nn.Linear(feature_width(backbone), 63))
    machine.place(model)
    return model, machine


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def bare_rate(args: argparse.Namespace, *, compiled: bool) -> float:
    """Return images per second of whole steps on one batch that stays on the device."""
    model, machine = network(args)
    device = machine.device
    images = torch.randn(args.batch, 3, 224, 224, device=device)
    images = images.contiguous(memory_format=torch.channels_last)
    targets = torch.zeros(args.batch, 63, device=device)
    fused = device.type == "cuda"
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, fused=fused)
    call = torch.compile(model, dynamic=False) if compiled else model

    def step() -> None:
        optimiser.zero_grad(set_to_none=True)
        with machine.autocast():
            loss = torch.nn.functional.binary_cross_entropy_with_logits(call(images), targets)
        loss.backward()
        optimiser.step()

    # Left out, ``enabled`` is false: without cuDNN the network takes twelve times as long.
    with torch.backends.cudnn.flags(enabled=True, benchmark=True):
        for _ in range(args.warm_up):
            step()
        wait(device)
        began, done = time.perf_counter(), 0
        while time.perf_counter() - began < args.seconds:
            for _ in range(args.warm_up):
                step()
            wait(device)
            done += args.warm_up
        return done * args.batch / (time.perf_counter() - began)


def measure_bare(args: argparse.Namespace, found: "Found") -> None:
    for compiled in (False, True) if args.compile else (False,):
        how, began = "compiled" if compiled else "eager", time.perf_counter()
        rate = found.add(f"bare {args.network}, {how}", bare_rate(args, compiled=compiled), "bare")
        seconds = time.perf_counter() - began - args.seconds
        print(f"the bare {args.network}, {how}: {rate:,.0f} images/s, after {seconds:.0f} s")
        found.bare = rate


class PilDataset(Dataset):
    """Pictures as the authors serve them: decoded, cut, resized and mirrored one by one by PIL."""

    def __init__(self, few: PackedImages, count: int) -> None:
        self.files = Repeated(few, count)

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, row: int) -> torch.Tensor:
        from PIL import Image

        image = Image.open(io.BytesIO(self.files.encoded(row))).convert("RGB")
        for _ in range(10):
            area = random.uniform(0.08, 1.0) * image.width * image.height
            ratio = math.exp(random.uniform(math.log(3 / 4), math.log(4 / 3)))
            w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if w <= image.width and h <= image.height:
                break
        else:
            w = h = min(image.size)
        left, top = random.randint(0, image.width - w), random.randint(0, image.height - h)
        image = image.crop((left, top, left + w, top + h))
        image = image.resize((224, 224), Image.Resampling.BILINEAR)
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div(255)
        return (pixels - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)


def measure_reference(few: PackedImages, args: argparse.Namespace, found: "Found") -> None:
    model, machine = network(args)
    device = machine.device
    model = model.to(memory_format=torch.contiguous_format).train()
    torch.backends.cudnn.allow_tf32 = True  # PyTorch's default, which the authors leave
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    targets = torch.zeros(args.batch, 63, device=device)
    loader = DataLoader(
        PilDataset(few, 10**6), args.batch, num_workers=args.workers, drop_last=True, shuffle=True,
        pin_memory=device.type == "cuda",
    )  # fmt: skip
    began, done = math.nan, 0
    for number, images in enumerate(loader):
        if number == args.warm_up:
            began = time.perf_counter()
        optimiser.zero_grad()
        scores = model(images.to(device, non_blocking=True))
        loss = torch.nn.functional.binary_cross_entropy_with_logits(scores, targets)
        loss.backward()
        optimiser.step()
        loss.item()
        done += number >= args.warm_up
        if done and time.perf_counter() - began > args.reference_seconds:
            break
    rate = done * args.batch / (time.perf_counter() - began)
    found.add(f"the reference's way, {args.workers} workers", rate, "reference")
    print(f"the reference's way, {args.workers} workers: {rate:,.0f} images/s")


# Runs


@dataclass
class Clock:
    """Notes what epochs took, and when the evaluation after each task was over."""

    began: float = field(default_factory=time.perf_counter)
    epochs: list[EpochRecord] = field(default_factory=list)
    ended: dict[int, float] = field(default_factory=dict)

    def epoch(self, record: EpochRecord) -> None:
        self.epochs.append(record)

    def scores(self, record: ScoreRecord) -> None:
        self.ended[record.after] = time.perf_counter()

    def answers(self, *_: object) -> None: ...


def asked(method: str, benchmark: str, args: argparse.Namespace, **changes: Any) -> Settings:
    values = {
        "network": args.network,
        "batch_size": args.batch,
        "device": args.device,
        "first_task_factor": 1.0,
        "preparation": "imagenet",
        "learning_rate": 0.01,
        "seed": 1,
        "compile": "auto" if args.compile else False,
    }
    return settings_for(method, benchmark, **values | changes)


def measure_run(
    few: PackedImages,
    args: argparse.Namespace,
    found: "Found",
    part: str,
    method: str = "er",
    tasks: int = 1,
    **changes: Any,
) -> None:
    """Measure a run of the lite benchmark: epochs after a task's first, and the whole task 0."""
    stream = made_up_stream(args.lite, few, args.per_class, 2)
    of_paper = settings_for(method, "iirc-imagenet-full").epochs_of(0)
    # Later tasks are small: twice as many epochs as task 0.
    more = {"epochs": args.epochs * tasks, "first_task_factor": 1 / tasks, "tasks": tasks}
    settings = asked(method, args.lite, args, **more | changes)
    graphs, clock = compilations(), Clock()
    with tempfile.TemporaryDirectory() as folder:
        run(settings, Path(folder) / "run", stream=stream, recorders=(clock,))
    for task in range(tasks):
        epochs = [one for one in clock.epochs if one.task == task]
        steady = median(one.images / one.seconds for one in epochs[1:])
        print(
            f"{method} {changes or ''}, task {task}: {epochs[0].images:,} images, epochs of "
            f"{', '.join(f'{one.seconds:.1f}' for one in epochs)} s, steady {steady:,.0f} "
            f"images/s; last loss {epochs[-1].loss:.6f}",
        )
        name = f"{part}, steady" if task == 0 else f"{part}, steady in task {task}, with a teacher"
        found.add(name, steady, "steady" if part in AS_USERS_GET_THEM and task == 0 else "way")
    # A whole task of the paper's length has as many steady epochs more.
    epochs, seconds = [one for one in clock.epochs if one.task == 0], clock.ended[0] - clock.began
    later = median(one.seconds for one in epochs[1:])
    in_all = epochs[0].images * of_paper / (seconds + (of_paper - len(epochs)) * later)
    print(
        f"  task 0 took {seconds:.0f} s with all that belongs to it, with {of_paper} epochs that "
        f"is {in_all:,.0f} images/s; compiled {compilations() - graphs} times",
    )
    if part in AS_USERS_GET_THEM:
        found.add(f"{part}, task 0 of {of_paper} epochs with all", in_all, "whole")


AS_USERS_GET_THEM = ("er", "icarl-norm")


def compilations() -> int:
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])


def child(args: argparse.Namespace) -> None:
    """Train two tasks of the full benchmark at real sizes, in a process that may be killed."""
    folder = Path(args.child)
    content = json.loads((folder / "few.json").read_text())
    names = FileNames.of([f"{i}.JPEG" for i in range(len(content) - 1)])
    shapes = np.zeros((len(content) - 1, 2), np.int32)
    few = PackedImages(folder / "images.bin", np.array(content), shapes, names)
    stream = made_up_stream(args.full, few, *args.real_sizes)
    clock, to = Clock(), folder / "full"
    settings = asked("er", args.full, args, epochs=1, tasks=2)
    more = {"stream": stream, "recorders": (clock,), "save_every": args.save_every}
    if to.exists():
        resume(to, **more)
    else:
        run(settings, to, **more)
    figures = {"host memory, GiB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}
    if args.device == "cuda":
        figures["GPU memory, GiB"] = torch.cuda.max_memory_allocated() / 2**30
    for one in clock.epochs:
        print(f"  task {one.task}: {one.images:,} images in {one.seconds:.0f} s")
    figures["seconds of the resumed run"] = max(clock.ended.values()) - clock.began
    print(f"  from the start of this process: {figures['seconds of the resumed run']:.0f} s")
    last, passes = clock.epochs[-1], cost_of("er", args.full, stream, 256 * 256 * 3).passes
    figures["million image passes of all tasks"] = passes / 1e6
    hours = passes / (last.images / last.seconds) / 3600
    figures["hours for all tasks at the rate of its last epoch"] = hours
    print(
        f"  all {len(stream)} tasks as the paper trains them: {passes / 1e6:,.1f} million image "
        f"passes, {hours:.1f} hours at the rate of task {last.task}, whose only epoch also decoded",
    )
    (folder / "figures.json").write_text(json.dumps(figures))


def measure_full(
    few: PackedImages, folder: Path, rest: Sequence[str], left: float, found: "Found"
) -> None:
    """Kill a run once it has trained for a while, resume it, and let it say what it took."""
    (folder / "few.json").write_text(json.dumps([int(offset) for offset in few.offsets]))
    command = [sys.executable, __file__, *rest, "--child", str(folder)]
    began = time.perf_counter()
    print("two tasks of iirc-imagenet-full at real sizes")
    with subprocess.Popen(command) as first:
        while not steps_saved(folder / "full") and first.poll() is None:
            time.sleep(0.2)
            if time.perf_counter() - began > left:
                break
        killed = first.poll() is None
        first.send_signal(signal.SIGKILL)
    until = time.perf_counter() - began
    saved = steps_saved(folder / "full")
    print(f"  killed: {killed}, {saved} steps after its start, {until:.0f} s")
    subprocess.run(command, check=True, timeout=max(1.0, left - (time.perf_counter() - began)))
    seconds = time.perf_counter() - began
    print(f"  in all {seconds:.0f} s")
    figures = json.loads((folder / "figures.json").read_text())
    if steady := found.figures.get("er, steady"):
        passes = figures["million image passes of all tasks"] * 1e6
        figures["hours for all tasks at er's steady rate"] = passes / steady[0] / 3600
    took = {"seconds, killed and resumed": seconds, "seconds until it was killed": until}
    for name, value in {**took, **figures}.items():
        found.add(f"full, two tasks: {name}", value, "full")


def steps_saved(folder: Path) -> int:
    """Return the step that a run's newest checkpoint stands before, 0 without one."""
    saved = sorted((folder / "checkpoint").glob("*.json"))
    try:
        return int(json.loads(saved[-1].read_text())["facts"]["progress"]["step"]) if saved else 0
    except (FileNotFoundError, ValueError, KeyError):
        return 0  # replaced meanwhile


# The table


@dataclass
class Found:
    """Figures in the order in which they came, each with what kind it is."""

    bare: float | None = None
    figures: dict[str, tuple[float, str]] = field(default_factory=dict)

    def add(self, name: str, value: float, kind: str) -> float:
        self.figures[name] = (value, kind)
        return value

    def table(self) -> str:
        lines = [
            "| | figure | × the bare network | due | × the reference |",
            "|---|--:|--:|--:|--:|",
        ]
        way = next((v for v, kind in self.figures.values() if kind == "reference"), None)
        for name, (value, kind) in self.figures.items():
            trains = kind in ("bare", "reference", "steady", "whole", "way")
            to_bare = f"{value / self.bare:.2f}" if trains and self.bare else ""
            to_way = f"{value / way:.2f}" if trains and way else ""
            due = DUE.get(kind, "")
            if "with a teacher" in name:
                due = f"({WITH_TEACHER:.2f} at most)"
            shown = f"{value:,.0f}" if kind != "full" else f"{value:,.1f}"
            lines.append(f"| {name} | {shown} | {to_bare} | {due} | {to_way} |")
        return "\n".join(lines)

    def write(self, file: Path) -> None:
        """Write figures as the table shows them, for programs."""
        with file.open("w", encoding="utf-8", newline="") as out:
            rows = csv.writer(out, lineterminator="\n")
            rows.writerow(["what", "figure"])
            for name, (value, kind) in self.figures.items():
                rows.writerow([name, f"{value:.{1 if kind == 'full' else 0}f}"])


DUE: Mapping[str, str] = {"decode": "5,000 images/s", "steady": "0.90", "whole": "0.80"}


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--parts", nargs="+", choices=list(PARTS), default=list(PARTS))
    add("--within", type=float, default=560.0, help="seconds for all; what does not fit is left")
    add("--tiny", action="store_true", help="a rehearsal on a CPU: all is small")
    add("--network", default="resnet50")
    add("--batch", type=int, default=128)
    add("--workers", type=int, default=16, help="of the reference's DataLoader")
    add("--epochs", type=int, default=4, help="of task 0 of each steady run")
    add("--per-class", type=int, default=160, help="training images of a class, steady runs")
    add("--real-sizes", type=int, nargs=2, default=(1281, 50), metavar=("TRAIN", "TEST"))
    add("--seconds", type=float, default=3.0, help="of each short measurement")
    add("--reference-seconds", type=float, default=18.0)
    add("--batches", type=int, default=40, help="of 512 images, decoded as a run asks for them")
    add("--warm-up", type=int, default=10, help="steps")
    add("--save-every", type=float, default=10.0, help="seconds between checkpoints, part full")
    add("--no-compile", dest="compile", action="store_false", help="compile nothing")
    add("--csv", type=Path, metavar="FILE", help="write the figures there, too")
    add("--child", help=argparse.SUPPRESS)
    args = parser.parse_args(given)
    args.device = "cuda" if torch.cuda.is_available() and not args.tiny else "cpu"
    args.pictures, args.lite, args.full = DIFFERENT, "iirc-imagenet-lite", "iirc-imagenet-full"
    if args.tiny:
        small = {
            "network": "small", "batch": 32, "workers": 1, "epochs": 2, "per_class": 5,
            "real_sizes": (10, 1), "seconds": 0.3, "reference_seconds": 0.5, "batches": 1,
            "warm_up": 1, "save_every": 0.0, "compile": False, "pictures": 8,
            "lite": "iirc-shapes", "full": "iirc-shapes",
        }  # fmt: skip
        vars(args).update(small)
    return args


def main() -> None:
    logging.basicConfig(format="  %(message)s", level=logging.WARNING, stream=sys.stdout)
    sys.stdout.reconfigure(line_buffering=True)
    args = arguments(sys.argv[1:])
    if args.child:
        child(args)
        return
    name = torch.cuda.get_device_name() if args.device == "cuda" else platform.processor()
    print(f"{name}, {os.cpu_count()} cores, PyTorch {torch.__version__}")
    began, found = time.perf_counter(), Found()
    with tempfile.TemporaryDirectory() as folder:
        few = packed_pictures(Path(folder), args.pictures)
        measure: dict[str, Callable[[float], None]] = {
            "decode": lambda left: measure_decoding(few, args, found),
            "bare": lambda left: measure_bare(args, found),
            "er": lambda left: measure_run(few, args, found, "er"),
            "icarl-norm": lambda left: measure_run(
                few, args, found, "icarl-norm", "icarl-norm", tasks=2
            ),
            "reference": lambda left: measure_reference(few, args, found),
            "full": lambda left: measure_full(few, Path(folder), sys.argv[1:], left, found),
            "eager": lambda left: measure_run(few, args, found, "er, not compiled", compile=False),
            "pinned": lambda left: measure_run(few, args, found, "er, pinned", images="pinned"),
            "streamed": lambda left: measure_run(
                few, args, found, "er, streamed", images="streamed"
            ),
        }
        for part in [one for one in PARTS if one in args.parts]:
            start = time.perf_counter()
            left = args.within - (start - began)
            if left < PARTS[part]:
                print(f"{part}: left out, {left:.0f} s are left and it may take {PARTS[part]}")
                continue
            try:
                measure[part](left)
            except Exception:
                print(f"{part}: failed")
                traceback.print_exc(file=sys.stdout)
            took, now = time.perf_counter() - start, time.perf_counter() - began
            print(f"[{part}: {took:.0f} s, {now:.0f} s in all]")
    print(found.table())
    if args.csv:
        found.write(args.csv)


if __name__ == "__main__":
    main()
