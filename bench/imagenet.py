"""ImageNet's speed: decoding, steady epochs, a whole task, and two tasks at real sizes.

Pictures are made up, with the sizes in pixels and in bytes that ImageNet's have at a short side of
256; a few hundred of them stand for all, read from a packed file. Ratios are to the bare network,
compiled, on one batch that stays on the device.

    python bench/imagenet.py                              # all parts: ten minutes of an H200
    python bench/imagenet.py --parts decode reference     # some
    python bench/imagenet.py --tiny                       # a rehearsal on a CPU

Results are printed as they come. ``full`` is killed once, amid its first task, and resumed.
"""

import argparse
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
from collections.abc import Callable, Sequence
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
from polarbear.score.record import EpochRecord
from polarbear.settings.settings import Settings

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
DIFFERENT = 256  # pictures that are made; each stands for many
PARTS = ("decode", "bare", "reference", "steady", "full")


# Data


def picture(seed: int, short: int = 256) -> bytes:
    """Return a JPEG of some 26 KB at quality 90: smooth, with a photograph's fine grain."""
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
    print(f"{pictures} pictures of {offsets[-1] / pictures / 1e3:.1f} KB stand for all", flush=True)
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


def measure_decoding(few: PackedImages, args: argparse.Namespace) -> None:
    pictures = [few.encoded(row) for row in range(len(few))]
    cores = workers_or_default(None)
    print(f"decoding, {cores} cores, images/s: one process, and one per core")
    with ProcessPoolExecutor(cores, mp_context=get_context("spawn")) as pool:
        for library in LIBRARIES:
            try:
                alone = pool.submit(rate_of, library, pictures, args.seconds).result()
            except (ImportError, RuntimeError, OSError) as error:
                print(f"  {library}: absent ({error})", flush=True)
                continue
            work = [pool.submit(rate_of, library, pictures, args.seconds) for _ in range(cores)]
            together = sum(one.result() for one in work)
            print(f"  {library}: {alone:,.0f} and {together:,.0f}", flush=True)
    images = LazyImages(Repeated(few, 10**6), 256)
    images[:WORTH_A_START]  # processes begin here
    began = time.perf_counter()
    for i in range(args.batches):
        images[np.arange(512) + 512 * i]
    rate = 512 * args.batches / (time.perf_counter() - began)
    print(f"  batches of 512 as a run asks for them: {rate:,.0f}", flush=True)
    if args.device == "cuda":
        measure_nvjpeg(pictures, args)


def measure_nvjpeg(pictures: list[bytes], args: argparse.Namespace) -> None:
    """Measure torchvision's decoder on the GPU, whose pixels are not quite libjpeg's."""
    try:
        from torchvision.io import decode_jpeg
    except (ImportError, RuntimeError) as error:
        print(f"  torchvision on the GPU: absent ({error})")
        return
    batch = [torch.frombuffer(bytearray(one), dtype=torch.uint8) for one in pictures]
    found = decode_jpeg(batch, device="cuda")
    torch.cuda.synchronize()
    began, done = time.perf_counter(), 0
    while time.perf_counter() - began < args.seconds:
        found = decode_jpeg(batch, device="cuda")
        torch.cuda.synchronize()
        done += len(batch)
    rate = done / (time.perf_counter() - began)
    here = torch.from_numpy(decode(pictures[0], "")).permute(2, 0, 1)
    off = (found[0].cpu().int() - here.int()).abs().float()
    print(f"  torchvision on the GPU: {rate:,.0f}; off by {off.mean():.2f} on average, "
          f"{off.max():.0f} at most, of 255", flush=True)  # fmt: skip


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


def measure_bare(args: argparse.Namespace) -> float:
    eager = bare_rate(args, compiled=False)
    compiled = bare_rate(args, compiled=True) if args.compile else eager
    print(f"the bare {args.network}, images/s: eager {eager:,.0f}, compiled {compiled:,.0f}",
          flush=True)  # fmt: skip
    return compiled


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


