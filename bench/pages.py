"""What the scripts that write pages of the documentation share: tables, and places for them."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from polarbear.base.errors import DataError
from polarbear.report.read.groups import Group
from polarbear.report.read.runs import read_runs
from polarbear.report.read.words import of_fewer
from polarbear.score.intervals import interval

ROOT = Path(__file__).parents[1]
DOCS, RESULTS = ROOT / "docs", ROOT / "results"
END = "<!-- until here -->"
DASH = "–"


def filled(page: str, begin: str, text: str) -> str:
    """Return a page with a text between a line that says who wrote it and the next end."""
    before, rest = page.split(begin)
    return f"{before}{begin}\n\n{text}\n\n{END}{rest.split(END, 1)[1]}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def groups_in(folder: Path) -> dict[str, Group]:
    """Return a benchmark's results by method, none where there is no folder."""
    groups = read_runs(folder).groups if folder.is_dir() else ()
    found: dict[str, Group] = {}
    for group in groups:
        if (other := found.setdefault(group.method, group)) is not group:
            raise DataError(
                f"{folder}: {other.title!r} and {group.title!r} are one method with two settings, "
                "and a page has one line for it: move one of them to results/ablations"
            )
    return found


def last_and_over_all(group: Group) -> tuple[list[float], list[float]]:
    """Return R_j of each run, after the last task and as the mean over all tasks."""
    scores = [run.scores["pw_jaccard"] for run in group.runs]
    return [float(one[-1]) for one in scores], [float(one.mean()) for one in scores]


def shown(scores: Sequence[float], digits: int = 3) -> str:
    """Return a mean with its 95 % interval, where there are several; a dash for no number.

    Where not all runs have a score (NaN), it says how many do.
    """
    found = interval(scores)
    if np.isnan(found.mean):
        return DASH
    interval_of = plus_minus(found.half_width, digits) + of_fewer(found.n, len(scores))
    return f"{found.mean:.{digits}f}{interval_of}"


def plus_minus(half_width: float, digits: int = 3) -> str:
    """Return half of an interval in words, nothing where there is none."""
    return "" if np.isnan(half_width) else f" ± {half_width:.{digits}f}"
