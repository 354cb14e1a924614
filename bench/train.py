"""Training speed: the reference's way and ours, on the same device, in one run.

The reference's way is that of the authors' code: a DataLoader with worker processes, PIL
transforms, fp32, eager steps, the loss read at every step. Ours is the engine as it is.

    python bench/train.py --root data --methods er agem --cpu    # a GPU, then its CPU
    python bench/train.py --root data --device cpu --workers 2 --images 2048 --compile

Beside the rate stand its ratio to the reference's and the seconds one run's epoch takes.
"""

import argparse
import logging
import platform
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset

import polarbear
from polarbear.engine.nets.networks import UncountedBatchNorm
from polarbear.engine.trainer import Trainer
from polarbear.launch.assembly import build_learner
from polarbear.launch.fleet import Job, Outcome, run_fleet
from polarbear.launch.prepare import begin
from polarbear.methods.presets import settings_for
from polarbear.score.record import EpochRecord
from polarbear.settings.settings import Settings

MEAN, STD = (0.5071, 0.4866, 0.4409), (0.2009, 0.1984, 0.2023)


class PilDataset(Dataset):
    """Task 0 as the authors serve it: PIL images, varied and normalised one by one."""

    def __init__(self, stream: polarbear.Stream) -> None:
        from PIL import Image

        view = stream[0].train
        self.images = [Image.fromarray(image) for image in stream.images("train")[view.rows]]
        self.targets = torch.tensor(view.targets, dtype=torch.float32)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        from PIL import Image, ImageOps

        image = ImageOps.expand(self.images[index], border=4, fill=0)
        left, top = random.randint(0, 8), random.randint(0, 8)
        image = image.crop((left, top, left + 32, top + 32))
        if random.random() < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div(255)
        shape = (3, 1, 1)
        return (pixels - torch.tensor(MEAN).view(shape)) / torch.tensor(STD).view(shape), (
            self.targets[index]
        )


def pil_loader(stream: polarbear.Stream, workers: int, device: torch.device) -> DataLoader:
    """Task 0 in shuffled batches, from worker processes."""
    return DataLoader(
        PilDataset(stream),
        batch_size=128,
        shuffle=True,
        num_workers=workers,
        pin_memory=device.type == "cuda",
        persistent_workers=workers > 0,
    )


def with_plain_batch_norm(model: torch.nn.Module) -> torch.nn.Module:
    """The network as the authors have it: their batch norm counts its batches, ours does not."""
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, UncountedBatchNorm):
                setattr(
                    parent, name, torch.nn.BatchNorm2d(child.num_features).to(child.weight.device)
                )
    return model


def reference_rate(stream: polarbear.Stream, args: argparse.Namespace) -> float:
    """Images per second of training on task 0 the reference's way."""
    settings = settings_for("er", "iirc-cifar", device=args.device, precision="fp32", graph=False)
    learner = build_learner(settings, stream)
    torch.backends.cudnn.allow_tf32 = True  # PyTorch's default, which the authors leave
    learner.model.head.grow(10)
    model = with_plain_batch_norm(learner.model).to(memory_format=torch.contiguous_format).train()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-5)
    device = learner.machine.device
    loader = pil_loader(stream, args.workers, device)
    loss_function = torch.nn.BCEWithLogitsLoss()

    def epoch() -> int:
        count = 0
        for images, targets in loader:
            if count >= args.images:
                break
            optimiser.zero_grad()
            scores = model(images.to(device, non_blocking=True))
            loss = loss_function(scores, targets.to(device, non_blocking=True))
            loss.backward()
            optimiser.step()
            loss.item()
            count += len(images)
        return count

    epoch()
    began = time.perf_counter()
    count = sum(epoch() for _ in range(args.reference_epochs))
    return count / (time.perf_counter() - began)


@dataclass
class Clock:
    """Notes when each epoch of a run ended."""

    on_end: Callable[[], None]
    ends: list[tuple[float, int]] = field(default_factory=list)

    def epoch(self, record: EpochRecord) -> None:
        self.ends.append((time.perf_counter(), record.images))
        self.on_end()

    def scores(self, record: Mapping[str, Any]) -> None: ...

    def answers(self, *_: object) -> None: ...