def measure_reference(few: PackedImages, args: argparse.Namespace) -> float:
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
    print(f"the reference's way, {args.workers} workers, images/s: {rate:,.0f}", flush=True)
    return rate


# Runs


@dataclass
class Clock:
    """Notes what epochs took, and when evaluation was over."""

    began: float = field(default_factory=time.perf_counter)
    epochs: list[EpochRecord] = field(default_factory=list)
    ended: float = 0.0

    def epoch(self, record: EpochRecord) -> None:
        self.epochs.append(record)

    def scores(self, record: object) -> None:
        self.ended = time.perf_counter()

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
    }
    return settings_for(method, benchmark, **values | changes)


def measure_steady(
    few: PackedImages, bare: float | None, reference: float | None, args: argparse.Namespace
) -> None:
    """Measure epochs after the first, and the whole task, on task 0 of the lite benchmark."""
    stream = made_up_stream(args.lite, few, args.per_class, 2)
    epochs_of_paper = settings_for("er", "iirc-imagenet-full").epochs
    ways: list[tuple[str, dict[str, Any]]] = [("er", {}), ("icarl-norm", {})]
    if args.compile:
        ways = [("er", {}), *((name, {"compile": True}) for name, _ in ways)]
    ways += [("er", {"images": way}) for way in ("pinned", "streamed")]
    ways = ways[:1] if args.tiny else ways
    for method, changes in ways:
        settings = asked(method, args.lite, args, epochs=args.epochs, tasks=1, **changes)
        clock = Clock()
        with tempfile.TemporaryDirectory() as folder:
            run(settings, Path(folder) / "run", stream=stream, recorders=(clock,))
        later = [one.images / one.seconds for one in clock.epochs[1:]]
        steady = median(later)
        seconds = clock.ended - clock.began
        # A whole task of the paper's length has as many steady epochs more.
        more = (epochs_of_paper - args.epochs) * median(e.seconds for e in clock.epochs[1:])
        in_all = clock.epochs[0].images * epochs_of_paper / (seconds + more)
        beside = "".join(
            f", {steady / other:.2f}× {name}"
            for name, other in (("the bare one", bare), ("the reference", reference))
            if other
        )
        print(
            f"{method} {changes or ''}: {clock.epochs[0].images:,} images, epochs of "
            f"{', '.join(f'{one.seconds:.1f}' for one in clock.epochs)} s; steady "
            f"{steady:,.0f} images/s{beside}; whole task {seconds:.0f} s, with "
            f"{epochs_of_paper} epochs {in_all:,.0f} images/s"
            + (f", {in_all / bare:.2f}× the bare one" if bare else ""),
            flush=True,
        )


