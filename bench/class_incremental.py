"""Accuracies of class-incremental results: after the last task, and the mean over all tasks.

    python bench/class_incremental.py results

Every image has one label and gets one, so R_j is the top-1 accuracy over the classes seen.
"""

import argparse
from pathlib import Path

import numpy as np

from polarbear.methods.catalogue import title
from polarbear.report.read.runs import read_runs

#: Percent after the last task, read off Figure 1 (a) of the supplement of arXiv:2302.03648.
PUBLISHED = {"replay": 39, "icarl-nme": 45, "wa": 48, "bic": 43, "lwf": 13}
BENCHMARK = "cil-cifar-b0-5"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    args = parser.parse_args()
    print("| method | runs | after the last task | mean over all tasks | published, last |")
    print("|---|--:|--:|--:|--:|")
    for group in read_runs(args.results / BENCHMARK).groups:
        r = 100 * np.array([run.scores["pw_jaccard"] for run in group.runs])
        last, over = (np.mean(found) for found in (r[:, -1], r.mean(axis=1)))
        published = PUBLISHED.get(group.method, "–")
        name = title(group.method)
        print(f"| {name} | {len(r)} | {last:.1f} | {over:.1f} | {published} |")


if __name__ == "__main__":
    main()
