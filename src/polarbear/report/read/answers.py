"""What a run says of the test images after a task, beside the truth."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from zipfile import is_zipfile

from polarbear.base.arrays import Bools
from polarbear.base.errors import DataError, UnknownNameError
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.schedule import Schedule
from polarbear.benchmark.stream import Stream, View
from polarbear.named.registry import find, load
from polarbear.report.read.groups import Group, Run, Runs


@dataclass(frozen=True, eq=False)
class Answers:
    """Labels predicted (n, s) for the test images ``view`` after a task, of the seen classes.

    ``view.targets`` (n, s) is the truth; columns are ``view.classes``, in order of arrival.
    """

    stream: Stream
    view: View
    predicted: Bools

    @property
    def hierarchy(self) -> Hierarchy:
        """The benchmark's classes."""
        return self.stream.hierarchy


def known_hierarchy(benchmark: str) -> Hierarchy:
    """Return a benchmark's hierarchy; one that is not registered here is missing data."""
    try:
        return find(benchmark).hierarchy()
    except UnknownNameError as error:
        raise DataError(f"the benchmark is not registered here ({error})") from error


def answers(run: Run, after: int, root: str | Path | None = None) -> Answers:
    """Return a run's predictions after a task of the benchmark with the images they are for.

    ``root`` is the folder with the data (default: where the run found them). A run without
    predictions, or data that are not here, is a ``DataError`` that says what is missing.
    """
    predicted = run.predictions(after)
    if predicted is None:
        raise DataError(f"{run.path} has no predictions after task {after}")
    stream = stream_of(run, root)
    view = stream.test(run.moment(after))
    refuse_other_data(run, f"the predictions after task {after}", predicted.shape, view)
    return Answers(stream, view, predicted)


def refuse_other_data(run: Run, what: str, shape: tuple[int, ...], view: View) -> None:
    """Refuse what a run has kept of other images than those that are here."""
    if shape != (len(view), len(view.classes)):
        raise DataError(
            f"{run.path}: {what} are {shape}, but the data here have {len(view)} images of "
            f"{len(view.classes)} classes: give --root of the run's data"
        )


def comparable_runs(runs: Runs, *, damaged: bool = False) -> list[tuple[Group, Run]]:
    """Return a run with predictions of each group, all of one class order.

    The class order is the one that most groups have; groups without such a run are left out.
    A run with a damaged file counts as one without predictions, unless ``damaged``.
    """
    kept = [
        (group, run)
        for group in runs.groups
        for run in group.runs
        if all(file.is_file() for file in _files(run))
    ]
    if not kept:
        raise DataError("no run has kept its predictions")
    known = known_hierarchy(runs.benchmark).number
    kept = [(group, run) for group, run in kept if all(name in known for name in _arrival(run))]
    if not kept:
        raise DataError(f"the runs' classes are not those of {runs.benchmark} here")
    having: dict[tuple[str, ...], dict[str, tuple[Group, Run]]] = {}
    for group, run in kept:
        groups = having.setdefault(_arrival(run), {})
        if group.name not in groups and (damaged or _broken(run) is None):
            groups[group.name] = (group, run)
    most = max(having.values(), key=len)
    if not most:
        raise DataError(f"the predictions are damaged: {_broken(kept[0][1])}")
    return list(most.values())


def note_of_absent(runs: Runs, chosen: Iterable[tuple[Group, Run]]) -> str:
    """Say which groups a figure of predictions is without."""
    there = {group.name for group, _ in chosen}
    absent = [group.title for group in runs.groups if group.name not in there]
    return f" Without {', '.join(absent)}: no predictions for this order." if absent else ""


def stream_of(run: Run, root: str | Path | None = None) -> Stream:
    """Return the stream a run was trained on, with its images."""
    if not run.classes:
        raise DataError(f"{run.path} is a summary: it does not say which classes came when")
    return _stream(run.benchmark, run.classes, str(root) if root is not None else run.root)


@lru_cache(maxsize=16)
def _stream(benchmark: str, classes: tuple[tuple[str, ...], ...], root: str | None) -> Stream:
    known_hierarchy(benchmark)
    published = {schedule.tasks: i for i, schedule in enumerate(find(benchmark).orders())}
    if classes in published:
        return load(benchmark, published[classes], root, partial=True)
    return load(benchmark, root=root, schedule=Schedule.of(classes), partial=True)


def _files(run: Run) -> Iterator[Path]:
    return (run.path / "predictions" / f"after_{run.moment(j)}.npz" for j in run.done)


def _broken(run: Run) -> Path | None:
    """Return the first file of predictions that is not whole, without reading what it holds."""
    return next((file for file in _files(run) if not is_zipfile(file)), None)


def _arrival(run: Run) -> tuple[str, ...]:
    """Return the classes in their order of arrival, the same for joint training."""
    return tuple(name for task in run.classes for name in task)
