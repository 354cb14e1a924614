"""The scores of a page: each method's mean and deviation after every task, by name."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from polarbear.base.arrays import Floats
from polarbear.report.figures.style import COLOURS
from polarbear.report.read.groups import Group, Run, Runs
from polarbear.report.read.paper import BOUNDS, paper_results
from polarbear.score.evaluate import LEVELS
from polarbear.score.metrics import METRICS
from polarbear.score.table import BY_TASK, ScoreTable

#: Which way a score is good; ``"one"`` is best near 1.
Better = Literal["high", "low", "one"]


class Shown(NamedTuple):
    """A score as the page offers it: ``short`` heads a column, ``about`` explains it."""

    id: str
    part: str
    title: str
    short: str
    about: str
    better: Better = "high"


class Question(NamedTuple):
    """What the paper asks, in a sentence, and the score that answers it."""

    question: str
    metric: str


QUESTIONS = (
    Question("How well does it label all it has met so far?", "pw_jaccard"),
    Question("Does it still name superclasses, as well as it did?", "pw_jaccard/superclass"),
    Question("Can it still learn the newest task?", "pw_jaccard@new"),
    Question("How much of earlier tasks is lost?", "forgetting"),
    Question("When it names a fine label, does it name the coarse one above it?", "implication"),
    Question("Does it confuse a subclass with its siblings?", "sibling_error"),
    Question("Does it name a known superclass on subclasses it learnt later?", "late_recall"),
    Question("Does it name too many labels, or too few?", "label_ratio"),
)

#: Columns of the table of results.
HEADLINE = (
    *("pw_jaccard", "jaccard", "exact_match", "pw_jaccard/superclass", "pw_jaccard/subclass"),
    *("implication", "sibling_error", "late_recall", "label_ratio", "forgetting"),
)

WORDS = {
    "pw_jaccard": ("pw-JS", "Jaccard score × precision: the paper’s score; wrong labels cost most"),
    "jaccard": ("Jaccard", "labels both named and true ÷ labels named or true"),
    "exact_match": ("exact match", "share of images with all their labels named and no other"),
    "precision": ("precision", "share of the named labels that are true"),
    "recall": ("recall", "share of the true labels that are named"),
    "f1": ("F1", "harmonic mean of precision and recall"),
}
LEVEL_WORDS = {
    "": ("All labels", "", ", over all test images of the tasks so far"),
    "/superclass": ("Superclasses alone", " (superclasses)", ", counting superclass labels alone"),
    "/subclass": ("Subclasses alone", " (subclasses)", ", counting subclass labels alone"),
}
ASKED = (
    Shown(
        *("implication", "The paper’s questions", "implication", "implication"),
        "how often the superclass is named when its subclass is named",
    ),
    Shown(
        *("sibling_error", "The paper’s questions", "sibling error", "sibling error"),
        "share of images on which a wrong sibling of the true subclass is named",
        "low",
    ),
    Shown(
        *("late_recall", "The paper’s questions", "late recall", "late recall"),
        "how often a superclass is named on images of subclasses learnt in a later task",
    ),
    Shown(
        *("label_ratio", "The paper’s questions", "label ratio", "label ratio"),
        "named labels ÷ true labels: above 1 too many are named, below 1 too few",
        "one",
    ),
    Shown(
        *("forgetting", "By task", "forgetting (pw-JS)", "forgetting"),
        "mean fall of R_jk from its best; images gain labels over time, so not all is forgetting",
        "low",
    ),
)


def score_data(runs: Runs) -> dict[str, Any]:
    """Give methods, scores and what explains them, ready for JSON."""
    groups = [_with_derived(group, runs.split) for group in runs.groups]
    shown = _shown(groups)
    known = {one.id for one in shown}
    return {
        "benchmark": runs.benchmark,
        "split": runs.split,
        "tasks": runs.tasks,
        "runs": runs.count,
        "last": runs.last,
        "colours": COLOURS,
        "metrics": [one._asdict() for one in shown],
        "headline": [name for name in HEADLINE if name in known],
        "questions": [one._asdict() for one in QUESTIONS if one.metric in known],
        "methods": [_method(group, shown) for group in groups],
    }


def _method(group: Group, shown: Iterable[Shown]) -> dict[str, Any]:
    scores = [one.id for one in shown if not one.id.endswith("@k")]
    paper = paper_results(group.benchmark).get(group.method)
    # Of a method in several settings, the paper's curve is beside the one it used, or none.
    as_published = paper if not group.settings else None
    return {
        "name": group.title,
        "bound": group.method in BOUNDS,
        "runs": group.count,
        "finished": sum(run.finished for run in group.runs),
        "orders": _listed(run.order for run in group.runs),
        "seeds": _listed(run.seed for run in group.runs),
        "scores": {name: _series(group, name) for name in scores},
        "by_task": {name: _table(group, name) for name in BY_TASK},
        "paper": None if as_published is None else rounded(as_published.mean),
    }


def _series(group: Group, name: str) -> dict[str, Any]:
    return {
        "mean": rounded(group.mean(name)),
        "std": rounded(group.std(name)),
        "n": list(group.counts(name)),
    }


def _table(group: Group, name: str) -> dict[str, Any]:
    def rows(table: Floats) -> list[Any]:
        return [rounded(row[: after + 1]) for after, row in enumerate(table)]

    return {
        "mean": rows(group.by_task_mean(name)),
        "std": rows(group.by_task_std(name)),
        "n": list(group.counts(f"{name}@new")),
    }


def _with_derived(group: Group, split: str) -> Group:
    runs = [replace(run, scores={**run.scores, **_derived(run, split)}) for run in group.runs]
    return replace(group, runs=tuple(runs))


def _derived(run: Run, split: str) -> Mapping[str, Floats]:
    """Give what follows from R_jk: the score on the newest task, and forgetting."""
    newest = {name: np.diagonal(run.by_task[name]) for name in BY_TASK}
    forgetting = ScoreTable(run.benchmark, run.order, split, newest, run.by_task).forgetting
    return {f"{name}@new": values for name, values in newest.items()} | {"forgetting": forgetting}


def _shown(groups: list[Group]) -> list[Shown]:
    """Give the scores that any group has, known ones first."""
    names = dict.fromkeys(name for group in groups for name in group.score_names)
    there = {n for n in names if any(not np.isnan(group.mean(n)).all() for group in groups)}
    known = [one for one in _known() if one.id.replace("@k", "@new") in there]
    others = [n for n in names if n in there and n not in {one.id for one in known}]
    return known + [Shown(n, "Others", n, n, "as the runs name it") for n in others]


def _known() -> list[Shown]:
    levels = [_at_level(name, level) for level in LEVELS for name in METRICS]
    return [*levels, *ASKED, *(one for name in BY_TASK for one in _of_task(name))]


def _at_level(name: str, level: str) -> Shown:
    title, about = WORDS.get(name, (name, "a metric of your own"))
    part, suffix, where = LEVEL_WORDS[level]
    return Shown(name + level, part, title + suffix, title + suffix, about + where)


def _of_task(name: str) -> tuple[Shown, Shown]:
    title = WORDS[name][0]
    newest = f"{title} on the newest task, R_jj"
    chosen = f"{title} on one task’s images, R_jk"
    return (
        Shown(f"{name}@new", "By task", newest, f"{title} R_jj", "what was just learnt"),
        Shown(f"{name}@k", "By task", chosen, f"{title} R_jk", "what is kept of a chosen task"),
    )


def _listed(values: Iterable[int | None]) -> list[int]:
    return sorted({value for value in values if value is not None})


def rounded(values: ArrayLike) -> list[float | None]:
    """Give numbers to four places, null for NaN.

    >>> rounded([0.123456, float("nan")])
    [0.1235, None]
    """
    given = np.asarray(values, dtype=np.float64).round(4).tolist()
    return [None if value != value else value for value in given]
