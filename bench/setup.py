"""Prints one table: the authors' package ``iirc==1.0.1`` and polarbear, side by side.

    python bench/setup.py --cifar-root DIR     # DIR holds the official cifar-100-python/
    python bench/setup.py --quick              # smaller ImageNet list and evaluation

Every number is measured in this run, on Linux. Each side of a case runs in fresh processes on the
same two cores, after its imports; a cell is the median, with the lowest and highest in brackets.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from importlib import import_module, metadata
from pathlib import Path
from statistics import median
from typing import Any

from workload import Workload

SIDES = ("authors", "ours")
CORES = 2
PACKAGES = ("iirc", "polarbear", "numpy", "pillow", "torch")


@dataclass(frozen=True)
class Case:
    """A row or two of the table; ``processes`` and ``repeats`` (in one of them) go by side.

    ``per_second``: what a run does by the second is shown, not its seconds. ``more`` names a case
    of polarbear's that does more or less, and its row; the authors' time is the same.
    """

    key: str
    title: str
    processes: tuple[int, int]
    repeats: tuple[int, int] = (1, 1)
    needs: tuple[str, ...] = ("cifar",)
    per_second: bool = False
    memory: bool = False
    more: tuple[str, str] | None = None


def cases(work: Workload) -> tuple[Case, ...]:
    """Every case, in the order of the table."""
    files, tasks = f"{work.imagenet_files:,}", work.evaluated_tasks
    return (
        Case(
            "cifar",
            "iirc-cifar ready from official files, which polarbear has verified before",
            (7, 7),
            memory=True,
            more=("cifar_unchecked", "– checked by neither"),
        ),
        Case(
            "imagenet", f"iirc-imagenet-full ready from a list of {files} files", (1, 5), needs=()
        ),
        Case("labels", "label matrices, 22 training sets", (1, 1), (5, 5)),
        Case(
            "epoch",
            "augmented batches, one epoch of 22 tasks",
            (1, 1),
            (3, 5),
            needs=("cifar", "torch"),
            per_second=True,
        ),
        Case(
            "evaluation",
            f"test batches and labels after each of {tasks} tasks",
            (1, 1),
            (1, 5),
            needs=("cifar", "torch"),
            more=("scores", "– and with all scores worked out"),
        ),
    )


def main() -> None:
    """Measure and print, or be one of the measuring processes."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cifar-root", default=os.environ.get("POLARBEAR_DATA", "data"))
    parser.add_argument("--quick", action="store_true", help="smaller ImageNet list, fewer tasks")
    parser.add_argument("--only", nargs="*", help="these cases alone: cifar imagenet labels …")
    parser.add_argument("--measure", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        side, case, repeats, work = arguments.measure
        print(json.dumps(measure(side, case, int(repeats), Workload(**json.loads(work)))))
        return
    if not installed("iirc"):
        sys.exit("the authors' package is not installed: pip install '.[dev]' in the checkout")
    work = Workload(arguments.cifar_root)
    if arguments.quick:
        work = Workload(arguments.cifar_root, imagenet_files=64_000, evaluated_tasks=5)
    print_table(work, arguments.only)


def print_table(work: Workload, only: list[str] | None) -> None:
    """Print the machine, then row after row as they are measured."""
    pin_to_cores()
    print(machine(), versions(), load(), sep="\n", end="\n\n")
    print("| case | iirc 1.0.1 | polarbear | ratio |\n|---|--:|--:|--:|", flush=True)
    for case in cases(work):
        if only is None or case.key in only:
            for row in rows(case, work):
                print(row, flush=True)
    print(f"\n{load()}")


def rows(case: Case, work: Workload) -> Iterator[str]:
    """Measure a case and give its rows."""
    if reason := missing(case, work):
        yield f"| {case.title} | | | skipped: {reason} |"
        return
    found = {side: run(case, side, work) for side in SIDES}
    done = {side: found[side]["done"] for side in SIDES}
    if done["authors"] != done["ours"]:
        sys.exit(f"{case.key}: the sides did not do the same: {done}")
    theirs, ours = (found[side]["seconds"] for side in SIDES)
    ratio = median(theirs) / median(ours)
    if case.per_second:
        theirs, ours = ([done["ours"] / s for s in side] for side in (theirs, ours))
    unit = "images/s" if case.per_second else "s"
    yield f"| {case.title} | {cell(theirs, unit)} | {cell(ours, unit)} | {ratio:.0f}× |"
    if case.more:
        key, title = case.more
        ours = run(replace(case, key=key), "ours", work)["seconds"]
        ratio = median(theirs) / median(ours)
        yield f"| {title} | | {cell(ours, unit)} | {ratio:.0f}× |"
    if case.memory:
        theirs, ours = ([m / 1e6 for m in found[side]["memory"]] for side in SIDES)
        yield (
            f"| – memory, with the check | {cell(theirs, 'MB')} | {cell(ours, 'MB')} "
            f"| {median(theirs) / median(ours):.0f}× |"
        )


def missing(case: Case, work: Workload) -> str:
    """Say what a case lacks here, if anything."""
    official = Path(work.cifar_root) / "cifar-100-python" / "train"
    if "cifar" in case.needs and not official.is_file():
        return f"no {official}; polarbear fetch cifar100 gets it"
    if "torch" in case.needs and not installed("torch"):
        return "torch is not installed, whose DataLoader the authors' package needs"
    return ""


def run(case: Case, side: str, work: Workload) -> dict[str, Any]:
    """Measure one side of a case in fresh processes."""
    number = SIDES.index(side)
    order = ["--measure", side, case.key, str(case.repeats[number]), json.dumps(asdict(work))]
    command = [sys.executable, str(Path(__file__)), *order]
    results = []
    for _ in range(case.processes[number]):
        ended = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        results.append(json.loads(ended.stdout.splitlines()[-1]))
    return {
        "seconds": [s for result in results for s in result["seconds"]],
        "memory": [result["memory"] for result in results],
        "done": results[0]["done"],
    }


def measure(side: str, case: str, repeats: int, work: Workload) -> dict[str, Any]:
    """Time one side of a case in this process."""
    timed = import_module(side).CASES[case](work)
    before = memory("VmRSS")
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        done = timed()
        seconds.append(time.perf_counter() - start)
    return {"seconds": seconds, "memory": memory("VmHWM") - before, "done": int(done)}


def memory(field: str) -> int:
    """This process's memory in bytes: VmRSS is now, VmHWM the most so far."""
    # Not getrusage: its peak is handed down from the process that started this one.
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def cell(values: list[float], unit: str) -> str:
    """The median, and the range where there are several values."""
    span = f" ({figure(min(values))}–{figure(max(values))})" if len(values) > 1 else ""
    return f"{figure(median(values))} {unit}{span}"


def figure(value: float) -> str:
    """Three figures, without an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def pin_to_cores() -> None:
    """Leave this process and those it starts two cores."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])


def machine() -> str:
    """The processor, the cores in use, the memory and the system."""
    info = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(": ")[2] for line in info if line.startswith("model name")), "?")
    total = int(Path("/proc/meminfo").read_text().split()[1]) / 2**20
    used = len(os.sched_getaffinity(0))
    return f"{model}, {used} of {os.cpu_count()} cores, {total:.0f} GiB, {platform.system()}"


def versions() -> str:
    """The versions of all that is measured."""
    found = [f"{name} {metadata.version(name)}" for name in PACKAGES if installed(name)]
    return ", ".join([f"Python {platform.python_version()}", *found])


def installed(package: str) -> bool:
    """Whether a package is there."""
    try:
        return bool(metadata.version(package))
    except metadata.PackageNotFoundError:
        return False


def load() -> str:
    """How busy the machine is: other work makes the numbers worse."""
    return f"load average {os.getloadavg()[0]:.1f}"


if __name__ == "__main__":
    main()