def our_rate(settings: list[Settings], root: str, epochs: int) -> tuple[float, float]:
    """Images per second of a fleet while all its runs train, and GPU memory in GB.

    Its runs begin one after the other and go on until the last one has had its epochs.
    """
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()

    def stop_when_done() -> None:
        had = [len(clock.ends) for clock in clocks]
        # All have had theirs; or the last finds no room, and would wait for the others for ever.
        if min(had) == epochs or max(had) > 10 * epochs * len(had):
            signal.raise_signal(signal.SIGTERM)

    def stop_if_failed(_: str, outcome: Outcome) -> None:
        if outcome.error:
            signal.raise_signal(signal.SIGTERM)

    clocks = [Clock(stop_when_done) for _ in settings]
    with tempfile.TemporaryDirectory() as folder:
        jobs = [
            Job(
                str(i),
                lambda shared, s=s, i=i: begin(s, Path(folder) / str(i), root=root, shared=shared),
                {"recorders": (clocks[i],)},
            )
            for i, s in enumerate(settings)
        ]
        outcomes = run_fleet(jobs, at_once=len(jobs), save_every=1e9, on_end=stop_if_failed)
    for outcome in outcomes.values():
        if outcome.error:
            raise outcome.error
    if min(len(clock.ends) for clock in clocks) < epochs:
        sys.exit("stopped, or no room for all at once")
    # From when the last one to begin has its second epoch behind it.
    begin_at = max(clock.ends[1][0] for clock in clocks)
    end_at = max(clock.ends[epochs - 1][0] for clock in clocks)
    images = sum(n for clock in clocks for t, n in clock.ends if begin_at < t <= end_at)
    memory = torch.cuda.max_memory_allocated() / 1e9 if torch.cuda.is_available() else 0.0
    return images / (end_at - begin_at), memory


def line(name: str, rate: float, base: float, epoch: float) -> str:
    """A row: images per second, ratio to the reference's, seconds of ``epoch`` images."""
    return f"{name:40} {rate:10,.0f} {rate / base:7.2f}x {epoch / rate:8.2f} s"


def step_rates(stream: polarbear.Stream, args: argparse.Namespace) -> None:
    """Print the rates of steps on a CPU: each way by turns, as such machines are seldom quiet."""
    ways = {"the reference way": lambda: reference_rate(stream, args)}
    for method in args.methods:
        for compiled in (False, True) if args.compile else (False,):
            settings = settings_for(method, "iirc-cifar", device="cpu", tasks=1, compile=compiled)
            trainer = Trainer(stream, build_learner(settings, stream), ())
            steps = trainer.steps()
            name = f"{method}, compiled" if compiled else method
            ways[name] = partial(step_rate, steps, settings.batch_size)
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(args.turns):
        for name, way in ways.items():
            found[name].append(way())
    base = median(found["the reference way"])
    for name, rates in found.items():
        spread = f"{min(rates):,.0f} to {max(rates):,.0f}"
        shown = line(f"CPU: {name}", median(rates), base, len(stream[0].train))
        print(f"{shown}  {spread}", flush=True)


def step_rate(steps: Iterator[object], batch_size: int, count: int = 16) -> float:
    """Images per second of the next steps, after one that may have to compile."""
    next(steps)
    began = time.perf_counter()
    for _ in range(count):
        next(steps)
    return count * batch_size / (time.perf_counter() - began)


def cases(args: argparse.Namespace) -> Iterator[tuple[str, list[Settings]]]:
    make = partial(settings_for, benchmark="iirc-cifar", device=args.device, tasks=1)
    endless = {"epochs": 10**6, "plateau_patience": 10**6}
    yield "er, eager", [make("er", graph=False, **endless)]
    for precision in ("fp32", "tf32", "bf16"):
        plain = make("er", precision=precision, fused=False, **endless)
        yield f"er, {precision}, graph, not fused", [plain]
    for method in args.methods:
        for size in args.fleets:
            fleet = [make(method, order=order, **endless) for order in range(size)]
            yield f"{method}, fleet of {size}", fleet
        if args.compile:
            compiled = make(method, compile=True, fused=False, **endless)
            yield f"{method}, compiled, not fused", [compiled]


def gpu_rates(stream: polarbear.Stream, args: argparse.Namespace) -> None:
    """Print the rates of whole epochs on a GPU, and the memory a fleet takes."""
    logging.getLogger("polarbear").setLevel(logging.ERROR)  # every run says where it was stopped
    base, images = reference_rate(stream, args), len(stream[0].train)
    print(line("the reference way", base, base, images), flush=True)
    for name, settings in cases(args):
        rate, memory = our_rate(settings, args.root, args.epochs)
        # Runs side by side share the rate.
        shown = line(name, rate, base, images * len(settings))
        print(f"{shown} {memory:6.1f} GB", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default="data")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--methods", nargs="*", default=["er"])
    parser.add_argument("--fleets", nargs="*", type=int, default=[1, 2, 4, 8, 10])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--reference-epochs", type=int, default=2)
    parser.add_argument("--images", type=int, default=10**9, help="of an epoch of the reference")
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--turns", type=int, default=5, help="of each way, on a CPU")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--cpu", action="store_true", help="on a GPU: then the CPU too")
    args = parser.parse_args()
    if args.epochs < 3:
        parser.error("--epochs must be at least 3: the first two are not counted")
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    print(f"{device}, PyTorch {torch.__version__}, Python {platform.python_version()}")
    print("IIRC-CIFAR task 0, ResNet-32, batch 128: images/s, ratio, seconds an epoch\n")
    stream = polarbear.load("iirc-cifar", 0, args.root)
    on_cpu = args.device == "cpu" or not torch.cuda.is_available()
    if not on_cpu:
        gpu_rates(stream, args)
    if on_cpu or args.cpu:
        args.device = "cpu"
        step_rates(stream, args)


if __name__ == "__main__":
    sys.exit(main())
