"""``polarbear compare``: our results beside the paper's tables."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from tyro.conf import Positional, arg

from polarbear.cli.options import Json
from polarbear.cli.screen import console, plain_table, print_json, share
from polarbear.errors import PolarbearError
from polarbear.report.groups import Group
from polarbear.report.paper import Published, paper_results, title
from polarbear.report.read import read_runs

Paths = Annotated[
    tuple[Path, ...], arg(metavar="PATH…", help="Run folders or result summaries, or above them.")
]


def compare(paths: Positional[Paths], /, *, json: Json = False) -> None:
    """Print R_j of each method beside the paper's, task by task.

    The last column is the difference in the paper's standard deviations.
    """
    runs = read_runs(paths)
    published = paper_results(runs.benchmark)
    if not published:
        raise PolarbearError(f"the paper has no table for {runs.benchmark}")
    found = {g.method: _lines(g, published[g.method]) for g in runs.groups if g.method in published}
    if json:
        print_json(found)
        return
    for group in runs.groups:
        if group.method in found:
            _print(group, found[group.method])
        else:
            console().print(f"{title(group.method)}: the paper has no numbers for it\n")


def _lines(group: Group, paper: Published) -> list[dict[str, Any]]:
    mean, std = group.mean("pw_jaccard"), group.std("pw_jaccard")
    done = np.flatnonzero(~np.isnan(mean) & ~np.isnan(paper.mean))
    return [
        {
            "task": int(j),
            "ours": float(mean[j]),
            "ours_std": None if np.isnan(std[j]) else float(std[j]),
            "runs": len(group.runs),
            "paper": float(paper.mean[j]),
            "paper_std": float(paper.std[j]),
            "difference_in_std": float((mean[j] - paper.mean[j]) / paper.std[j]),
        }
        for j in done
    ]


def _print(group: Group, lines: list[dict[str, Any]]) -> None:
    count = f"{len(group.runs)} run{'s' if len(group.runs) > 1 else ''}"
    table = plain_table(
        "task", "ours", "std", "paper", "std", "difference / std",
        title=f"{title(group.method)}, {count}",
    )  # fmt: skip
    for line in lines:
        spread = "–" if line["ours_std"] is None else share(line["ours_std"])
        table.add_row(
            str(line["task"]),
            share(line["ours"]),
            spread,
            share(line["paper"], 2),
            share(line["paper_std"]),
            f"{line['difference_in_std']:+.1f}",
        )
    console().print(table)
    console().print()
