"""σ and scores of runs of ``ablations:LUCIRSigma``, as CSV: a line per task.

    python bench/sigma.py runs/sigma/order-* > bench/results/lucir-sigma.csv

Whose margin a run has is in its settings: the authors' trains σ too (``margin_moves_sigma``).
"""

import argparse
import csv
import sys
from pathlib import Path

from polarbear.runs.folder import RunFolder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["network", "epochs", "margin", "order", "task", "sigma", "below_0", "score"])
    for path in parser.parse_args().runs:
        folder = RunFolder(path)
        settings = folder.manifest()["settings"]
        moves = settings["options"].get("margin_moves_sigma", False)
        last = {record.task: record.own for record in folder.epochs()}
        scores = folder.table().r
        for task, own in last.items():
            line = [f"{own['sigma']:.2f}", f"{own['sigma_below_0']:.2f}", f"{scores[task]:.4f}"]
            whose = "authors" if moves else "ours"
            trained = [settings["network"], settings["epochs"], whose]
            out.writerow([*trained, settings["order"], task, *line])


if __name__ == "__main__":
    main()
