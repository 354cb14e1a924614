"""Made-up run folders for tests and measurements of the report: every file, no training."""

import json
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from polarbear.base.arrays import Bools
from polarbear.benchmark.stream import Stream
from polarbear.named.registry import find, load
from polarbear.runs.folder import RunFolder
from polarbear.score.catalogue import score_names
from polarbear.settings.settings import Settings


def make_run(
    folder: Path,
    method: str = "er",
    order: int = 0,
    seed: int = 100,
    *,
    benchmark: str = "iirc-shapes",
    done: int | None = None,
    level: float = 0.5,
    predictions: bool = False,
    root: str | None = None,
    **settings: Any,
) -> Path:
    """Write a run that has come through ``done`` tasks, with scores drawn around ``level``.

    ``predictions`` of a benchmark that is not embedded need its data, in ``root``.
    """
    classes = find(benchmark).schedule(order).tasks
    if method == "joint":
        classes = (tuple(name for task in classes for name in task),)
    asked = replace(Settings(method, benchmark, order, seed, decision="threshold"), **settings)
    manifest = {"format": 1, "settings": asked.to_dict(), "root": root, "classes": classes}
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    done = len(classes) if done is None else done
    random = np.random.default_rng([order, seed, len(method)])
    lines = [_line(random, j, split, level) for j in range(done) for split in SPLITS]
    (folder / "scores.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if predictions:
        for after in range(done):
            moment = len(find(benchmark).schedule(order)) - 1 if method == "joint" else after
            truth = loaded(benchmark, order, root).test(moment).targets
            RunFolder(folder).save_predictions(after, nearly(truth, random))
    if done == len(classes):
        (folder / "finished.json").write_text('{"seconds": 1.0}')
    return folder


SPLITS = ("post_valid", "test")


def _line(random: np.random.Generator, after: int, split: str, level: float) -> dict[str, Any]:
    names = score_names()
    values = np.clip(random.normal(level, 0.02, len(names) + 2 * (after + 1)), 0, 1).tolist()
    scores = dict(zip(names, values, strict=False))
    if after == 0:
        scores |= dict.fromkeys(("implication", "sibling_error", "late_recall"))
    rows = values[len(names) :]
    by_task = {"pw_jaccard": rows[: after + 1], "jaccard": rows[after + 1 :]}
    return {"after": after, "split": split, "scores": scores, "by_task": by_task}


def nearly(truth: Bools, random: np.random.Generator) -> Bools:
    """The truth with one label in fifty turned round: (n, s)."""
    return truth ^ (random.random(truth.shape) < 0.02)


@cache
def loaded(benchmark: str, order: int, root: str | None = None) -> Stream:
    return load(benchmark, order, root)


def shapes(order: int) -> Stream:
    return loaded("iirc-shapes", order)


def summary(file: Path, r: Iterable[float | None], **more: Any) -> Path:
    """Write a result summary."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps({"r": list(r), **more}))
    return file
