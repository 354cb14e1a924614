"""How long a report on a thousand runs takes, and how much memory: ``python bench/report.py``.

The runs are made up (ten methods, ten orders, ten seeds of IIRC-CIFAR, 22 tasks): every file a run
writes but the checkpoint. The second case has predictions, so that every figure is drawn; with
``--root``, a folder with CIFAR-100, so has a third, of a hundred runs of IIRC-CIFAR.
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

from polarbear.methods.catalogue import METHODS
from polarbear.report.read.runs import read_runs
from synthetic_runs import make_run


def make_runs(
    root: Path, benchmark: str, seeds: int, *, predictions: bool, data: str | None
) -> int:
    orders = 10 if benchmark == "iirc-cifar" else 5
    for number, method in enumerate(METHODS):
        for order in range(orders):
            for seed in range(seeds):
                folder = root / method / f"order-{order}-seed-{seed}"
                about = {"benchmark": benchmark, "level": 0.08 * (number + 1), "root": data}
                make_run(folder, method, order, seed, predictions=predictions, **about)
    return len(METHODS) * orders * seeds


def measure(root: Path, out: Path, formats: str) -> tuple[float, float]:
    """Return seconds and megabytes (the largest process) of the command, in a fresh process."""
    words = ["-m", "polarbear", "report", root, "--out", out, "--formats", formats]
    began = time.perf_counter()
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - began
    return seconds, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def row(name: str, seconds: float, memory: str = "", page: str = "") -> None:
    print(f"| {name} | {seconds:.1f} s | {memory} | {page} |", flush=True)


def case(
    benchmark: str, seeds: int, formats: str, *, predictions: bool, data: str | None = None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, out = Path(folder) / "runs", Path(folder) / "out"
        count = make_runs(root, benchmark, seeds, predictions=predictions, data=data)
        began = time.perf_counter()
        read_runs(root)
        row(f"{benchmark}: read {count:,} runs", time.perf_counter() - began)
        kept = "with predictions" if predictions else "no predictions"
        seconds, memory = measure(root, out, formats)
        page = f"{(out / 'index.html').stat().st_size / 1e6:.2f} MB"
        row(f"{benchmark}: report, {formats}, {kept}", seconds, f"{memory:.0f} MB", page)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--formats", default="pdf,svg,png")
    parser.add_argument("--root", help="a folder with CIFAR-100")
    asked = parser.parse_args()
    formats = asked.formats
    print("| case | time | memory | page |\n|---|--:|--:|--:|")
    case("iirc-cifar", 10, formats, predictions=False)
    case("iirc-shapes", 2, formats, predictions=True)
    if asked.root is not None:
        case("iirc-cifar", 1, formats, predictions=True, data=asked.root)
    cores = len(os.sched_getaffinity(0))
    print(
        f"\n{cores} cores, load {os.getloadavg()[0]:.1f}, {platform.system()}, "
        f"Python {platform.python_version()}, numpy {np.__version__}, "
        f"matplotlib {matplotlib.__version__}"
    )


if __name__ == "__main__":
    main()
