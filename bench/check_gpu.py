"""Fast and slow paths side by side on a GPU: same seeds, same first losses, to rounding.

python bench/check_gpu.py                  # every method, and every optimiser
python bench/check_gpu.py er agem --compile
"""

import argparse
import json
import logging
import sys
import tempfile
import time
import traceback
from pathlib import Path

import torch

import polarbear
from polarbear.engine.nets.fused import features as fused
from polarbear.launch.runner import run
from polarbear.methods.catalogue import method_names
from polarbear.methods.presets import settings_for

PATHS = {
    "eager fp32": {"graph": False, "precision": "fp32"},
    "graph fp32": {"precision": "fp32"},
    "graph bf16": {"fused": False},
    "fused bf16": {},
}
#: ER with optimisers and schedules beside the paper's.
WAYS = {
    "er-cosine": {"schedule": "cosine", "warm_up": 0.5, "nesterov": True},
    "er-onecycle": {"schedule": "onecycle", "clip": 0.5},
    "er-adamw": {"optimiser": "adamw", "learning_rate": 0.001, "clip": 1.0},
}
COMPILED = {"compiled": {"compile": True, "fused": False}}
# Losses apart from eager fp32, as a part of it. Rounding shifts the first epoch's little; from
# then on each step carries it further, A-GEM's most, where it can turn a projection on or off.
FIRST = 0.01


def later(method: str, path: str) -> float:
    return 0.05 if path == "graph fp32" and method != "agem" else 0.15


class Refusals(logging.Handler):
    """Takes what the engine says of a path that it could not go."""

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        announced = "is compiled for batches of" in message  # this path it does go
        if record.levelno >= logging.WARNING and not announced:
            raise RuntimeError(message)


def losses(method: str, stream: polarbear.Stream, **changes: object) -> list[float]:
    small = {"epochs": 2, "first_task_factor": 1.0, "tasks": 2, "batch_size": 48}
    # A cosine head of scale 16 carries rounding ten times as far at the same rate.
    net = {"network": "resnet20", "learning_rate": 0.01 if method == "kin" else 0.1}
    way = WAYS.get(method, {})
    settings = settings_for("er" if way else method, "iirc-shapes", **small | net | way | changes)
    with tempfile.TemporaryDirectory() as folder:
        run(settings, Path(folder) / "run", stream=stream)
        lines = (Path(folder) / "run" / "epochs.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


def agree(method: str, stream: polarbear.Stream, paths: dict[str, dict[str, object]]) -> bool:
    """Show a method's losses on every path and how far they are from eager fp32."""
    eager: list[float] = []
    good = True
    for name, changes in paths.items():
        began = time.perf_counter()
        found = losses(method, stream, **changes)
        eager = eager or found
        apart = [abs(a - b) / a for a, b in zip(eager, found, strict=True)]
        good &= apart[0] <= FIRST and max(apart) <= later(method, name)
        shown = " ".join(f"{loss:.4f}" for loss in found)
        taken = time.perf_counter() - began
        far = f"{apart[0]:.1e}, {max(apart):.1e}"
        print(f"{method:18} {name:11} {taken:5.1f} s  {shown}  apart {far}", flush=True)
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="*", default=(*method_names(), *WAYS))
    parser.add_argument("--compile", action="store_true")
    args = parser.parse_args()
    if not torch.cuda.is_available():
        parser.error("this needs a GPU")
    print(torch.cuda.get_device_name(), torch.__version__)
    logging.getLogger("polarbear").addHandler(Refusals())
    if not fused.works(torch.device("cuda", torch.cuda.current_device()), 32, 32):
        parser.error("there are no fused kernels here to compare with")
    stream = polarbear.load("iirc-shapes")
    failed = 0
    for method in args.methods:
        try:
            failed += not agree(method, stream, PATHS | (COMPILED if args.compile else {}))
        except Exception:
            traceback.print_exc()
            failed += 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
