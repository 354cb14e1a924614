"""How long a report on a thousand runs takes, and how much memory: ``python bench/report.py``.

The runs are made up (ten methods, ten orders, ten seeds of IIRC-CIFAR, 22 tasks): every file a run
writes but the checkpoint. The second case has predictions, so that every figure is drawn; with
``--root``, a folder with CIFAR-100, so has a third, of a hundred runs of IIRC-CIFAR. The first ones
are of the page alone: twelve methods, seven of them in ten runs, the summaries in ``results/`` too.
"""

import argparse
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
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


#: The methods of a page that is measured; those of the paper's main figure have ten runs each.
OFTEN = ("finetune", "er", "agem", "icarl-cnn", "icarl-norm", "lucir", "kin")
ONCE = ("er-infinite", "mask-seen", "joint", "incremental-joint", "their.package:Own")
PAGE = (
    "import sys; from polarbear.report.read.runs import read_runs; "
    "from polarbear.report.page.page import write_page; "
    "write_page(read_runs(sys.argv[1]), sys.argv[2])"
)


def make_page_runs(root: Path, benchmark: str, data: str | None) -> int:
    """Make the runs of a page: ten class orders, or five with two seeds each."""
    orders = 10 if benchmark == "iirc-cifar" else 5
    ten = [(order, seed) for order in range(orders) for seed in range(10 // orders)]
    runs = [(m, *one) for m in OFTEN for one in ten] + [(m, 0, 0) for m in ONCE]
    for number, (method, order, seed) in enumerate(runs):
        about = {"benchmark": benchmark, "level": 0.1 + 0.01 * number, "root": data}
        make_run(root / str(number), method, order, seed, predictions=True, **about)
    return len(runs)


def measure(root: Path, out: Path, formats: str) -> tuple[float, float]:
    """Return seconds and megabytes (the largest process) of the command, in a fresh process."""
    return measured(["-m", "polarbear", "report", root, "--out", out, "--formats", formats])


def measured(words: Sequence[str | Path]) -> tuple[float, float]:
    """Return seconds and megabytes of a Python process; the largest so far of all processes."""
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


def page_case(benchmark: str, data: str | None = None) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root, out = Path(folder) / "runs", Path(folder) / "out"
        count = make_page_runs(root, benchmark, data)
        page(f"{benchmark}: page, twelve methods, {count} runs with predictions", root, out)


def page(name: str, root: Path, out: Path) -> None:
    seconds, memory = measured(["-c", PAGE, root, out])
    row(name, seconds, f"{memory:.0f} MB", f"{(out / 'index.html').stat().st_size / 1e6:.2f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--formats", default="pdf,svg,png")
    parser.add_argument("--root", help="a folder with CIFAR-100")
    parser.add_argument("--page", action="store_true", help="the page alone")
    asked = parser.parse_args()
    formats = asked.formats
    print("| case | time | memory | page |\n|---|--:|--:|--:|")
    # First: memory is told of the largest process so far.
    results = Path(__file__).parents[1] / "results"
    with tempfile.TemporaryDirectory() as folder:
        page("iirc-cifar: page of the summaries in results/", results, Path(folder))
    page_case("iirc-shapes")
    if asked.root is not None:
        page_case("iirc-cifar", asked.root)
    if asked.page:
        return
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
