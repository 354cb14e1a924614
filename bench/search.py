"""A small search for the recipe of a method, by post-task validation of a run's first tasks.

    python bench/search.py er icarl-norm lucir --root data --out runs/search

Every value of the grid is trained on four tasks of orders 8 and 9, Kin's orders of validation, with
Kin's 70 epochs per task. The mean of their scores on post-task validation images decides; test
images are not looked at. Runs that are there already are read, not repeated; what is missing or
diverged is left out of the table.
"""

import argparse
import csv
import itertools
from pathlib import Path
from typing import Any

import numpy as np

from polarbear.launch.fleet import run_fleet
from polarbear.methods.presets import settings_for
from polarbear.runs.folder import RunFolder
from polarbear.settings.settings import Settings
from run import job_into

GRID: dict[str, tuple[Any, ...]] = {
    "learning_rate": (0.1, 1.0),
    "weight_decay": (1e-5, 5e-4),
    "schedule": ("plateau", "cosine"),
    "decision": ("threshold",),
}
ORDERS = (8, 9)


def name_of(values: dict[str, Any]) -> str:
    """Return a folder's name for a point of the grid."""
    return "-".join(str(value) for value in values.values())


def points(method: str, args: argparse.Namespace) -> list[tuple[str, Settings]]:
    """Return a method's runs: a folder's name and the settings of each."""
    common = {"epochs": args.epochs, "first_task_factor": 1.0, "tasks": args.tasks}
    found = []
    for values in itertools.product(*GRID.values()):
        chosen = dict(zip(GRID, values, strict=True))
        for order in ORDERS:
            settings = settings_for(method, args.benchmark, order=order, **common, **chosen)
            found.append((f"{method}/{name_of(chosen)}/order-{order}", settings))
    return found


def table(runs: list[tuple[str, Settings]], out: Path) -> list[dict[str, Any]]:
    """Return a row for each point of the grid, the best first."""
    rows: dict[str, dict[str, Any]] = {}
    for name, settings in runs:
        if not RunFolder(out / name).finished:
            continue
        valid = RunFolder(out / name).table("post_valid").r[: settings.tasks]
        values = {key: getattr(settings, key) for key in GRID}
        row = rows.setdefault(str(Path(name).parent), {"method": settings.method, **values})
        row[f"order {settings.order}"] = round(float(valid.mean()), 4)
    whole = [row for row in rows.values() if all(f"order {order}" in row for order in ORDERS)]
    for row in whole:
        row["mean"] = round(float(np.mean([row[f"order {order}"] for order in ORDERS])), 4)
    return sorted(whole, key=lambda row: (row["method"], -row["mean"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("methods", nargs="+")
    parser.add_argument("--root", type=Path, default=Path("data"))
    parser.add_argument("--benchmark", default="iirc-cifar")
    parser.add_argument("--out", type=Path, default=Path("runs/search"))
    parser.add_argument("--csv", type=Path, help="write the table there too")
    parser.add_argument("--epochs", type=int, default=70)
    parser.add_argument("--tasks", type=int, default=4)
    args = parser.parse_args()
    runs = [point for method in args.methods for point in points(method, args)]
    left = [(n, s) for n, s in runs if not RunFolder(args.out / n).finished]
    run_fleet([job_into(args.out / n, s, args.root) for n, s in left], save_every=1e9)
    rows = table(runs, args.out)
    for row in rows:
        print(*row.values(), sep="\t")
    if args.csv and rows:
        with args.csv.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
