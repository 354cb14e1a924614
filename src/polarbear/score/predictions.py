"""Predictions in one file, so that they can be made elsewhere and scored here.

The file is a ``.npz`` with an array ``after_<j>`` per task: (n, s) booleans, or scores, for the
images of ``stream.test(after=j)`` (rows) and the classes seen by then (columns). ``rows_<j>``
may say which image each row is for; ``benchmark``, ``order`` and ``split`` what it belongs to.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polarbear.base.arrays import Bools, Ints
from polarbear.base.errors import PredictionError
from polarbear.base.files import write_whole
from polarbear.base.guarded import npz_names, read_npz
from polarbear.benchmark.stream import Stream, View
from polarbear.score.evaluate import Evaluator
from polarbear.score.label_matrix import as_labels


@dataclass(frozen=True)
class Predictions:
    """A file of predictions; its arrays, which may be large, are read one at a time.

    ``tasks`` are the tasks after which it has predictions.
    """

    path: Path
    tasks: tuple[int, ...]
    benchmark: str | None = None
    order: int | None = None
    split: str | None = None

    def predicted(self, view: View, after: int, *, threshold: float | None = None) -> Bools:
        """Return the labels predicted for a view's images, in its order of rows: (n, s).

        Where the file has scores, labels with a score above ``threshold`` count as predicted.
        """
        # Sixteen bytes are NumPy's widest number; a wrong shape up to 64 MB is named as such below.
        most = max(1 << 26, 16 * len(view) * len(view.classes))
        if after not in self.tasks:
            raise PredictionError(_missing(self.path, [after], self.tasks))
        arrays = _read(self.path, (f"after_{after}", f"rows_{after}"), most)
        given, rows = arrays[f"after_{after}"], arrays.get(f"rows_{after}")
        where = f"{self.path}: after_{after}"
        _refuse_bad_shape(where, given, view)
        if threshold is None and given.dtype.kind == "f":
            raise PredictionError(
                f"{where} has scores ({given.dtype}): say above which threshold a label counts as "
                "predicted (--threshold 0 for logits, 0.5 for probabilities)"
            )
        predicted = as_labels(given, where) if threshold is None else above(given, threshold, where)
        return predicted if rows is None else predicted[_places(self.path, after, rows, view)]

    def refuse_gaps(self, tasks: int) -> None:
        """Refuse a file that leaves out a task before its last, or has more than so many.

        It may end early, as a run may.
        """
        extra = [j for j in self.tasks if j >= tasks]
        if extra:
            raise PredictionError(
                f"{self.path} has after_{extra[0]}, but the benchmark's tasks are 0 to {tasks - 1}"
            )
        missing = [j for j in range(max(self.tasks)) if j not in self.tasks]
        if missing:
            raise PredictionError(_missing(self.path, missing, self.tasks))


def save_predictions(
    path: str | Path, stream: Stream, predictions: Mapping[int, ArrayLike], *, split: str = "test"
) -> Path:
    """Write predictions after each task, for ``polarbear score``; give the file's path.

    ``predictions[j]`` is (n, s), booleans or scores, for the rows of ``stream.test(after=j)``
    (of ``stream.post_valid(after=j)`` with ``split="post_valid"``). The file appears whole or
    not at all.
    """
    if not isinstance(predictions, Mapping):
        raise PredictionError(
            "predictions must be a dict with a matrix per task, {0: …, 1: …}; what came is "
            f"{type(predictions).__name__}. A list with one matrix per task: "
            "dict(enumerate(predictions))"
        )
    evaluator = Evaluator(stream, split)
    path = Path(path) if Path(path).suffix == ".npz" else Path(f"{path}.npz")
    about = {"benchmark": stream.name, "split": split, "order": stream.order}
    arrays: dict[str, Any] = {
        key: np.array(value) for key, value in about.items() if value is not None
    }
    for after, given in predictions.items():
        view = evaluator.view(after)
        array = np.asarray(given)
        _refuse_bad_shape(f"predictions after task {after}", array, view)
        arrays |= {f"after_{after}": array, f"rows_{after}": view.rows}
    write_whole(path, lambda file: np.savez_compressed(file, **arrays))
    return path


def read_predictions(path: str | Path) -> Predictions:
    """Open a file of predictions; nothing in it is executed."""
    path = Path(path)
    if path.is_dir():
        raise PredictionError(
            f"{path} is a folder: give a .npz file as polarbear.save_predictions writes it; of "
            "run folders, polarbear report shows the scores"
        )
    about = _read(path, ("benchmark", "order", "split"), 1 << 20)
    names = npz_names(path, **_AS_PREDICTIONS)
    found = (re.fullmatch(r"after_(0|[1-9][0-9]{0,8})", name) for name in names)
    tasks = tuple(sorted(int(match[1]) for match in found if match))
    if not tasks:
        raise PredictionError(
            f"{path} has no predictions: it needs an array after_0 for the images of "
            "stream.test(after=0), after_1, and so on; it has " + (", ".join(names) or "nothing")
        )
    return Predictions(
        path,
        tasks,
        _one(path, about, "benchmark", "U", "text"),
        _one(path, about, "order", "iu", "whole number"),
        _one(path, about, "split", "U", "text"),
    )


def above(scores: ArrayLike, threshold: float, what: str = "predictions") -> Bools:
    """Return the labels whose score is above a threshold; booleans stay as they are: (n, s).

    >>> above([[0.2, 0.9]], 0.5)
    array([[False,  True]])
    """
    array = np.asarray(scores)
    if array.dtype.kind not in "iuf":
        return as_labels(array, what)
    if np.isnan(array).any():
        raise PredictionError(f"{what} has scores that are not a number (NaN)")
    return as_labels(array > threshold, what)


def _places(path: Path, after: int, rows: NDArray[Any], view: View) -> Ints:
    """Where in the file each row of the view is."""
    if rows.shape != view.rows.shape or rows.dtype.kind not in "iu":
        raise PredictionError(
            f"{path}: rows_{after} must be {len(view)} row numbers, one per image; "
            f"it is {rows.dtype} of shape {rows.shape}"
        )
    order = np.argsort(rows, kind="stable")
    wrong = np.flatnonzero(rows[order] != view.rows)
    if wrong.size:
        raise PredictionError(
            f"{path}: rows_{after} are not the rows of the {view.file} images after task {after}: "
            f"in ascending order they differ first at {rows[order][wrong[0]]}, where "
            f"{view.rows[wrong[0]]} is due. Is it another benchmark, order or split?"
        )
    return order


def _refuse_bad_shape(where: str, given: NDArray[Any], view: View) -> None:
    due = (len(view), len(view.classes))
    if given.shape != due:
        raise PredictionError(
            f"{where} has the shape {given.shape}; due are {due}: {due[0]:,} images and the "
            f"{due[1]} classes seen by then, in their order of arrival"
        )


def _missing(path: Path, missing: list[int], tasks: tuple[int, ...]) -> str:
    shown = ", ".join(f"after_{j}" for j in missing[:5]) + (", …" if len(missing) > 5 else "")
    return (
        f"{path} lacks {shown}: a score needs predictions after every task from 0 on, without "
        f"gaps; it has them after {', '.join(map(str, tasks))}"
    )


def _one(path: Path, about: Mapping[str, NDArray[Any]], name: str, kinds: str, due: str) -> Any:
    """Return a single value that a file may have."""
    if name not in about:
        return None
    if about[name].ndim or about[name].dtype.kind not in kinds:
        raise PredictionError(f"{path}: {name} must be one {due}, not {about[name]!r}")
    return about[name].item()


_AS_PREDICTIONS: dict[str, Any] = {
    "what": "predictions",
    "error": PredictionError,
    "remedy": "Needed is a whole .npz file with an array after_<j> per task, as "
    "polarbear.save_predictions writes it",
}


def _read(path: Path, names: tuple[str, ...], most: int) -> dict[str, NDArray[Any]]:
    return read_npz(path, names, most=most, **_AS_PREDICTIONS)
