"""Tables of results: by task as in the paper's appendix, beside the paper's, and every last score.

In a row of results the best mean is bold, and every mean that is less than one standard deviation
of the best one's runs away: so near, another draw of orders could turn the two round. With one run
there is no deviation and only the best is bold. Methods that see complete labels or keep every
image (joint, incremental joint, ER-infinite) are bounds: they stand last and are not compared.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from polarbear.base.arrays import Floats
from polarbear.methods.catalogue import is_bound, title
from polarbear.report.figures.curves import Series, average, caption, own_images
from polarbear.report.read.groups import Group, Runs
from polarbear.report.read.paper import Published, paper_results
from polarbear.report.tables.formats import Cell, Table
from polarbear.score.catalogue import headline

Pair = tuple[float, float]
Records = tuple[tuple[object, ...], ...]

RULE = (
    "Bold: the best mean and those less than one of its standard deviations away; bounds (complete "
    "labels or every image kept) are not compared."
)


def result_tables(runs: Runs, *, paper: bool = False) -> list[Table]:
    """Return R_j by pw-JS and by Jaccard, R_jj, and every score after the last task."""
    wanted: tuple[tuple[str, str, Series], ...] = (
        ("results-pw-js", "Average pw-JS after each task", average("pw_jaccard")),
        ("results-jaccard", "Average Jaccard similarity after each task", average("jaccard")),
        ("results-per-task", "pw-JS on each task's images right after it", own_images),
    )
    tables = [by_task(runs, name, what, series) for name, what, series in wanted]
    if paper and (beside := beside_paper(runs)) is not None:
        tables.append(beside)
    return [*(table for table in tables if table.rows), last_scores(runs)]


def by_task(runs: Runs, name: str, what: str, series: Series) -> Table:
    """Return a score after each task, a column per method, as ``mean (std)``."""
    groups = _bounds_last(g for g in runs.groups if not np.isnan(series(g)[0]).all())
    numbers = [series(group) for group in groups]
    rows = []
    for task in range(runs.tasks):
        pairs = [(float(mean[task]), float(std[task])) for mean, std in numbers]
        if not all(math.isnan(mean) for mean, _ in pairs):
            rows.append((Cell(str(task)), *cells(pairs, _compared(groups))))
    head = ("task", *(group.title for group in groups))
    words = f"{caption(runs, what)} {RULE}"
    return Table(name, words, head, tuple(rows), _records(groups, series))


def beside_paper(runs: Runs) -> Table | None:
    """Return our R_j and the paper's side by side; None where they have no method in common."""
    published = paper_results(runs.benchmark)
    groups = [group for group in runs.groups if group.method in published]
    if not groups:
        return None
    ours, head = average("pw_jaccard"), ["task"]
    columns: list[tuple[Floats, Floats]] = []
    for group in groups:
        theirs = published[group.method]
        columns += [ours(group), (theirs.mean, theirs.std)]
        head += [group.title, f"{title(group.method)}, paper"]
    rows = [
        (Cell(str(task)), *(Cell(mean_std(mean[task], std[task])) for mean, std in columns))
        for task in range(runs.tasks)
    ]
    words = f"{caption(runs, 'Average pw-JS after each task')} Beside ours, the paper's."
    records = _records(groups, ours, published)
    return Table("results-beside-paper", words, tuple(head), tuple(rows), records)


def last_scores(runs: Runs) -> Table:
    """Return every score after the last task, a line per method that has come so far."""
    last, groups, scores = runs.last, _bounds_last(runs.compared), headline()
    pairs = {
        name: [(float(g.mean(name)[last]), float(g.std(name)[last])) for g in groups]
        for name in scores
    }
    there = [n for n in scores if not all(math.isnan(mean) for mean, _ in pairs[n])]
    columns = [
        cells(
            pairs[name],
            [] if scores[name][0].better == "one" else _compared(groups),
            lower=scores[name][0].better == "low",
        )
        for name in there
    ]
    rows = [
        (Cell(group.title), Cell(str(group.counts()[last])), *(column[i] for column in columns))
        for i, group in enumerate(groups)
    ]
    records: list[tuple[object, ...]] = [("method", "runs", "task", "score", "mean", "std")]
    for name in there:
        for group, (mean, std) in zip(groups, pairs[name], strict=True):
            count = group.counts(name)[last]
            records.append((group.name, count, last, name, full(mean), full(std)))
    head = ("method", "runs", *(scores[name][1] for name in there))
    words = f"{caption(runs, f'Scores after task {last}')} {RULE}"
    return Table("last-scores", words, head, tuple(rows), tuple(records))


def mean_std(mean: float, std: float) -> str:
    """Write a mean and its standard deviation as the paper does.

    >>> mean_std(0.7249, 0.0391), mean_std(0.5, float("nan")), mean_std(float("nan"), 0.1)
    ('0.72 (0.039)', '0.50', '–')
    """
    if math.isnan(mean):
        return "–"
    return f"{mean:.2f}" if math.isnan(std) else f"{mean:.2f} ({std:.3f})"


def cells(pairs: Sequence[Pair], compared: Sequence[int], *, lower: bool = False) -> list[Cell]:
    """Write a row; bold what is best within noise among the compared places.

    >>> [c.bold for c in cells([(0.5, 0.02), (0.49, 0.3), (0.4, 0.2), (0.9, 0.0)], [0, 1, 2])]
    [True, True, False, False]
    """
    best = best_within_noise([pairs[i] for i in compared], lower=lower)
    bold = {place for place, good in zip(compared, best, strict=True) if good}
    return [Cell(mean_std(*pair), i in bold) for i, pair in enumerate(pairs)]


def best_within_noise(pairs: Sequence[Pair], *, lower: bool = False) -> list[bool]:
    """Say which means are best, or less than the best one's standard deviation away."""
    means = [-mean if lower else mean for mean, _ in pairs]
    if all(math.isnan(mean) for mean in means):
        return [False] * len(means)
    top = max(range(len(means)), key=lambda i: -math.inf if math.isnan(means[i]) else means[i])
    noise = 0.0 if math.isnan(pairs[top][1]) else pairs[top][1]
    return [mean == means[top] or means[top] - mean < noise for mean in means]


def full(value: float) -> object:
    """Return a number for a CSV file in full, and nothing for NaN."""
    return "" if math.isnan(value) else round(float(value), 6)


def _bounds_last(groups: Iterable[Group]) -> list[Group]:
    return sorted(groups, key=lambda group: is_bound(group.method))


def _compared(groups: Sequence[Group]) -> list[int]:
    return [i for i, group in enumerate(groups) if not is_bound(group.method)]


def _records(
    groups: Sequence[Group], series: Series, published: Mapping[str, Published] | None = None
) -> Records:
    """Return a line per task and method, as the paper's own files have them.

    Beside our numbers in full, those of ``published`` are as the paper prints them.
    """
    head = ("task", "method", "mean", "std", "runs")
    lines: list[tuple[object, ...]] = [(*head, "paper mean", "paper std") if published else head]
    for group in groups:
        (mean, std), counts = series(group), group.counts()
        paper = published[group.method] if published else None
        for task in range(group.tasks) if paper else np.flatnonzero(~np.isnan(mean)).tolist():
            beside = (full(paper.mean[task]), full(paper.std[task])) if paper else ()
            ours = (full(mean[task]), full(std[task]), counts[task])
            lines.append((task, group.name, *ours, *beside))
    return tuple(lines)
