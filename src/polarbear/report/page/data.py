"""The scores of a page: each method's mean and interval after every task, by name."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from polarbear.base.arrays import Floats
from polarbear.methods.catalogue import is_bound
from polarbear.report.palette import Look, looks
from polarbear.report.read import transfer
from polarbear.report.read.cases import Cases, cases
from polarbear.report.read.groups import Group, Run, Runs
from polarbear.report.read.paper import paper_results
from polarbear.report.read.series import average
from polarbear.report.read.words import ENOUGH
from polarbear.report.tables.marks import NO_RULE, RULE, best
from polarbear.report.tables.results import COSTS
from polarbear.score import catalogue
from polarbear.score.cases import FEW, varying_scores
from polarbear.score.catalogue import Better, PairScore, image_scores
from polarbear.score.record import BY_TASK
from polarbear.score.relations import LEVELS


class Offered(NamedTuple):
    """A score as the page offers it: ``short`` heads a column, ``about`` explains it."""

    id: str
    part: str
    title: str
    short: str
    about: str
    better: Better = "high"


#: What follows from R_jk, with the questions it answers.
DERIVED = {
    "pw_jaccard@new": "Can it still learn the newest task?",
    "forgetting": "How much of earlier tasks is lost?",
}
FORGETTING = Offered(
    *("forgetting", "By task", "forgetting (pw-JS)", "forgetting"),
    "mean fall of R_jk from its best; images gain labels over time, so not all is forgetting",
    "low",
)
#: The same under names that others use.
TRANSFER = (
    Offered(
        *("average_incremental", "By task", "average incremental score (pw-JS)", "average"),
        "mean of R_0 to R_j",
    ),
    Offered(
        *("backward_transfer", "By task", "backward transfer (pw-JS)", "backward transfer"),
        "mean of R_jk − R_kk over earlier tasks; images gain labels over time, which lowers it",
    ),
)
#: Scores of one task's images: how their names end, on what, their sign and what they tell.
OF_A_TASK = (
    ("new", "the newest task, R_jj", " R_jj", "what was just learnt"),
    ("k", "one task’s images, R_jk", " R_jk", "what is kept of a chosen task"),
)
LEVEL_WORDS = {
    "": ("All labels", "", ", over all test images of the tasks so far"),
    "/superclass": ("Superclasses alone", " (superclasses)", ", counting superclass labels alone"),
    "/subclass": ("Subclasses alone", " (subclasses)", ", counting subclass labels alone"),
}


def score_data(runs: Runs) -> dict[str, Any]:
    """Return methods, scores and what explains them, ready for JSON."""
    groups = [
        replace(group, runs=tuple(_with_derived(run) for run in group.runs))
        for group in runs.groups
    ]
    offered, look = _offered(groups), looks(groups)
    known = {one.id for one in offered}
    counted = [_counted(group, runs.last) for group in runs.groups]
    whole = {group.name: group for group in runs.at_last}  # short runs cost less
    return {
        "benchmark": runs.benchmark,
        "split": runs.split,
        "tasks": runs.tasks,
        "runs": runs.count,
        "last": runs.last,
        "metrics": [one._asdict() for one in offered],
        "headline": [name for name in (*catalogue.headline(), FORGETTING.id) if name in known],
        "questions": [
            {"question": asked, "metric": name}
            for name, asked in _questions().items()
            if name in known
        ],
        "methods": [
            _method(group, offered, look[group.name])
            | {"cases": of}
            | _costs(whole.get(group.name, group))
            for group, of in zip(groups, counted, strict=True)
        ],
        "marks": {one.id: _marks(groups, one, counted) for one in offered},
        "rules": [RULE, NO_RULE],
        "few": FEW,
        "costs": COSTS,
    }


def _method(group: Group, offered: Iterable[Offered], look: Look) -> dict[str, Any]:
    scores = [one.id for one in offered if not one.id.endswith("@k")]
    # Of a method in several settings, the paper's curve is beside the one it used, or none.
    paper = None if group.settings else paper_results(group.benchmark).get(group.method)
    return {
        "id": group.name,
        "name": group.title,
        "look": asdict(look),
        "bound": is_bound(group.method),
        "oracle": group.is_oracle,
        "runs": group.count,
        "finished": sum(run.finished for run in group.runs),
        "orders": group.orders,
        "seeds": group.seeds,
        "scores": {
            name: _numbers(group.mean(name), group.half_width(name), group.counts(name))
            for name in scores
        },
        "by_task": {
            name: _numbers(
                *(group.by_task_mean(name), group.by_task_half_width(name)),
                group.counts(f"{name}@new"),
            )
            for name in BY_TASK
        },
        "paper": None if paper is None else rounded(paper.mean),
    }


def _costs(group: Group) -> dict[str, Any]:
    """Return the means of what whole runs cost, and of how many runs each of them is."""
    means = dict(zip(COSTS, rounded([group.cost(part) for part in COSTS]), strict=True))
    return {**means, "cost_runs": {part: group.cost_count(part) for part in COSTS}}


#: Of how many cases a ratio is after each task, of how many images and of how many runs, by its
#: name.
Counted = dict[str, list[tuple[int, int, int] | None]]


def _counted(group: Group, last: int) -> Counted:
    """Return what a group's ratios are of where it varies, None where nobody knows.

    After the last task all runs are asked, before it those whose summaries say so, or the first:
    to read every prediction would take longer than all the rest.
    """
    found: Counted = {}
    for score in varying_scores():
        told = tuple(run for run in group.runs if score in run.told) or group.runs[:1]
        asked = [group if j == last else replace(group, runs=told) for j in range(group.tasks)]
        each = [cases(some, score, after) for after, some in enumerate(asked)]
        found[score] = [_case(one) for one in each]
    return found


def _case(found: Cases | None) -> tuple[int, int, int] | None:
    if found is None or not found.known:
        return None
    return round(found.of), round(found.images), found.n


def _marks(groups: Sequence[Group], score: Offered, counted: Sequence[Counted]) -> list[list[int]]:
    """Return the places of the best methods after each task, as the tables mark them."""
    # Of one task's images the page has no marks: which task it is, readers choose.
    if score.better == "one" or score.id.endswith("@k"):
        return []
    marks = []
    for task in range(groups[0].tasks):
        of = [one[score.id][task] if score.id in one else (1, 1, 1) for one in counted]
        out = [i for i, one in enumerate(of) if one is None or Cases(*one).few]
        won = best(groups, average(score.id), task, lower=score.better == "low", without=out)
        marks.append(sorted(won))
    return marks


def _numbers(mean: Floats, half: Floats, counts: tuple[int, ...]) -> dict[str, Any]:
    """Return a score after each task, (T,) each; of R_jk, (T, T), the lower triangle.

    ``half`` is half of the mean's 95 % interval, of so many runs that it tells something.
    """
    enough = np.array(counts) >= ENOUGH
    half = np.where(enough if half.ndim == 1 else enough[:, None], half, np.nan)

    def rows(values: Floats) -> list[Any]:
        if values.ndim == 1:
            return rounded(values)
        return [rounded(row[: after + 1]) for after, row in enumerate(values)]

    return {"mean": rows(mean), "half": rows(half), "n": list(counts)}


def _with_derived(run: Run) -> Run:
    """Add what follows from R_j and R_jk: the newest task's score, forgetting, transfer."""
    newest = {f"{name}@new": np.diagonal(run.by_task[name]) for name in BY_TASK}
    names = (FORGETTING.id, *(one.id for one in TRANSFER))
    series = (transfer.FORGETTING, transfer.AVERAGE, transfer.BACKWARD)
    derived = {name: one.of_run(run) for name, one in zip(names, series, strict=True)}
    return replace(run, scores={**run.scores, **newest, **derived})


