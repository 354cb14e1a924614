"""The paper's own numbers."""

import csv
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from polarbear.base.arrays import Floats, frozen
from polarbear.methods.catalogue import METHODS
from polarbear.named.registry import find
from polarbear.named.shipped import PUBLISHED


@dataclass(frozen=True, eq=False)
class Published:
    """A method's R_j (pw-JS on test images) as the paper prints it: (T,) each, NaN for none.

    ``runs`` is how many the paper made, one for each of the benchmark's class orders.
    """

    method: str
    mean: Floats = field(repr=False)
    std: Floats = field(repr=False)
    runs: int


@cache
def paper_results(benchmark: str) -> dict[str, Published]:
    """Return the paper's table for a benchmark by our names of methods; empty where it has none.

    >>> paper_results("iirc-cifar-v1")["er"].mean[[0, 21]].tolist()
    [0.72, 0.13]
    """
    file = PUBLISHED / "paper" / f"{benchmark.removesuffix('-v1')}.csv"
    if not file.is_file():
        return {}
    with file.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    tasks, runs = 1 + max(int(row["task"]) for row in rows), len(find(benchmark).orders())
    found = {}
    for method in METHODS:
        mean, std = np.full(tasks, np.nan), np.full(tasks, np.nan)
        for row in rows:
            if row["method"].replace("-", "").replace(" ", "").lower() == method.replace("-", ""):
                task = int(row["task"])
                mean[task], std[task] = float(row["pw_js_mean"]), float(row["pw_js_std"])
        if not np.isnan(mean).all():
            found[method] = Published(method, frozen(mean), frozen(std), runs)
    return found
