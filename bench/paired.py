"""Two sets of results, order by order: what the second gains on the first, and the paper's.

With three orders or more also what a gain on task 0 is worth later, and what the first set would
score if it had the paper's mean there.

    python bench/paired.py results/iirc-cifar/icarl-cnn \\
        bench/results/6-tasks/iirc-cifar/ablations.ICarlCNNAuthorsWeights
"""

import argparse
from pathlib import Path

import numpy as np

from polarbear.base.arrays import Floats
from polarbear.report.read.paper import Published, paper_results
from polarbear.report.read.runs import Group, read_runs


def by_order(group: Group) -> dict[int | None, Floats]:
    """R_j of each order, NaN after tasks a run did not come to."""
    return {run.order: run.scores["pw_jaccard"] for run in group.runs}


def spread(values: Floats) -> str:
    more = f" ({values.std(ddof=1):.3f})" if len(values) > 1 else " "
    return f"{values.mean():.3f}{more:8}"


def gained(values: Floats) -> str:
    if len(values) == 1:
        return f"{values[0]:+.3f}        "
    return f"{values.mean():+.3f} ± {values.std(ddof=1) / len(values) ** 0.5:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    args = parser.parse_args()
    (group,), (second_group,) = (read_runs(path).groups for path in (args.first, args.second))
    first, second = by_order(group), by_order(second_group)
    orders = sorted(first.keys() & second.keys())
    if not orders:
        parser.error("the two have no order in common")
    one, other = (np.array([found[order] for order in orders]) for found in (first, second))
    paper = paper_results(group.benchmark).get(group.method)
    gain = other - one
    done = np.flatnonzero(~np.isnan(gain).any(axis=0))
    print(f"orders {orders}: mean (std); gain ± standard error; difference in the paper's std")
    print("task  first          second         gain             paper")
    for j in done:
        line = f"{j:4}  {spread(one[:, j])}  {spread(other[:, j])}  {gained(gain[:, j])}"
        if paper is not None:
            mean, std = paper.mean[j], paper.std[j]
            line += f"  {mean:.2f} ({std:.3f})  {(other[:, j].mean() - mean) / std:+.1f}"
        print(line)
    if len(done) > 1 and len(orders) > 2:
        alike = np.corrcoef(gain[:, 0], gain[:, done[1:]].mean(axis=1))[0, 1]
        print(f"gain on task 0 and mean gain after: correlation {alike:.2f}")
        if paper is not None:
            print_worth(gain[:, done], np.array(list(first.values()))[:, done], paper)


def print_worth(gain: Floats, first: Floats, paper: Published) -> None:
    """Print each task's gain for one on task 0, and the first set's mean moved by it.

    Least squares through the origin, so that no gain on task 0 is none later; ``first`` has all
    orders of the first set.
    """
    at_start, missing = gain[:, 0], paper.mean[0] - first[:, 0].mean()
    print(
        f"\nwhat a gain of 1 on task 0 leaves (slope), and the first, corrected by {missing:+.3f}"
    )
    print("task  slope        first  corrected, in the paper's std")
    for j in range(1, gain.shape[1]):
        slope = at_start @ gain[:, j] / (at_start @ at_start)
        left = gain[:, j] - slope * at_start
        error = (left @ left / (len(left) - 1) / (at_start @ at_start)) ** 0.5
        mean = first[:, j].mean()
        moved = mean + slope * missing
        off = (moved - paper.mean[j]) / paper.std[j]
        print(f"{j:4}  {slope:.2f} ± {error:.2f}  {mean:.3f}  {moved:.3f}  {off:+.1f}")


if __name__ == "__main__":
    main()
