"""Two sets of results, order by order: what the second gains on the first, and the paper's.

python bench/paired.py results/iirc-cifar/er bench/results/iirc-cifar/ablations.ERAuthorsWeights
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polarbear.report.paper import paper_results


def read(folder: Path) -> dict[int, dict[str, Any]]:
    """Summaries by order."""
    found = [json.loads(file.read_text()) for file in sorted(folder.glob("order-*.json"))]
    return {summary["order"]: summary for summary in found}


def scores(summaries: dict[int, dict[str, Any]], orders: list[int]) -> NDArray[np.float64]:
    """R_j by order and task, NaN where a run did not come to."""
    return np.array([summaries[order]["r"] for order in orders], dtype=np.float64)


def spread(values: NDArray[np.float64]) -> str:
    return f"{values.mean():.3f} ({values.std(ddof=1):.3f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    args = parser.parse_args()
    first, second = read(args.first), read(args.second)
    orders = sorted(first.keys() & second.keys())
    if len(orders) < 2:
        parser.error("the two have fewer than two orders in common")
    one, other = scores(first, orders), scores(second, orders)
    about = first[orders[0]]
    paper = paper_results(about["benchmark"]).get(about["method"])
    gain = other - one
    done = np.flatnonzero(~np.isnan(gain).any(axis=0))
    print(f"orders {orders}: mean (std); gain ± standard error; difference in the paper's std")
    print("task  first          second         gain             paper")
    for j in done:
        error = gain[:, j].std(ddof=1) / len(orders) ** 0.5
        line = f"{j:4}  {spread(one[:, j])}  {spread(other[:, j])}"
        line += f"  {gain[:, j].mean():+.3f} ± {error:.3f}"
        if paper is not None:
            mean, std = paper.mean[j], paper.std[j]
            line += f"  {mean:.2f} ({std:.3f})  {(other[:, j].mean() - mean) / std:+.1f}"
        print(line)
    if len(done) > 1:
        alike = np.corrcoef(gain[:, 0], gain[:, done[1:]].mean(axis=1))[0, 1]
        print(f"gain on task 0 and mean gain after: correlation {alike:.2f}")


if __name__ == "__main__":
    main()
