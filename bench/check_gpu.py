"""Fast and slow paths side by side on a GPU: same seeds, same first losses, to rounding.

python bench/check_gpu.py
"""

import json
import sys
import tempfile
import time
import traceback
from pathlib import Path

import torch

import polarbear
from polarbear.engine.session import run
from polarbear.methods.registry import method_names
from polarbear.presets import settings_for

PATHS = {
    "eager": {"graph": False, "precision": "fp32"},
    "graph": {"precision": "fp32"},
    "graph bf16": {},
    "compiled": {"compile": True},
}


def losses(method: str, stream: polarbear.Stream, **changes: object) -> list[float]:
    small = {"epochs": 2, "first_task_factor": 1.0, "tasks": 3, "batch_size": 48}
    settings = settings_for(method, "iirc-shapes", learning_rate=0.1, **small, **changes)
    with tempfile.TemporaryDirectory() as folder:
        run(settings, Path(folder) / "run", stream=stream)
        lines = (Path(folder) / "run" / "epochs.jsonl").read_text().splitlines()
    return [json.loads(line)["loss"] for line in lines]


def compare(method: str, stream: polarbear.Stream) -> float:
    found = {}
    for name, changes in PATHS.items():
        began = time.perf_counter()
        found[name] = losses(method, stream, **changes)
        shown = " ".join(f"{loss:.4f}" for loss in found[name])
        print(f"{method:18} {name:11} {time.perf_counter() - began:5.1f} s  {shown}", flush=True)
    return max(abs(a - b) / a for a, b in zip(found["eager"], found["graph"], strict=True))


def main() -> int:
    print(torch.cuda.get_device_name(), torch.__version__)
    stream = polarbear.load("iirc-shapes")
    failed = 0
    for method in method_names():
        try:
            worst = compare(method, stream)
            print(f"{'':18} largest relative difference, fp32 eager and graph: {worst:.1e}")
            failed += worst > 0.05
        except Exception:
            traceback.print_exc()
            failed += 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
