"""Prints one table: an epoch through each adapter beside the library's own way with CIFAR-100.

    python bench/adapters.py --cifar-root DIR                # DIR holds cifar-100-python/
    python bench/adapters.py --cifar-root DIR --also PYTHON  # PYTHON has libraries not here

Ours: all 22 training sets of IIRC-CIFAR, one after the other, 46,160 images with label matrices.
Theirs: the 50,000 images of CIFAR-100 as one set of arrays with class numbers, in memory already.
Both shuffled, in batches of 128, timed by turns in one process, now one first and now the other,
after one epoch to warm up. A ratio is the median of those of the turns (lowest–highest). The
authors' package ``iirc==1.0.1`` goes through its own 22 training sets in the same run, before and
after all others, as tensors, with two worker processes; its fastest epoch counts.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

from adapter_ways import CASES, Data, Epoch, authors_epoch
from setup import cell, figure, installed, load, machine, pin_to_cores

TURNS = 7
PACKAGES = (
    *("polarbear", "iirc", "numpy", "torch", "tensorflow_cpu", "tensorflow", "jax", "grain"),
    *("datasets", "avalanche-lib", "continuum"),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cifar-root", default=os.environ.get("POLARBEAR_DATA", "data"))
    parser.add_argument("--also", action="append", default=[], help="another Python to measure in")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        answer = ask(arguments.measure, arguments.cifar_root)
        print(json.dumps(answer))
        return
    print_table([sys.executable, *arguments.also], arguments.cifar_root)


def print_table(pythons: list[str], root: str) -> None:
    pin_to_cores()
    print(machine(), *(run(python, "versions", root) for python in pythons), load(), sep="\n")
    authors = next(python for python in pythons if run(python, "has iirc", root))
    theirs = run(authors, "authors", root)
    found = [measured(pythons, number, root) for number in range(len(CASES))]
    theirs += run(authors, "authors", root)
    print(f"\niirc 1.0.1, 22 training sets as tensors: {cell(theirs, 'images/s')}\n")
    print("| library | ours | images/s | its own way | images/s | ratio | to iirc 1.0.1 |")
    print("|---|---|--:|---|--:|--:|--:|")
    for (library, our_way, its_way, _, _), rates in zip(CASES, found, strict=True):
        cells = row(*rates, max(theirs)) if rates else ("", "", f"skipped: {library} is absent", "")
        print(f"| {library} | {our_way} | {cells[0]} | {its_way} | {' | '.join(cells[1:])} |")
    print(f"\n{load()}")


def measured(pythons: list[str], number: int, root: str) -> Any:
    """Images a second of both ways in a Python that has the library, or None."""
    library, our_way, *_ = CASES[number]
    python = next((python for python in pythons if run(python, f"has {library}", root)), None)
    print(f"{library}: {our_way}", file=sys.stderr)
    return run(python, str(number), root) if python else None


def row(ours: list[float], own: list[float], theirs: float) -> tuple[str, ...]:
    """Cells of a row; the authors' package is taken at its fastest, since others may be at work."""
    ratios = [a / b for a, b in zip(ours, own, strict=True)]
    beside = f"{median(ratios):.2f}× ({min(ratios):.2f}–{max(ratios):.2f})"
    return span(ours), span(own), beside, f"{figure(median(ours) / theirs)}×"


def span(values: list[float]) -> str:
    return f"{figure(median(values))} ({figure(min(values))}–{figure(max(values))})"


def run(python: str, what: str, root: str) -> Any:
    command = [python, str(Path(__file__)), "--cifar-root", root, "--measure", what]
    quiet = {"TF_CPP_MIN_LOG_LEVEL": "3", "HF_DATASETS_DISABLE_PROGRESS_BARS": "1"}
    ended = subprocess.run(
        command,
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | quiet,
    )
    return json.loads(ended.stdout.splitlines()[-1])


def ask(what: str, root: str) -> Any:
    """Answer one question of the table, in a process of its own."""
    if what == "versions":
        found = [f"{name} {metadata.version(name)}" for name in PACKAGES if installed(name)]
        return ", ".join(found)
    if what.startswith("has "):
        return find_spec(what.removeprefix("has ")) is not None
    complete_torchvision()
    data = Data.of(root)
    if what == "authors":
        return by_turns(checked(authors_epoch(data, root), data), turns=2)[0]
    *_, ours, own = CASES[int(what)]
    return by_turns(checked(ours(data), data), own(data))


def checked(epoch: Epoch, data: Data) -> Epoch:
    """Go through an epoch once, and stop if it is not all of IIRC-CIFAR's training sets."""
    given, due = epoch(), sum(len(view) for view in data.views)
    if given != due:
        sys.exit(f"{given} images came; {due} are due")
    return epoch


def by_turns(*epochs: Epoch, turns: int = TURNS) -> list[list[float]]:
    """Images a second of each, by turns, now one first and now the other; the first is left out."""
    rates: list[list[float]] = [[] for _ in epochs]
    for turn in range(turns + 1):
        for number in range(len(epochs))[:: 1 if turn % 2 else -1]:
            start = time.perf_counter()
            images = epochs[number]()
            rates[number].append(images / (time.perf_counter() - start))
    return [found[1:] for found in rates]


def complete_torchvision() -> None:
    """Name two operators that torchvision's CUDA build lacks beside a CPU build of torch."""
    if not find_spec("torchvision"):
        return
    import torch

    if torch.version.cuda is None:
        library = torch.library.Library("torchvision", "DEF")
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor boxes, Tensor scores, float threshold) -> Tensor")
        globals()["_kept"] = library


if __name__ == "__main__":
    main()
