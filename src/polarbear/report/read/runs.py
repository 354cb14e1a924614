"""Read run folders and result summaries, and group them by method and settings.

A run folder is any folder with a ``manifest.json``. A summary is a file
``<benchmark>/<method>/order-<n>.json`` with at least ``r``, the scores R_j after each task.
"""

import fnmatch
import logging
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from polarbear.base.errors import DataError, PolarbearError, unknown_name
from polarbear.base.guarded import undamaged
from polarbear.base.names import one_line
from polarbear.benchmark.schedule import Schedule
from polarbear.report.read.grouping import group_runs, warn_of_twins
from polarbear.report.read.groups import Group, Run, Runs
from polarbear.report.read.result_files import (
    benchmark_id,
    read_summary,
    settings_in_words,
    some_tasks,
)
from polarbear.runs.folder import RunFolder
from polarbear.score.evaluate import SPLITS

__all__ = ["Group", "Run", "Runs", "read_benchmarks", "read_run", "read_runs"]

log = logging.getLogger("polarbear")


#: Runs from which on several processes read them sooner than one.
MANY = 400


def read_runs(
    paths: str | Path | Iterable[str | Path],
    *,
    split: str = "test",
    twins: bool = False,
    jobs: int = 1,
) -> Runs:
    """Read the runs at or below the given folders and group them.

    ``split`` chooses the scores: of test or of post-task validation images. Unfinished runs give
    the tasks they have; what cannot be read is left out with a warning in the log. Runs of one
    order and seed in a group are named there, too, unless ``twins`` are meant to be. ``jobs`` is
    the number of processes that read, where there are many runs.
    """
    runs = _read_all(paths, split, jobs)
    return _grouped(_one_benchmark(runs), runs, split, twins=twins)


def read_benchmarks(
    paths: Iterable[str | Path], *, apart: Collection[str] = (), jobs: int = 1
) -> tuple[Runs, ...]:
    """Read the runs at or below the given folders, of however many benchmarks, and group each's.

    Folders below them with a name in ``apart`` are left out with a warning in the log.
    """
    split, by_benchmark = "test", dict[str, list[Run]]()
    for run in _read_all(paths, split, jobs, apart):
        by_benchmark.setdefault(run.benchmark, []).append(run)
    return tuple(_grouped(name, runs, split) for name, runs in sorted(by_benchmark.items()))


def _read_all(
    paths: str | Path | Iterable[str | Path], split: str, jobs: int, apart: Collection[str] = ()
) -> list[Run]:
    if split not in SPLITS:
        raise unknown_name("split", split, SPLITS)
    roots = [Path(path) for path in ([paths] if isinstance(paths, (str, Path)) else paths)]
    for root in roots:
        if not root.exists():
            raise DataError(f"there is no folder {root}: `polarbear run METHOD` makes one")
    # Folders may lie in one another, or be given twice: each file is read once.
    files = {file.resolve(): file for root in roots for file in _below(root, apart)}.values()
    each = read_each(list(files), split, jobs)
    runs = [run for run in map(partial(_shown, split=split), each) if run is not None]
    if not runs:
        where = f" in {', '.join(map(str, roots))}" if roots else ""
        raise DataError(
            f"there is no run with scores{where}: give folders that `polarbear run` has made, or "
            "one above them"
        )
    return runs


def _grouped(benchmark: str, runs: list[Run], split: str, *, twins: bool = False) -> Runs:
    tasks = max(run.tasks for run in runs)
    same = [run if run.tasks == tasks else _stretched(run, tasks) for run in runs]
    groups = group_runs(same)
    if not twins:
        warn_of_twins(groups)
    return Runs(benchmark, groups, split)


def _below(root: Path, apart: Collection[str]) -> Iterator[Path]:
    if root.is_file():
        yield root
        return
    for folder, below, names in os.walk(root):
        if "manifest.json" in names:
            # What is inside a run folder is the run's own.
            below.clear()
            yield Path(folder, "manifest.json")
            continue
        for name in sorted({*apart}.intersection(below)):
            below.remove(name)
            log.warning("left out: %s (give that folder to see it)", Path(folder, name))
        below.sort()
        yield from (Path(folder, name) for name in fnmatch.filter(sorted(names), "order-*.json"))


def read_each(
    files: Sequence[Path], split: str = "test", jobs: int = 1
) -> Iterator[Run | PolarbearError]:
    """Read manifests' run folders and summaries, each of which is a run or says what is wrong."""
    read = partial(_read, split=split)
    if jobs <= 1 or len(files) < MANY:
        yield from map(read, files)
        return
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        yield from pool.map(read, files, chunksize=max(1, min(100, len(files) // (4 * jobs))))


def _read(file: Path, split: str) -> Run | PolarbearError:
    try:
        if file.name == "manifest.json":
            return read_run(file.parent, split)
        with undamaged(file):
            return read_summary(file, split)
    except PolarbearError as error:
        return error


def _shown(run: Run | PolarbearError, split: str) -> Run | None:
    """Return a run, or None with a warning for one that is damaged or has nothing to show."""
    if isinstance(run, PolarbearError):
        log.warning("left out: %s", one_line(str(run)))
        return None
    if not run.done:
        log.warning("left out: %s has no %s scores yet", run.path, split)
        return None
    return run


def read_run(path: Path, split: str = "test") -> Run:
    """Read a run folder, finished or not; one that is not whole is an error that names it."""
    folder = RunFolder(path)
    with undamaged(path):
        manifest = folder.manifest()
        settings, classes = manifest["settings"], Schedule.of(manifest["classes"]).tasks
        some_tasks(len(classes))
        table, tree = folder.table_and_tree(split)
        return Run(
            path,
            settings["method"],
            benchmark_id(settings["benchmark"]),
            settings.get("order"),
            settings.get("seed"),
            table.scores,
            table.by_task,
            settings_in_words(settings, manifest),
            classes,
            manifest.get("root"),
            folder.finished,
            tree=tree,
            title=manifest.get("title", ""),
            oracle=manifest.get("oracle") is True,
        )


def _one_benchmark(runs: list[Run]) -> str:
    homes: dict[str, list[Path]] = {}
    for run in runs:
        homes.setdefault(run.benchmark, []).append(run.path)
    if len(homes) == 1:
        return runs[0].benchmark
    lines = [
        f"\n  {name}: {', '.join(map(str, paths[:3]))}"
        + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
        for name, paths in sorted(homes.items())
    ]
    raise DataError(
        "these runs are of different benchmarks, and a report is about one:"
        + "".join(lines)
        + "\nGive the folders of one benchmark at a time"
    )


def _stretched(run: Run, tasks: int) -> Run:
    """Return a run with the benchmark's number of tasks; joint training stands at the last."""
    joint = run.tasks == 1
    more = tasks - run.tasks
    around = (more, 0) if joint else (0, more)
    scores, told = (
        {name: np.pad(values, around, constant_values=np.nan) for name, values in given.items()}
        for given in (run.scores, run.told)
    )
    by_task = {n: np.pad(r, (0, more), constant_values=np.nan) for n, r in run.by_task.items()}
    if joint:  # of no task alone
        by_task = {name: np.full((tasks, tasks), np.nan) for name in run.by_task}
    return replace(run, scores=scores, by_task=by_task, told=told, joint=joint)
