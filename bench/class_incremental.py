"""Writes the tables of docs/explanation/class-incremental.md, from results/ and published figures.

python bench/class_incremental.py; a test compares the page with what this would write. Every image
has one label and gets one, so R_j is the top-1 accuracy over the classes seen.
"""

from collections.abc import Mapping
from pathlib import Path

from pages import DASH, DOCS, RESULTS, filled, groups_in, last_and_over_all, shown, table
from polarbear.methods.catalogue import METHODS, title
from polarbear.report.read.groups import Group
from polarbear.report.read.words import spans

PAGE = DOCS / "explanation" / "class-incremental.md"
BEGIN = "<!-- made by bench/class_incremental.py -->"
#: Percent after the last task, read off Figure 1 (a) of the supplement of arXiv:2302.03648.
LAST = {"replay": "39", "icarl-nme": "45", "wa": "48", "bic": "43", "lwf": "13"}
#: The mean over all tasks: Table 1 of PODNet, arXiv:2004.13513, 10 steps.
MEAN = {"icarl-nme": "53.8", "bic": "53.2", "podnet": "63.2"}
PUBLISHED: Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]] = {
    "cil-cifar-b0-5": (LAST, {}),
    "cil-cifar": ({}, MEAN),
}


def tables(results: Path = RESULTS) -> str:
    """Return a section for each benchmark, in Markdown."""
    return "\n\n".join(section(name, results / name) for name in PUBLISHED)


def section(benchmark: str, folder: Path) -> str:
    """Return a benchmark's table: what ran, and what others have published."""
    ours, (last, mean) = groups_in(folder), PUBLISHED[benchmark]
    names = [name for name in METHODS if name in {*ours, *last, *mean}]
    names += [name for name in ours if name not in METHODS]
    heads = ["method", "orders", "last", "published", "mean over tasks", "published"]
    rows = []
    for name in names:
        orders, our_last, our_mean = accuracies(ours.get(name))
        rows.append([linked(name), orders, our_last, last.get(name, DASH), our_mean])
        rows[-1].append(mean.get(name, DASH))
    return f"### {benchmark}\n\n{table(heads, rows)}"


def accuracies(group: Group | None) -> tuple[str, str, str]:
    """Return which orders ran, and their accuracies: after the last task, and over all."""
    if group is None:
        return DASH, DASH, DASH
    last, over = ([100 * one for one in found] for found in last_and_over_all(group))
    return spans(group.orders), shown(last, 1), shown(over, 1)


def linked(method: str) -> str:
    """Return a method's title, with a link to its page where it has one."""
    return f"[{title(method)}](../methods/{method}.md)" if method in METHODS else title(method)


def written(page: str) -> str:
    """Return a page with its tables as they should be."""
    return filled(page, BEGIN, tables())


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
