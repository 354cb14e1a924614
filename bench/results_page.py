"""Writes the tables of docs/results.md, from the files in results/ and the paper's tables.

python bench/results_page.py; a test compares the page with what this would write. Ablations, in
results/ablations, have no line of their own: the pages of their methods have them.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from pages import DASH, DOCS, RESULTS, filled, last_and_over_all, plus_minus, shown, table
from polarbear.methods.catalogue import METHODS
from polarbear.report.read.beside_paper import beside_paper
from polarbear.report.read.groups import Group
from polarbear.report.read.paper import Published, paper_results
from polarbear.report.read.runs import read_runs
from polarbear.report.read.words import of_fewer, spans
from polarbear.score.intervals import Difference

PAGE = DOCS / "results.md"
BEGIN = "<!-- made by bench/results_page.py -->"
NO_METHODS = ("ablations",)
COSTS = ("minutes per run", "of a device", "runs", "hardware")


def tables(results: Path = RESULTS) -> str:
    """Return a section for each benchmark, in Markdown, IIRC's first."""
    folders = sorted(
        (one for one in results.iterdir() if one.is_dir() and one.name not in NO_METHODS),
        key=lambda one: (not one.name.startswith("iirc"), one.name),
    )
    return "\n\n".join(section(folder) for folder in folders)


def section(folder: Path) -> str:
    """Return a benchmark's tables: what the paper has beside it, with verdicts, then the rest."""
    runs = read_runs(folder)
    paper = paper_results(runs.benchmark)
    last = runs.tasks - 1
    both = [(group, paper[group.method]) for group in runs.groups if group.method in paper]
    rest = [group for group in runs.groups if group.method not in paper]
    heads = ["method", "orders", f"ours, R_{last}", "ours, all tasks", *COSTS]
    parts = [f"## {runs.benchmark}"]
    if paper:
        scores = ["method", "orders", f"ours, R_{last}", "paper", "difference"]
        scores += ["ours, all tasks", "paper", "difference", "tasks apart"]
        parts += [
            "### Beside the paper",
            table(scores, [row for group, theirs in both for row in rows(group, theirs, folder)]),
            "### Verdicts and cost",
            table(
                ["method", "verdict", *COSTS], [[linked(g), verdict(g), *cost(g)] for g, _ in both]
            ),
            *missing(folder.name, {group.method: group for group in runs.groups}, paper),
            *(["### Not in the paper's table"] if rest else []),
        ]
    return "\n\n".join([*parts, *([table(heads, map(alone, rest))] if rest else [])])


def missing(benchmark: str, ours: Mapping[str, Group], paper: Mapping[str, Published]) -> list[str]:
    """Return a section on those of the paper's runs that are not here, and how to make them."""
    left = {
        name: set(range(theirs.runs)) - set(ours[name].orders if name in ours else ())
        for name, theirs in paper.items()
    }
    left = {name: orders for name, orders in left.items() if orders}
    if not left:
        return []
    count, in_all = sum(map(len, left.values())), sum(theirs.runs for theirs in paper.values())
    which = ", ".join(f"{METHODS[name].title} {spans(orders)}" for name, orders in left.items())
    runs = " ".join(f"{name}:{span_words(orders)}" for name, orders in left.items())
    return [
        "### Not run yet",
        f"{count} of the paper's {in_all} runs, by class order: {which}. This makes them, resumes "
        "what it was stopped in, and writes their files as they end:",
        f"    python bench/run.py {runs} --benchmark {benchmark} --root data --out runs/table "
        "--results results",
    ]


def span_words(orders: Iterable[int]) -> str:
    """Return class orders as commands take them."""
    return spans(orders).replace("–", "-").replace(" ", "")


def rows(group: Group, paper: Published, folder: Path) -> list[list[str]]:
    """Return a method's row beside the paper, and one of its runs with a seed for each order."""
    # Not among the results, where a method has one line, but beside them.
    own = folder.parents[1] / "bench" / "results" / "draws" / folder.name / group.method
    found = [[linked(group), *beside(group, paper)]]
    for other in read_runs(own).groups if own.is_dir() else ():
        title = f"{linked(other)}, seeds {spans(other.seeds)}"
        found.append([title, *beside(other, paper)])
    return found


def linked(group: Group) -> str:
    """Return a method's title, with a link to its page where it has one."""
    known = group.method in METHODS
    return f"[{group.title}](methods/{group.method}.md)" if known else group.title


def alone(group: Group) -> list[str]:
    """Return a row of a benchmark that the paper has no figures for."""
    return [
        linked(group),
        spans(group.orders),
        *map(shown, last_and_over_all(group)),
        *cost(group),
    ]


def beside(group: Group, paper: Published) -> list[str]:
    """Return the orders, our means with their intervals, the paper's and the differences."""
    ours = [shown(one) for one in last_and_over_all(group)]
    found = beside_paper(group, paper)
    last = found.tasks[max(found.tasks)].difference
    return [
        spans(group.orders),
        ours[0],
        f"{paper.mean[-1]:.2f}",
        less(last, group.count),
        ours[1],
        f"{np.nanmean(paper.mean):.3f}",
        less(found.over_all.difference, group.count),
        f"{found.apart} of {found.told}" if found.told else DASH,
    ]


def less(found: Difference, runs: int) -> str:
    """Return ours less the paper's with its interval, and of how many runs if not of all."""
    return f"{found.mean:+z.3f}{plus_minus(found.half_width)}{of_fewer(found.n[0], runs)}"


def verdict(group: Group) -> str:
    """Return the sentence in bold with which a page's result begins."""
    page = PAGE.parent / "methods" / f"{group.method}.md"
    found = re.search(r"^## Result\n\n\*\*(.+?)\.?\*\*", page.read_text(encoding="utf-8"), re.M)
    return found[1] if found else DASH


def cost(group: Group) -> list[str]:
    """Return the minutes of a run and of a device, how many runs there are, and on what."""
    parts = ("seconds", "device_seconds")
    return [*(minutes(group, part) for part in parts), str(group.count), hardware(group)]


def minutes(group: Group, part: str) -> str:
    """Return the mean of a part of the cost in minutes, with the number of runs that know it."""
    mean = group.cost(part)
    fewer = of_fewer(group.cost_count(part), group.count)
    return DASH if np.isnan(mean) else f"{mean / 60:.1f}{fewer}"


def hardware(group: Group) -> str:
    """Return what the runs were made on, as their files say."""
    files = (json.loads(run.path.read_text(encoding="utf-8")) for run in group.runs)
    return ", ".join(sorted({str(one.get("hardware") or DASH) for one in files}))


def written(page: str) -> str:
    """Return a page with its tables as they should be."""
    return filled(page, BEGIN, tables())


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
