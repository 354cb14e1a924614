"""How long methods on a frozen network's features take: ``python bench/frozen.py``.

A vision transformer with random weights (``examples/own_networks.py``) on iirc-shapes: its features
of all images once, then a whole run of each method on them. The last row has ER train the same
transformer for one epoch per task, in two tasks of the seven, to compare.
"""

import argparse
import logging
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from polarbear.launch.runner import run
from polarbear.methods.presets import settings_for

METHODS = ("ncm", "slda", "ranpac", "er")


def measure(folder: Path, width: int, depth: int) -> Iterator[tuple[str, float, float]]:
    """Yields each case, its seconds, and those of the processor's cores together."""
    options = {"width": width, "depth": depth}
    vit = {"network": "own_networks:tiny_vit", "network_options": options, "device": "cpu"}
    frozen = vit | {"frozen": True, "features_in": str(folder / "features")}
    short = vit | {"epochs": 1, "first_task_factor": 1.0, "tasks": 2}
    cases = [("features of all images, and ncm on them", "ncm", frozen)]
    cases += [(f"{method}, features kept", method, frozen) for method in METHODS]
    cases.append(("er that trains the network: one epoch of two tasks", "er", short))
    for number, (name, method, changes) in enumerate(cases):
        settings = settings_for(method, "iirc-shapes", learning_rate=0.1, **changes)
        begun, busy = time.perf_counter(), time.process_time()
        run(settings, folder / str(number))
        yield name, time.perf_counter() - begun, time.process_time() - busy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--width", type=int, default=96, help="of the transformer's features")
    parser.add_argument("--depth", type=int, default=4, help="its layers")
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    logging.getLogger("polarbear").setLevel(logging.ERROR)
    torch.set_num_threads(given.threads)
    print("| case | seconds | of all cores |\n|---|--:|--:|")
    with tempfile.TemporaryDirectory() as folder:
        for name, seconds, busy in measure(Path(folder), given.width, given.depth):
            print(f"| {name} | {seconds:.1f} | {busy:.1f} |", flush=True)
    print(f"\n{platform.processor() or platform.machine()}, {given.threads} threads of ", end="")
    print(f"{os.cpu_count()} cores, torch {torch.__version__}; load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
