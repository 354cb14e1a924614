"""``polarbear compare``: our results beside the paper's tables."""

from typing import Any

import numpy as np

from polarbear.base.errors import PolarbearError, counted
from polarbear.cli.shared.console import console, plain_table, print_json, share
from polarbear.cli.shared.options import Json, Results
from polarbear.report.read.grouping import in_words
from polarbear.report.read.groups import Group
from polarbear.report.read.paper import Published, paper_results
from polarbear.report.read.runs import read_runs
from polarbear.runs.result_file import departures
from polarbear.settings.settings import deciding

# How a run computes is no other method, and the paper's is another program in any case.
NO_DEPARTURE = deciding("run", "arithmetic", "speed", "files")


def compare(paths: Results, /, *, json: Json = False) -> None:
    """Print R_j of each method beside the paper's, task by task.

    The last column is the difference in the paper's standard deviations.
    """
    runs = read_runs(paths)
    published = paper_results(runs.benchmark)
    if not published:
        raise PolarbearError(f"the paper has no table for {runs.benchmark}")
    # Several groups of a method differ in their names, and only a lone one is named as the method.
    found = {g.name: _lines(g, published[g.method]) for g in runs.groups if g.method in published}
    if json:
        print_json(found)
        return
    for group in runs.groups:
        if group.name in found:
            _print(group, found[group.name])
        else:
            console().print(f"{group.title}: the paper has no numbers for it\n", soft_wrap=True)


def _lines(group: Group, paper: Published) -> list[dict[str, Any]]:
    mean, std = group.mean("pw_jaccard"), group.std("pw_jaccard")
    done = np.flatnonzero(~np.isnan(mean) & ~np.isnan(paper.mean))
    return [
        {
            "task": int(j),
            "ours": float(mean[j]),
            "ours_std": None if np.isnan(std[j]) else float(std[j]),
            "runs": group.counts()[j],
            "paper": float(paper.mean[j]),
            "paper_std": float(paper.std[j]),
            "difference_in_std": float((mean[j] - paper.mean[j]) / paper.std[j]),
        }
        for j in done
    ]


def _print(group: Group, lines: list[dict[str, Any]]) -> None:
    # Not the table's own title, which would be broken at the table's width.
    console().print(f"{group.title}, {counted(group.count, 'run')}", style="bold", soft_wrap=True)
    # What the paper did not run, as far as the runs tell their settings.
    told = next((run.settings for run in group.runs if run.settings), {})
    asked = {"method": group.method, "benchmark": group.benchmark, "options": {}, **told}
    unlike = {k: v for k, v in departures(asked).items() if k not in NO_DEPARTURE}
    if unlike:
        words = ", ".join(in_words(key, value) for key, value in unlike.items())
        console().print(f"not the paper's settings: {words}", soft_wrap=True)
    table = plain_table("task", "ours", "std", "paper", "std", "difference / std")
    for line in lines:
        table.add_row(
            str(line["task"]),
            share(line["ours"]),
            share(line["ours_std"]),
            share(line["paper"], 2),
            share(line["paper_std"]),
            f"{line['difference_in_std']:+.1f}",
        )
    console().print(table)
    console().print()
