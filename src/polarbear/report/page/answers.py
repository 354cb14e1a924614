"""What a page shows of predictions: confusion matrices, label rivers, images and their labels.

Class orders differ in what each task brings, so all of it is of one order: the one that most
methods have predictions for.
"""

import logging
from base64 import b64encode
from pathlib import Path
from typing import Any
from zlib import compress

import numpy as np

from polarbear.base.arrays import Floats, Ints
from polarbear.base.errors import PolarbearError
from polarbear.benchmark.stream import Stream
from polarbear.report.figures.river import KINDS, chosen_superclass, shares_of
from polarbear.report.options import Options
from polarbear.report.page.images import pick_rows, picture_data
from polarbear.report.read.answers import Answers, answers, comparable_runs, stream_of
from polarbear.report.read.groups import Run, Runs
from polarbear.score.metrics import confusion_rates

log = logging.getLogger("polarbear")

#: Letters of all packed confusion matrices together; beyond it, fewer tasks are kept.
BUDGET = 2_000_000

Root = str | Path | None
#: A packed confusion matrix per task, None where there is none.
Packed = list[str | None]


def answer_data(runs: Runs, options: Options, *, images: bool = True) -> dict[str, Any]:
    """Return the page's parts that need predictions, or ``{"missing": why}``."""
    root = options.root
    try:
        chosen = {group.name: run for group, run in comparable_runs(runs, damaged=True)}
        stream = stream_of(min(chosen.values(), key=lambda run: run.joint), root)
    except (PolarbearError, OSError) as error:
        log.warning("the page has no confusion matrices, rivers and images: %s", error)
        return {"missing": str(error)}
    rows = pick_rows(stream)
    own = [chosen.get(name) for name in runs.names]
    methods = [_of_run(run, stream, rows, root) if run else None for run in own]
    pictures = picture_data(stream, rows) if images else {"missing": "they were not asked for"}
    last = stream.test(len(stream) - 1)
    leaf = last.leaf[np.searchsorted(last.rows, rows)]
    tree, place = stream.hierarchy, {name: i for i, name in enumerate(stream.classes)}
    about = {
        "order": stream.order,
        "classes": [
            {
                "name": tree.title(name),
                "up": place.get(tree.parent(name) or "", -1),
                "task": stream.schedule.task_of[name],
            }
            for name in stream.classes
        ],
        "seen": [len(stream.schedule.seen(after)) for after in range(len(stream))],
        "superclasses": (inner := _superclasses(stream)),
        "superclass": inner.index(place[chosen_superclass(stream, options)]) if inner else 0,
        "river": [{"name": name, "colour": colour} for name, colour in KINDS.items()],
        # Each picked image's true labels, as places in the order of arrival.
        "photos": [np.flatnonzero(labels).tolist() for labels in last.label_table[leaf]],
    }
    return about | _matrices(stream, methods) | {"pictures": pictures}


def _matrices(stream: Stream, methods: list[dict[str, Any] | None]) -> dict[str, Any]:
    """Return the methods and the truth with as many confusion matrices as fit."""
    targets = [stream.test(after).targets for after in range(len(stream))]
    truth: Packed = [_packed(confusion_rates(right, right)) for right in targets]
    every = [truth, *(method["confusion"] for method in methods if method)]
    kept = _within_budget(every)
    for packed in every:
        packed[:] = [text if after in kept else None for after, text in enumerate(packed)]
    return {"kept": sorted(kept), "truth": truth, "methods": methods}


def _of_run(run: Run, stream: Stream, rows: Ints, root: Root) -> dict[str, Any]:
    """Return what a run answers after each task, None where it has no predictions."""
    parts: dict[str, list[Any]] = {
        name: [None] * len(stream) for name in ("confusion", "river", "labels")
    }
    for after in run.done:
        try:
            given = answers(run, after, root)
        except (PolarbearError, OSError) as error:
            log.warning("%s: predictions after task %d left out: %s", run.path, after, error)
            continue
        rates, seen = confusion_rates(given.predicted, given.view.targets), len(given.view.classes)
        parts["confusion"][after] = _packed(rates)
        parts["river"][after] = [
            _shares(given, place) if place < seen else None for place in _superclasses(stream)
        ]
        parts["labels"][after] = _labels(given, rows)
    return {"seed": run.seed, **parts}


def _packed(rates: Floats) -> str:
    """Return rates as bytes from 0 to 255, compressed, as text."""
    return b64encode(compress(np.rint(rates * 255).astype(np.uint8).tobytes())).decode()


def _within_budget(packed: list[Packed]) -> set[int]:
    """Return the tasks whose matrices are kept: all, or every second, fourth, … from the last."""
    step, tasks = 1, len(packed[0])
    while True:
        kept = set(range(tasks - 1, -1, -step))
        size = sum(len(one[after] or "") for one in packed for after in kept)
        if size <= BUDGET or len(kept) == 1:
            return kept
        step *= 2


def _superclasses(stream: Stream) -> list[int]:
    """Return the places of the classes with others below them."""
    inner = set(stream.hierarchy.superclasses)
    return [place for place, name in enumerate(stream.classes) if name in inner]


def _shares(given: Answers, place: int) -> list[int] | None:
    """Return a superclass's :func:`shares_of` in thousandths; None where it has no images."""
    view = given.view
    if not view.label_table[:, place][view.leaf].any():
        return None
    kinds, above = shares_of(given, view.classes[place])
    return [round(1000 * float(share)) for share in (*kinds, above)]


def _labels(given: Answers, rows: Ints) -> list[list[int] | None]:
    """Return the labels predicted on each picked image, None while it is not asked about."""
    place = np.searchsorted(given.view.rows, rows)
    there = np.isin(rows, given.view.rows)
    return [
        np.flatnonzero(given.predicted[i]).tolist() if asked else None
        for i, asked in zip(place, there, strict=True)
    ]
