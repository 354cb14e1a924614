"""How runs of a linear head begin: what bench/results/task-0.csv has of task 0, a line per run.

    python bench/task_0.py H runs/draws/order-* >> bench/results/task-0.csv

A run takes off when its in-task validation passes 0.1; until then it predicts nothing.
"""

import argparse
import csv
import sys
from pathlib import Path

from polarbear.runs.folder import RunFolder
from polarbear.score.record import EpochRecord


def line(runs: str, folder: RunFolder) -> list[object]:
    """Return a run's line; what did not happen is left empty."""
    epochs = [record for record in folder.epochs() if record.task == 0]
    best = max(epoch.valid for epoch in epochs)
    return [
        runs,
        folder.manifest()["settings"]["order"],
        len(epochs),
        f"{epochs[0].loss:.3f}",
        first([epoch for epoch in epochs if epoch.valid > 0.1]),
        first([epoch for epoch in epochs if epoch.rate < epochs[0].rate]),
        f"{best:.3f}",
        f"{folder.table().r[0]:.3f}",
    ]


def first(epochs: list[EpochRecord]) -> object:
    """Return the number of the first of some epochs, nothing where there is none."""
    return epochs[0].epoch if epochs else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", help="what the lines call these runs")
    parser.add_argument("folders", nargs="+", type=Path)
    args = parser.parse_args()
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerows(line(args.name, RunFolder(path)) for path in args.folders)


if __name__ == "__main__":
    main()
