"""Read one result summary: a small JSON file with the scores of one finished run."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from polarbear.base.arrays import Floats
from polarbear.base.errors import DataError, PolarbearError
from polarbear.named.registry import find
from polarbear.report.read.groups import Run
from polarbear.runs.cost import Cost
from polarbear.score.catalogue import score_names
from polarbear.score.decide import rule_in_words
from polarbear.score.record import BY_TASK
from polarbear.settings.settings import fits

#: Where a summary has R_j, by split.
R_KEYS = {"test": "r", "post_valid": "r_valid"}
#: Of so many tasks a run's two tables by task have 144 MB; a class of ImageNet a task makes 1,083.
MOST_TASKS = 3000


def read_summary(file: Path, split: str) -> Run:
    """Read a file ``<benchmark>/<method>/order-<n>.json``; what it does not say, its path does."""
    content = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or not isinstance(content.get("r"), list):
        raise DataError(f"{file} is no result summary: it has no list 'r' of scores R_j")
    tasks = some_tasks(len(content["r"]))
    scores = {"pw_jaccard": np.full(tasks, np.nan)}
    by_task = {name: np.full((tasks, tasks), np.nan) for name in BY_TASK}
    if content.get(R_KEYS[split]) is not None:
        scores["pw_jaccard"] = _array(content[R_KEYS[split]], (tasks,))
    if split == "test":
        # Other scores stand beside ``r`` or together under ``scores``.
        by_rule = {f"pw_jaccard/{k}": v for k, v in (content.get("r_by_rule") or {}).items()}
        given = {**content, **(content.get("scores") or {}), **by_rule}
        rules = {name: name for name in by_rule} | {"r_top1": "pw_jaccard/top1"}  # formerly alone
        names = {name: name for name in score_names()} | rules
        scores |= {
            name: _array(given[key], (tasks,))
            for key, name in names.items()
            if isinstance(given.get(key), list)
        }
        if content.get("r_jk") is not None:
            by_task["pw_jaccard"] = _array(content["r_jk"], (tasks, tasks))
    return Run(
        file,
        content.get("method", file.parent.name),
        benchmark_id(content.get("benchmark", file.parent.parent.name)),
        content.get("order"),
        content.get("seed"),
        scores,
        by_task,
        settings_in_words(content.get("settings", {}), content),
        finished=True,
        tree=content.get("tree"),
        title=content.get("title", ""),
        oracle=content.get("oracle") is True,
        told={
            name: _array(row, (tasks,))
            for name, row in (content.get("told") or {}).items()
            if row is not None
        },
        told_cost=Cost.from_json(content),
    )


def settings_in_words(settings: Mapping[str, Any], written: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return settings with the decision rule as people must read it: of an oracle, it says so."""
    rule = settings.get("decision")
    if not isinstance(rule, str):
        return settings
    return {**settings, "decision": rule_in_words(rule, written.get("oracle_rule") is True)}


def _array(values: Any, shape: tuple[int, ...]) -> Floats:
    array = np.array(values, dtype=object)
    if array.shape != shape:
        raise ValueError(f"scores of shape {array.shape} for {shape[0]} tasks")
    # NumPy would read text and yes or no as numbers, too; it reads null as NaN.
    if not all(fits(value, float | None) for value in array.flat):
        raise ValueError("scores that are no numbers")
    return array.astype(np.float64)


def some_tasks(number: int) -> int:
    """Return the number of tasks, unless their tables would take all of the memory."""
    if number > MOST_TASKS:
        raise DataError(f"{number} tasks are too many: at most {MOST_TASKS} can be reported on")
    return number


def benchmark_id(name: str) -> str:
    """Return a benchmark's name with its version; one that is not registered keeps its name.

    >>> benchmark_id("iirc-cifar"), benchmark_id("mine")
    ('iirc-cifar-v1', 'mine')
    """
    try:
        return find(name).id
    except PolarbearError:
        return name
