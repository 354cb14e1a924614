"""What a folder of thousands of runs costs whoever looks at it: ``python bench/many_runs.py``.

The runs are made up: ten methods in ten orders of IIRC-CIFAR (22 tasks), as many seeds as it takes,
every JSON file in the format of today with its checksums, and few epochs. A fiftieth of them wait,
another has stopped half-way. Measured are seconds, those of all processors
together, and memory of each command in a fresh process.
"""

import argparse
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from polarbear.base.files import plain
from polarbear.base.sealed import sealed
from polarbear.methods.presets import settings_for
from polarbear.named.registry import find
from polarbear.runs.environment import environment
from polarbear.runs.folder import FORMAT
from polarbear.score.catalogue import score_names
from polarbear.score.record import BY_TASK, EpochRecord, ScoreRecord
from polarbear.settings.settings import Settings

BENCHMARK = "iirc-cifar-v1"
METHODS = (
    *("finetune", "er", "agem", "icarl-cnn", "icarl-norm", "lucir", "er-ace", "ewc", "wa", "kin"),
)
ORDERS = 10
VARIANTS = 20  # of each method's scores, of which every run has one
SPLITS = ("post_valid", "test")


def text(content: Any) -> bytes:
    return json.dumps(sealed(plain(content)), allow_nan=False).encode() + b"\n"


def score_lines(chance: np.random.Generator, tasks: int, level: float) -> list[bytes]:
    """Return made-up lines of scores.jsonl, those of each task as one."""
    names, found = score_names(), []
    for after in range(tasks):
        lines = []
        for split in SPLITS:
            values = np.clip(chance.normal(level, 0.02, len(names)), 0, 1).tolist()
            rows = {n: np.clip(chance.normal(level, 0.05, after + 1), 0, 1) for n in BY_TASK}
            record = ScoreRecord(after, split, dict(zip(names, values, strict=True)), rows)
            lines.append(text(record.to_json()))
        found.append(b"".join(lines))
    return found


def epoch_lines(tasks: int) -> bytes:
    records = (EpochRecord(task, 0, 0.5, 1.0, 0.4, 2500, 0.4) for task in range(tasks))
    return b"".join(text(record.to_json()) for record in records)


def make(root: Path, count: int) -> tuple[int, int]:
    """Write so many runs; returns how many files and bytes they have."""
    chance, pick = np.random.default_rng(0), random.Random(0)
    schedules = [find(BENCHMARK).schedule(order).tasks for order in range(ORDERS)]
    tasks = len(schedules[0])
    scores = {
        method: [score_lines(chance, tasks, 0.05 + 0.04 * i) for _ in range(VARIANTS)]
        for i, method in enumerate(METHODS)
    }
    usual = {method: settings_for(method, BENCHMARK) for method in METHODS}
    around = environment() | {"torch": "2.11.0", "device": "NVIDIA H200", "precision": "bf16"}
    files = size = 0
    for number in range(count):
        method = METHODS[number % len(METHODS)]
        order, seed = number // len(METHODS) % ORDERS, number // len(METHODS) // ORDERS
        asked = replace(usual[method], order=order, seed=seed, decision="threshold")
        written = _files(asked, schedules[order], pick.choice(scores[method]), around, number % 50)
        folder = root / method / f"order-{order}-seed-{seed}"
        folder.mkdir(parents=True)
        for name, content in written.items():
            (folder / name).write_bytes(content)
            files, size = files + 1, size + len(content)
    return files, size


def _files(
    asked: Settings,
    classes: Any,
    scores: list[bytes],
    around: dict[str, Any],
    kind: int,
) -> dict[str, bytes]:
    """Return the files of a run: one that waits, one that has stopped, or a finished one."""
    if kind == 0:
        return {"asked.json": text({"settings": asked.to_dict()})}
    manifest = {
        "format": FORMAT,
        "settings": asked.to_dict(),
        "root": "/data",
        "classes": classes,
        "images": {"height": 32, "width": 32},
        "data": "0" * 64,
        "environment": around,
        "threads": 8,
    }
    done = len(classes) // 2 if kind == 1 else len(classes)
    found = {
        "manifest.json": text(manifest),
        "epochs.jsonl": epoch_lines(done),
        "scores.jsonl": b"".join(scores[:done]),
        "lock": b"",
    }
    if kind == 1:
        state = {"host": "node17", "pid": 4711, "state": "stopped", "error": None}
        return found | {"process.json": json.dumps(state).encode()}
    facts = {"tasks": done, "seconds": 166.0, "passes": 11_100_000, "kept": {"images": 7_065_600}}
    return found | {"finished.json": text(facts)}


def measured(words: list[str]) -> tuple[float, float, float]:
    """Return seconds, those of all its processors, and megabytes of a command's largest process."""
    program = (
        "import resource, sys; from polarbear.cli import main; code = main(sys.argv[1:]); "
        "who = resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN; "
        "used = [resource.getrusage(one) for one in who]; "
        "print(sum(one.ru_utime + one.ru_stime for one in used), "
        "max(one.ru_maxrss for one in used) / 1024, file=sys.stderr); sys.exit(code)"
    )
    began = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True)
    seconds = time.perf_counter() - began
    if done.returncode:
        raise SystemExit(f"{words}: {done.stderr}")
    busy, memory = map(float, done.stderr.split()[-2:])
    return seconds, busy, memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, nargs="+", default=[1000, 10_000])
    parser.add_argument("--keep", type=Path, help="a folder to make the runs in, and to leave them")
    parser.add_argument("--only", default="", help="commands with this in them")
    asked = parser.parse_args()
    print(
        "| runs | command | seconds | of processors | memory |\n|--:|---|--:|--:|--:|", flush=True
    )
    for count in asked.runs:
        with tempfile.TemporaryDirectory() as temporary:
            root = (asked.keep or Path(temporary)) / f"{count}-runs"
            if not root.exists():
                began = time.perf_counter()
                files, size = make(root, count)
                seconds = time.perf_counter() - began
                made = f"{files:,} files, {size / 1e6:,.0f} MB"
                print(f"| {count:,} | (made up: {made}) | {seconds:.0f} | | |", flush=True)
            out = str(Path(temporary) / "report")
            er, lucir = str(root / "er"), str(root / "lucir")
            for words in (
                ["runs", str(root)],
                ["runs", str(root), "--json"],
                ["compare", str(root)],
                ["compare", er, lucir],
                ["report", str(root), "--out", out, "--formats", "svg"],
            ):
                shown = " ".join(words).replace(str(root), "DIR").replace(out, "OUT")
                if asked.only in shown:
                    seconds, busy, memory = measured(words)
                    cells = f"{seconds:.1f} | {busy:.1f} | {memory:.0f} MB"
                    print(f"| {count:,} | `{shown}` | {cells} |", flush=True)
    print(
        f"\n{len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f}, "
        f"{platform.system()}, Python {platform.python_version()}, numpy {np.__version__}"
    )


if __name__ == "__main__":
    main()