def _offered(groups: list[Group]) -> list[Offered]:
    """Return the scores that any group has, known ones first."""
    names = dict.fromkeys(name for group in groups for name in group.score_names)
    there = {n for n in names if any(not np.isnan(group.mean(n)).all() for group in groups)}
    known = [one for one in _known() if one.id.replace("@k", "@new") in there]
    others = [n for n in names if n in there and n not in {one.id for one in known}]
    return known + [Offered(n, "Others", n, n, "as the runs name it") for n in others]


def _questions() -> dict[str, str]:
    """Return what the page asks: of all labels and levels, of tasks, of pairs of labels."""
    images: dict[str, str] = {}
    pairs: dict[str, str] = {}
    for name, score, words in catalogue.shown_scores():
        if words.question:
            (pairs if isinstance(score, PairScore) else images)[name] = words.question
    return images | DERIVED | pairs


def _known() -> list[Offered]:
    levels = []
    for level, score in product(LEVELS, image_scores()):
        part, suffix, where = LEVEL_WORDS[level]
        title = (score.title or score.name) + suffix
        name, about = score.name + level, score.about + where
        levels.append(Offered(name, part, title, title, about, score.better))
    pairs = [
        Offered(one.name, "The paper’s questions", title, title, one.about, one.better)
        for one in catalogue.in_order()
        if isinstance(one, PairScore) and (title := one.title or one.name)
    ]
    by_task = [
        Offered(f"{score.name}@{what}", "By task", f"{score.title} on {on}", score.title + r, about)
        for score in image_scores()
        if score.name in BY_TASK
        for what, on, r, about in OF_A_TASK
    ]
    return [*levels, *pairs, FORGETTING, *TRANSFER, *by_task]


def rounded(values: ArrayLike) -> list[float | None]:
    """Return numbers to four places, null for NaN.

    >>> rounded([0.123456, float("nan")])
    [0.1235, None]
    """
    given = np.asarray(values, dtype=np.float64).round(4).tolist()
    return [None if value != value else value for value in given]
