"""``polarbear score``: scores of predictions made elsewhere."""

import json as json_format
from pathlib import Path
from typing import Annotated, TypeVar

import numpy as np
from rich.console import Console

from polarbear.base.errors import PredictionError
from polarbear.base.guarded import naming
from polarbear.benchmark.stream import Stream
from polarbear.cli.shared.console import console, plain_table, print_json, print_table, share
from polarbear.cli.shared.options import Json, Partial, Root, flag
from polarbear.cli.shared.outcome import legend, outcome_table
from polarbear.named.registry import find, load, partial_name
from polarbear.score.evaluate import Evaluator
from polarbear.score.predictions import Predictions, read_predictions
from polarbear.score.table import ScoreTable

Value = TypeVar("Value", str, int)


def score(
    predictions: Annotated[
        Path,
        flag(
            "A .npz file with an array after_<j> for each task, as save_predictions writes it.",
            "PREDICTIONS",
        ),
    ],
    /,
    *,
    benchmark: Annotated[
        str | None, flag("The benchmark.", "NAME", default="as the file says")
    ] = None,
    order: Annotated[
        int | None, flag("Its class order.", "INT", default="as the file says")
    ] = None,
    root: Root = None,
    partial: Partial = False,
    split: Annotated[
        str | None,
        flag(
            "Which images the predictions are for.",
            "{test,post_valid}",
            default="as the file says, else test",
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        flag("Labels with a score above it count as predicted, where the file has scores.", "T"),
    ] = None,
    table: Annotated[
        bool, flag("Print R_jk as well: after task j, on the images of task k.")
    ] = False,
    json: Json = False,
) -> None:
    """Score predictions made elsewhere with the official metrics."""
    file = read_predictions(predictions)
    with naming(file.path, "predictions", PredictionError):
        found = _id(file.benchmark)
    asked = partial_name(benchmark) if benchmark and partial else benchmark
    name = _agreed(file, "benchmark", _id(asked), found)
    stream = load(name, _agreed(file, "order", order, file.order), root, partial=partial)
    chosen = _agreed(file, "split", split, file.split, "test")
    with naming(file.path, "predictions", PredictionError):
        file.refuse_gaps(len(stream))
        evaluator = Evaluator(stream, chosen)
        for after in file.tasks:
            predicted = file.predicted(evaluator.view(after), after, threshold=threshold)
            evaluator.add(after, predicted)
    scores = evaluator.table  # NaN after the file's last task
    if json:
        forgetting = [None if np.isnan(x) else x for x in scores.forgetting.tolist()]
        print_json(json_format.loads(scores.to_json()) | {"forgetting": forgetting})
    else:
        _print(console(), scores, stream, len(file.tasks), by_task=table)


def _id(name: str | None) -> str | None:
    return None if name is None else find(name).id


def _agreed(
    file: Predictions,
    what: str,
    asked: Value | None,
    found: Value | None,
    default: Value | None = None,
) -> Value:
    """Return what was asked for, else what the file says; refuse if the two differ."""
    if asked is not None and found is not None and asked != found:
        raise PredictionError(
            f"{file.path} is for {what} {found}, but --{what} asks for {asked}: leave --{what} out"
        )
    for value in (asked, found, default):
        if value is not None:
            return value
    raise PredictionError(f"{file.path} does not say which {what} it is for: add --{what}")


def _print(
    screen: Console, scores: ScoreTable, stream: Stream, tasks: int, *, by_task: bool
) -> None:
    order = "" if scores.order is None else f", order {scores.order}"
    cut = "" if tasks == len(stream) else f", the first {tasks} of {len(stream)} tasks"
    screen.print(f"{scores.name}{order}, {scores.split} images{cut}\n", style="bold")
    seen = {after: len(stream.schedule.seen(after)) for after in range(tasks)}
    print_table(screen, outcome_table(scores, seen))
    screen.print(f"\nmean of R_j: {share(float(np.mean(scores.r[:tasks])))}", end="")
    screen.print(f", forgetting at the end: {share(float(scores.forgetting[tasks - 1]))}\n")
    screen.print(legend(), style="dim")
    if by_task:
        screen.print("\nR_jk in hundredths: after task j (line) on the images of task k (column)")
        triangle = plain_table("j\\k", *map(str, range(tasks)))
        for j in range(tasks):
            cells = (share(100 * float(scores.r_jk[j, k]), 0) for k in range(j + 1))
            triangle.add_row(str(j), *cells)
        print_table(screen, triangle)
