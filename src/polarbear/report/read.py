"""Read run folders and result summaries, and group them by method and settings.

A run folder is any folder with a ``manifest.json``. A summary is a file
``<benchmark>/<method>/order-<n>.json`` with at least ``r``, the scores R_j after each task.
"""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from polarbear.arrays import Floats
from polarbear.errors import DataError, unknown_name
from polarbear.evaluate import SCORE_NAMES, SPLITS
from polarbear.report.grouping import group_runs
from polarbear.report.groups import Group, Run, Runs
from polarbear.report.summaries import benchmark_id, empty, frozen_all, read_summary
from polarbear.runs import RunError, RunFolder
from polarbear.sealed import unsealed

__all__ = ["Group", "Run", "Runs", "read_runs"]

log = logging.getLogger("polarbear")


def read_runs(paths: str | Path | Iterable[str | Path], *, split: str = "test") -> Runs:
    """Read the runs at or below the given folders and group them.

    ``split`` chooses the scores: of test or of post-task validation images. Unfinished runs give
    the tasks they have; what cannot be read is left out with a warning in the log.
    """
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    roots = [Path(path) for path in ([paths] if isinstance(paths, (str, Path)) else paths)]
    for root in roots:
        if not root.exists():
            raise DataError(f"there is no folder {root}: `polarbear run METHOD` makes one")
    runs = [run for file in _files(roots) if (run := _read(file, split)) is not None]
    if not runs:
        where = f" in {', '.join(map(str, roots))}" if roots else ""
        raise DataError(
            f"there is no run with scores{where}: give folders that `polarbear run` has made, or "
            "one above them"
        )
    benchmark = _one_benchmark(runs)
    return Runs(benchmark, group_runs(_same_tasks(runs)), split)


def _files(roots: Iterable[Path]) -> Iterator[Path]:
    """Go through the manifests and summaries, each once."""
    found = (file for root in roots for file in _below(root))
    yield from {file.resolve(): file for file in found}.values()


def _below(root: Path) -> Iterator[Path]:
    if root.is_file():
        yield root
        return
    for folder, below, names in os.walk(root):
        if "manifest.json" in names:
            # What is inside a run folder is the run's own.
            below.clear()
            yield Path(folder, "manifest.json")
            continue
        below.sort()
        yield from (Path(folder, name) for name in sorted(names) if _is_summary(name))


def _is_summary(name: str) -> bool:
    return name.startswith("order-") and name.endswith(".json")


def _read(file: Path, split: str) -> Run | None:
    """Give a run, or None with a warning for one that has nothing to show."""
    try:
        is_run = file.name == "manifest.json"
        run = _read_folder(file.parent, split) if is_run else read_summary(file, split)
    except (RunError, DataError, OSError) as error:
        log.warning("left out: %s", error)
        return None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        log.warning("left out: %s is damaged (%s: %s)", file, type(error).__name__, error)
        return None
    if not run.done:
        log.warning("left out: %s has no %s scores yet", run.path, split)
        return None
    return run


def _read_folder(path: Path, split: str) -> Run:
    folder = RunFolder(path)
    manifest = folder.manifest()
    settings = manifest["settings"]
    classes = tuple(tuple(task) for task in manifest["classes"])
    scores, by_task = empty(len(classes), SCORE_NAMES)
    for number, line in _lines(path / "scores.jsonl", folder.is_sealed):
        try:
            _fill(line, split, scores, by_task)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            _warn_of_line(path / "scores.jsonl", number, error)
    return Run(
        path,
        settings["method"],
        benchmark_id(settings["benchmark"]),
        settings.get("order"),
        settings.get("seed"),
        frozen_all(scores),
        frozen_all(by_task),
        settings,
        classes,
        manifest.get("root"),
        folder.finished,
    )


def _lines(file: Path, sealed: bool) -> Iterator[tuple[int, Any]]:
    """Go through the records of a file with their line numbers, from 1; bad lines are skipped."""
    if not file.is_file():
        return
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                yield number, unsealed(line, required=sealed)
            except ValueError as error:
                _warn_of_line(file, number, error)


def _warn_of_line(file: Path, number: int, error: Exception) -> None:
    log.warning("%s, line %d skipped: %s: %s", file, number, type(error).__name__, error)


def _fill(
    line: Mapping[str, Any],
    split: str,
    scores: dict[str, Floats],
    by_task: dict[str, Floats],
) -> None:
    if line["split"] != split:
        return
    after = line["after"]
    if not (isinstance(after, int) and 0 <= after < len(scores["pw_jaccard"])):
        raise ValueError(f"no task {after!r}")
    # Everything is converted first, so that a bad line leaves no half of it behind.
    values = {name: _number(value) for name, value in line["scores"].items()}
    rows = {name: np.array(row, dtype=np.float64) for name, row in line["by_task"].items()}
    for name, row in rows.items():
        if row.shape != (after + 1,):
            raise ValueError(f"by_task {name} has {row.size} values after task {after}")
    for name, value in values.items():
        if name not in scores:
            scores[name] = np.full(len(scores["pw_jaccard"]), np.nan)
        scores[name][after] = value
    for name, row in rows.items():
        if name in by_task:
            by_task[name][after, : after + 1] = row


def _number(value: Any) -> float:
    return float("nan") if value is None else float(value)


def _one_benchmark(runs: list[Run]) -> str:
    homes: dict[str, list[Path]] = {}
    for run in runs:
        homes.setdefault(run.benchmark, []).append(run.path)
    if len(homes) == 1:
        return runs[0].benchmark
    lines = [
        f"\n  {name}: " + ", ".join(map(str, paths[:3])) + _more(len(paths) - 3)
        for name, paths in sorted(homes.items())
    ]
    raise DataError(
        "these runs are of different benchmarks, and a report is about one:"
        + "".join(lines)
        + "\nGive the folders of one benchmark at a time"
    )


def _more(number: int) -> str:
    return f" and {number} more" if number > 0 else ""


def _same_tasks(runs: list[Run]) -> list[Run]:
    """Give every run the benchmark's number of tasks; joint training stands at the last."""
    tasks = max(run.tasks for run in runs)
    return [run if run.tasks == tasks else _stretched(run, tasks) for run in runs]


def _stretched(run: Run, tasks: int) -> Run:
    joint = run.tasks == 1
    begin = tasks - 1 if joint else 0
    scores, by_task = empty(tasks, run.scores)
    for name, values in run.scores.items():
        scores[name][begin : begin + run.tasks] = values
    for name, table in run.by_task.items():
        if not joint:
            by_task[name][: run.tasks, : run.tasks] = table
    return replace(run, scores=frozen_all(scores), by_task=frozen_all(by_task), joint=joint)
