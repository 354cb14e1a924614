"""How long a report on a thousand runs takes, and how much memory: ``python bench/report.py``.

The runs are made up (ten methods, ten orders, ten seeds of IIRC-CIFAR, 22 tasks): every file a run
writes but the checkpoint. The second case has predictions, so that every figure is drawn.
"""

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import matplotlib
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from polarbear.methods.registry import METHODS
from polarbear.report.read import read_runs
from synthetic_runs import make_run


def make_runs(root: Path, benchmark: str, seeds: int, *, predictions: bool) -> int:
    orders = 10 if benchmark == "iirc-cifar" else 5
    for number, method in enumerate(METHODS):
        for order in range(orders):
            for seed in range(seeds):
                folder = root / method / f"order-{order}-seed-{seed}"
                about = {"benchmark": benchmark, "level": 0.08 * (number + 1)}
                make_run(folder, method, order, seed, predictions=predictions, **about)
    return len(METHODS) * orders * seeds


def measure(root: Path, out: Path, formats: str) -> tuple[float, float]:
    """Give seconds and megabytes (the largest process) of the command, in a fresh process."""
    words = ["-m", "polarbear.cli", "report", root, "--out", out, "--formats", formats]
    began = time.perf_counter()
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - began
    return seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def row(name: str, seconds: float, memory: float | None = None) -> None:
    print(f"| {name} | {seconds:.1f} s | {'' if memory is None else f'{memory:.0f} MB'} |")


def case(benchmark: str, seeds: int, formats: str, *, predictions: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "runs"
        count = make_runs(root, benchmark, seeds, predictions=predictions)
        began = time.perf_counter()
        read_runs(root)
        row(f"{benchmark}: read {count:,} runs", time.perf_counter() - began)
        kept = "with predictions" if predictions else "no predictions"
        row(
            f"{benchmark}: report, {formats}, {kept}", *measure(root, Path(folder) / "out", formats)
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--formats", default="pdf,svg,png")
    formats = parser.parse_args().formats
    print("| case | time | memory |\n|---|--:|--:|")
    case("iirc-cifar", 10, formats, predictions=False)
    case("iirc-shapes", 2, formats, predictions=True)
    cores = len(os.sched_getaffinity(0))
    print(
        f"\n{cores} cores, load {os.getloadavg()[0]:.1f}, {platform.system()}, "
        f"Python {platform.python_version()}, numpy {np.__version__}, "
        f"matplotlib {matplotlib.__version__}"
    )


if __name__ == "__main__":
    main()
