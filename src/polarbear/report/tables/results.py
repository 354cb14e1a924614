"""Tables of results: by task as in the paper's appendix, beside the paper's, last scores, transfer.

Means come with their 95 % interval over runs. :mod:`.marks` says which of a row are bold. Bounds
(joint, incremental joint, ER-infinite) stand last.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import add
from pathlib import Path
from typing import NamedTuple

import numpy as np

from polarbear.methods.catalogue import is_bound, title
from polarbear.report.read.cases import Cases, cases, shown_cases
from polarbear.report.read.groups import Group, Runs
from polarbear.report.read.paper import Published, paper_results
from polarbear.report.read.series import Course, Series, average, having, own_images
from polarbear.report.read.transfer import AVERAGE, BACKWARD, FORGETTING, forward
from polarbear.report.read.words import caption, caption_at_last, of_fewer, spans
from polarbear.report.tables.formats import Cell, Table
from polarbear.report.tables.marks import NO_RULE, RULE, best, weak
from polarbear.score.cases import FEW
from polarbear.score.catalogue import Better, headline

Records = tuple[tuple[object, ...], ...]

#: What a run costs: the part of it, and the head of its column.
COSTS = {
    "passes": "image passes",
    "seconds": "seconds",
    "kept": "bytes kept",
}
FEW_RULE = (
    "A ratio whose cases depend on what is predicted has their number; below "
    f"{100 * FEW:g} % of the images it is grey, and it never wins, nor where the number is not "
    "known."
)
FEWER_RULE = "A number with its n in brackets is the mean of the runs whose files have it."
COST_RULE = (
    "Image passes: images trained on, each as often as it was in a step. Bytes kept: what lasts "
    "from task to task beside the network, stored images, networks and tensors. A dash: not known."
)


def result_tables(
    runs: Runs, *, paper: bool = False, root: str | Path | None = None
) -> list[Table]:
    """Return R_j by pw-JS and by Jaccard, R_jj, every score after the last task, and transfer."""
    wanted: tuple[tuple[str, str, Series], ...] = (
        ("results-pw-js", "Average pw-JS after each task", average("pw_jaccard")),
        ("results-jaccard", "Average Jaccard similarity after each task", average("jaccard")),
        ("results-per-task", "pw-JS on each task's images right after it", own_images),
    )
    tables = [by_task(runs, name, what, series) for name, what, series in wanted]
    if paper and (beside := beside_paper(runs)) is not None:
        tables.append(beside)
    return [*(table for table in tables if table.rows), last_scores(runs), transfer(runs, root)]


def by_task(runs: Runs, name: str, what: str, series: Series) -> Table:
    """Return a score after each task, a column per method, as ``mean ± interval``."""
    runs = having(runs, series)
    groups = _bounds_last(g for g in runs.groups if not np.isnan(series(g).mean).all())
    courses = [series(group) for group in groups]
    rows, marked = [], {}
    for task in range(runs.tasks):
        if not all(math.isnan(one.mean[task]) for one in courses):
            marked[task] = best(groups, series, task)
            cells = [
                Cell(_at(one, task, group.count), i in marked[task])
                for i, (group, one) in enumerate(zip(groups, courses, strict=True))
            ]
            rows.append((Cell(str(task)), *cells))
    head = ("task", *(f"{group.title} (n = {group.count})" for group in groups))
    words = f"{caption(runs, what)} {_rule(any(marked.values()))}"
    return Table(name, words, head, tuple(rows), _records(groups, series, marked))


def beside_paper(runs: Runs) -> Table | None:
    """Return our R_j and the paper's side by side; None where they have no method in common.

    The paper has standard deviations, and so has this table.
    """
    published = paper_results(runs.benchmark)
    groups = [group for group in runs.groups if group.method in published]
    if not groups:
        return None
    ours, head = average("pw_jaccard"), ["task"]
    columns = [list(map(str, range(runs.tasks)))]
    for group in groups:
        theirs, own = published[group.method], ours(group)
        fewer = [of_fewer(int(n), group.count) for n in own.n]
        columns.append(list(map(add, map(mean_std, own.mean, own.std), fewer)))
        columns.append(list(map(mean_std, theirs.mean, theirs.std)))
        head += [f"{group.title} (n = {group.count})", f"{title(group.method)}, paper"]
    rows = [tuple(map(Cell, line)) for line in zip(*columns, strict=True)]
    words = (
        f"{caption(runs, 'Average pw-JS after each task')} Beside ours, the paper's, over ten "
        "orders; in brackets the standard deviation over runs."
    )
    records = _records(groups, ours, {}, published)
    return Table("results-beside-paper", words, tuple(head), tuple(rows), records)


class _Shown(NamedTuple):
    """A column of a table of last scores: its name in the CSV file, its head and its numbers."""

    name: str
    head: str
    series: Series
    better: Better = "high"


def last_scores(runs: Runs) -> Table:
    """Return every score after the last task, a line per method that has come so far."""
    shown = [
        _Shown(name, head, average(name), score.better)
        for name, (score, head) in headline().items()
    ]
    return _line_each(runs, "last-scores", f"Scores after task {runs.last}", shown)


def transfer(runs: Runs, root: str | Path | None = None) -> Table:
    """Return what other benchmarks report: average incremental score, transfer, forgetting.

    Forward transfer needs predictions and the data, in ``root`` or where the runs found them.
    """
    shown = (
        _Shown("average_incremental", "average incremental score", AVERAGE),
        _Shown("backward_transfer", "backward transfer", BACKWARD),
        _Shown("forward_transfer", "forward transfer", forward(root)),
        _Shown("forgetting", "forgetting", FORGETTING, "low"),
    )
    what = f"Average, transfer and forgetting of pw-JS after task {runs.last}"
    return _line_each(runs, "transfer", what, shown)


def _line_each(runs: Runs, name: str, what: str, shown: Sequence[_Shown]) -> Table:
    """Return a line per method with what is shown after the last task, and what it cost."""
    last, groups = runs.last, _bounds_last(runs.at_last)
    there = [one for one in shown if any(not math.isnan(one.series(g).mean[last]) for g in groups)]
    counted = {one.name: [cases(group, one.name, last) for group in groups] for one in there}
    won = {one.name: _winners(groups, one, last) for one in there}
    rows, records = [], list(_costs(groups, last))
    for i, group in enumerate(groups):
        cells = []
        for one in there:
            at, of, wins = one.series(group), counted[one.name][i], i in won[one.name]
            dim = of is not None and of.few
            shown_here = _at(at, last, group.count) + shown_cases(of, group.count)
            cells.append(Cell(shown_here, wins, dim))
            about = _about(group, last, int(at.n[last]))
            records.append((*about, one.name, *_numbers(at, last), *_of(of), int(wins)))
        rows.append((*_who(group), *cells, *_cost_cells(group)))
    head = (*WHO, *(one.head for one in there), *COSTS.values())
    varies = any(of is not None for column in counted.values() for of in column)
    fewer = any("(n = " in cell.text for row in rows for cell in row[len(WHO) :])
    rules = (_rule(any(won.values())), *[FEW_RULE] * varies, COST_RULE, *[FEWER_RULE] * fewer)
    words = " ".join((caption_at_last(runs, what), *rules))
    return Table(name, words, head, tuple(rows), (RECORD, *records))


#: The head of their CSV files.
RECORD = (
    *("method", "runs", "orders", "seeds", "task", "score", "mean", "std", "half_width"),
    *("cases", "images", "cases_runs", "best"),
)


def _winners(groups: Sequence[Group], one: _Shown, last: int) -> set[int]:
    if one.better == "one":
        return set()
    out = weak(groups, one.name, last)
    return best(groups, one.series, last, lower=one.better == "low", without=out)


def _costs(groups: Sequence[Group], last: int) -> Iterator[tuple[object, ...]]:
    for group in groups:
        for part in COSTS:
            about = _about(group, last, group.cost_count(part))
            yield (*about, f"cost/{part}", full(group.cost(part)), *[""] * 5, 0)


#: What every line says first of its group.
WHO = ("method", "n", "orders", "seeds")


def _who(group: Group) -> tuple[Cell, ...]:
    words = (group.title, str(group.count), spans(group.orders), spans(group.seeds))
    return tuple(map(Cell, words))


def _about(group: Group, last: int, n: int) -> tuple[object, ...]:
    return (group.name, n, spans(group.orders), spans(group.seeds), last)


def _cost_cells(group: Group) -> tuple[Cell, ...]:
    return tuple(Cell(_cost(group, part)) for part in COSTS)


def _cost(group: Group, part: str) -> str:
    return amount(group.cost(part)) + of_fewer(group.cost_count(part), group.count)


def amount(number: float) -> str:
    """Write a large number shortly, a dash for none.

    >>> amount(41_600_000), amount(1234.5), amount(0), amount(57.2), amount(float("nan"))
    ('41.6 M', '1.23 k', '0', '57.2', '–')
    """
    if math.isnan(number):
        return "–"
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {unit}"
    return f"{number:.3g}"


def mean_std(mean: float, std: float) -> str:
    """Write a mean and its standard deviation as the paper does.

    >>> mean_std(0.7249, 0.0391), mean_std(0.5, float("nan")), mean_std(float("nan"), 0.1)
    ('0.72 (0.039)', '0.50', '–')
    """
    if math.isnan(mean):
        return "–"
    return f"{mean:.2f}" if math.isnan(std) else f"{mean:.2f} ({std:.3f})"


def mean_interval(mean: float, half_width: float) -> str:
    """Write a mean with half of its interval, to as many places as that tells.

    >>> mean_interval(0.7249, 0.0391), mean_interval(0.5, float("nan")), mean_interval(-0.1, 0.001)
    ('0.72 ± 0.04', '0.50', '-0.100 ± 0.001')
    """
    if math.isnan(mean):
        return "–"
    if math.isnan(half_width):
        return f"{mean:.2f}"
    places = 3 if half_width < 0.01 else 2
    return f"{mean:.{places}f} ± {half_width:.{places}f}"


def full(value: float) -> object:
    """Return a number for a CSV file in full, and nothing for NaN."""
    return "" if math.isnan(value) else round(float(value), 6)


def _at(one: Course, task: int, count: int) -> str:
    """Write a number of a group that has so many runs, all of which may not have it."""
    shown = mean_interval(float(one.mean[task]), float(one.half_width[task]))
    return shown + of_fewer(int(one.n[task]), count)


def _numbers(one: Course, task: int) -> tuple[object, ...]:
    return tuple(full(float(values[task])) for values in (one.mean, one.std, one.half_width))


def _of(found: Cases | None) -> tuple[object, ...]:
    return ("",) * 3 if found is None else (full(found.of), full(found.images), found.n)


def _rule(marked: bool) -> str:
    return RULE if marked else NO_RULE


def _bounds_last(groups: Iterable[Group]) -> list[Group]:
    return sorted(groups, key=lambda group: is_bound(group.method))


def _records(
    groups: Sequence[Group],
    series: Series,
    marked: Mapping[int, set[int]],
    published: Mapping[str, Published] | None = None,
) -> Records:
    """Return a line per task and method, as the paper's own files have them.

    Beside our numbers in full, those of ``published`` are as the paper prints them.
    """
    head = ("task", "method", "mean", "std", "half_width", "runs", "orders", "seeds")
    more = ("paper mean", "paper std") if published else ("best",)
    lines: list[tuple[object, ...]] = [(*head, *more)]
    for place, group in enumerate(groups):
        one = series(group)
        paper = published[group.method] if published else None
        there = np.flatnonzero(~np.isnan(one.mean)).tolist()
        for task in range(group.tasks) if paper else there:
            best_here = int(place in marked.get(task, ()))
            beside = (full(paper.mean[task]), full(paper.std[task])) if paper else (best_here,)
            runs = (int(one.n[task]), spans(group.orders), spans(group.seeds))
            lines.append((task, group.name, *_numbers(one, task), *runs, *beside))
    return tuple(lines)
