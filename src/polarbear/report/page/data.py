"""The scores of a page: each method's mean and deviation after every task, by name."""

import math
from collections.abc import Iterable
from dataclasses import asdict, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from polarbear.base.arrays import Floats
from polarbear.methods.catalogue import is_bound
from polarbear.report.palette import Look, looks
from polarbear.report.read.groups import Group, Run, Runs
from polarbear.report.read.paper import paper_results
from polarbear.score import catalogue
from polarbear.score.catalogue import Better, PairScore, image_scores
from polarbear.score.intervals import quantile
from polarbear.score.record import BY_TASK
from polarbear.score.relations import LEVELS
from polarbear.score.table import ScoreTable

#: Runs from which on an interval is shown: that of two is wider than most scores are.
ENOUGH = 3


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
        replace(group, runs=tuple(_with_derived(run, runs.split) for run in group.runs))
        for group in runs.groups
    ]
    offered, look = _offered(groups), looks(groups)
    known = {one.id for one in offered}
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
        "methods": [_method(group, offered, look[group.name]) for group in groups],
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
        "oracle": any(run.is_oracle for run in group.runs),
        "runs": group.count,
        "finished": sum(run.finished for run in group.runs),
        "orders": sorted({run.order for run in group.runs if run.order is not None}),
        "seeds": sorted({run.seed for run in group.runs if run.seed is not None}),
        "scores": {
            name: _numbers(group.mean(name), group.std(name), group.counts(name)) for name in scores
        },
        "by_task": {
            name: _numbers(
                group.by_task_mean(name), group.by_task_std(name), group.counts(f"{name}@new")
            )
            for name in BY_TASK
        },
        "kept": None if math.isnan(kept := group.cost("kept")) else kept,
        "paper": None if paper is None else rounded(paper.mean),
    }


def _numbers(mean: Floats, std: Floats, counts: tuple[int, ...]) -> dict[str, Any]:
    """Return a score after each task, (T,) each; of R_jk, (T, T), the lower triangle.

    ``half`` is half of the mean's 95 % interval, of so many runs that it tells something.
    """
    errors = np.array([quantile(n - 1) / n**0.5 if n >= ENOUGH else np.nan for n in counts])
    half = (std.T * errors).T  # a row is a moment: it has its own number of runs

    def rows(values: Floats) -> list[Any]:
        if values.ndim == 1:
            return rounded(values)
        return [rounded(row[: after + 1]) for after, row in enumerate(values)]

    return {"mean": rows(mean), "half": rows(half), "std": rows(std), "n": list(counts)}


def _with_derived(run: Run, split: str) -> Run:
    """Add what follows from R_jk: the score on the newest task, and forgetting."""
    newest = {name: np.diagonal(run.by_task[name]) for name in BY_TASK}
    forgetting = ScoreTable(run.benchmark, run.order, split, newest, run.by_task).forgetting
    derived = {f"{name}@new": values for name, values in newest.items()}
    return replace(run, scores={**run.scores, **derived, "forgetting": forgetting})


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
    return [*levels, *pairs, FORGETTING, *by_task]


def rounded(values: ArrayLike) -> list[float | None]:
    """Return numbers to four places, null for NaN.

    >>> rounded([0.123456, float("nan")])
    [0.1235, None]
    """
    given = np.asarray(values, dtype=np.float64).round(4).tolist()
    return [None if value != value else value for value in given]