def child(args: argparse.Namespace) -> None:
    """Train two tasks of the full benchmark at real sizes, in a process that may be killed."""
    folder = Path(args.child)
    content = json.loads((folder / "few.json").read_text())
    names = FileNames.of([f"{i}.JPEG" for i in range(len(content) - 1)])
    shapes = np.zeros((len(content) - 1, 2), np.int32)
    few = PackedImages(folder / "images.bin", np.array(content), shapes, names)
    stream = made_up_stream(args.full, few, *args.real_sizes)
    clock, to = Clock(), folder / "full"
    settings = asked("er", args.full, args, epochs=1, tasks=2, compile=args.compile)
    more = {"stream": stream, "recorders": (clock,), "save_every": args.save_every}
    if to.exists():
        resume(to, **more)
    else:
        run(settings, to, **more)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"  most memory of the process: {most:.1f} GiB")
    if args.device == "cuda":
        print(f"  most memory on the GPU: {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
    for one in clock.epochs:
        print(f"  task {one.task}: {one.images:,} images in {one.seconds:.0f} s")
    print(f"  from the start of this process: {clock.ended - clock.began:.0f} s")
    last, passes = clock.epochs[-1], cost_of("er", args.full, stream, 256 * 256 * 3).passes
    hours = passes / (last.images / last.seconds) / 3600
    print(
        f"  all {len(stream)} tasks as the paper trains them: {passes / 1e6:,.1f} million image "
        f"passes, {hours:.1f} hours at the rate of task {last.task}, whose only epoch also decoded",
        flush=True,
    )


def measure_full(few: PackedImages, folder: Path, rest: Sequence[str]) -> None:
    """Kill a run once it has trained for a while, resume it, and let it say what it took."""
    (folder / "few.json").write_text(json.dumps([int(offset) for offset in few.offsets]))
    command = [sys.executable, __file__, *rest, "--child", str(folder)]
    began = time.perf_counter()
    print("two tasks of iirc-imagenet-full at real sizes", flush=True)
    with subprocess.Popen(command) as first:
        while not list((folder / "full" / "checkpoint").glob("*")) and first.poll() is None:
            time.sleep(0.2)
        time.sleep(1)
        killed = first.poll() is None
        first.send_signal(signal.SIGKILL)
    print(f"  killed: {killed}, after {time.perf_counter() - began:.0f} s", flush=True)
    subprocess.run(command, check=True)
    print(f"  in all {time.perf_counter() - began:.0f} s", flush=True)


def arguments(given: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    add("--tiny", action="store_true", help="a rehearsal on a CPU: all is small")
    add("--network", default="resnet50")
    add("--batch", type=int, default=128)
    add("--workers", type=int, default=16, help="of the reference's DataLoader")
    add("--epochs", type=int, default=4, help="of each steady run")
    add("--per-class", type=int, default=160, help="training images of a class, steady runs")
    add("--real-sizes", type=int, nargs=2, default=(1281, 50), metavar=("TRAIN", "TEST"))
    add("--seconds", type=float, default=4.0, help="of each short measurement")
    add("--reference-seconds", type=float, default=25.0)
    add("--batches", type=int, default=40, help="of 512 images, decoded as a run asks for them")
    add("--warm-up", type=int, default=10, help="steps")
    add("--save-every", type=float, default=20.0, help="seconds between checkpoints, part full")
    add("--no-compile", dest="compile", action="store_false")
    add("--child", help=argparse.SUPPRESS)
    args = parser.parse_args(given)
    args.device = "cuda" if torch.cuda.is_available() and not args.tiny else "cpu"
    args.pictures, args.lite, args.full = DIFFERENT, "iirc-imagenet-lite", "iirc-imagenet-full"
    if args.tiny:
        small = {
            "network": "small", "batch": 32, "workers": 1, "epochs": 2, "per_class": 5,
            "real_sizes": (10, 1), "seconds": 0.3, "reference_seconds": 0.5, "batches": 1,
            "warm_up": 1, "save_every": 1.0, "compile": False, "pictures": 8,
            "lite": "iirc-shapes", "full": "iirc-shapes",
        }  # fmt: skip
        vars(args).update(small)
    return args


def main() -> None:
    logging.basicConfig(format="  %(message)s", level=logging.WARNING)
    args = arguments(sys.argv[1:])
    if args.child:
        child(args)
        return
    name = torch.cuda.get_device_name() if args.device == "cuda" else platform.processor()
    print(f"{name}, {os.cpu_count()} cores, PyTorch {torch.__version__}", flush=True)
    bare = reference = None
    with tempfile.TemporaryDirectory() as folder:
        few = packed_pictures(Path(folder), args.pictures)
        if "decode" in args.parts:
            measure_decoding(few, args)
        if "bare" in args.parts:
            bare = measure_bare(args)
        if "reference" in args.parts:
            reference = measure_reference(few, args)
        if "steady" in args.parts:
            measure_steady(few, bare, reference, args)
        if "full" in args.parts:
            measure_full(few, Path(folder), sys.argv[1:])


if __name__ == "__main__":
    main()
