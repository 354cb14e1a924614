"""Label matrices (n, c): booleans that say which of c classes each of n images is given."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike

from polarbear.base.arrays import Bools, Ints
from polarbear.base.errors import PredictionError

NUMBERS = (bool, int, float, np.generic)


def as_labels(matrix: object, what: str = "predictions") -> Bools:
    """Return a matrix of booleans, or of 0 and 1, as booleans; refuse all else: (n, c)."""
    array = np.asarray(matrix)
    if array.ndim != 2:
        raise PredictionError(
            f"{what} must be a matrix (images, classes); what came has shape {array.shape}"
        )
    if array.dtype == np.bool_:
        return array
    if np.issubdtype(array.dtype, np.floating):
        raise PredictionError(
            f"{what} must be booleans: which labels are predicted; what came is {array.dtype}. "
            "Threshold the scores first: logits > 0, or probabilities > 0.5"
        )
    if not np.issubdtype(array.dtype, np.integer):
        raise PredictionError(f"{what} must be booleans, or 0 and 1; what came is {array.dtype}")
    labels: Bools = array == 1
    other = array[~labels & (array != 0)]
    if other.size:
        raise PredictionError(
            f"{what} must be booleans, or 0 and 1; what came has {other[0]} in it. Class numbers "
            "or scores are not understood: give one column per class"
        )
    return labels


def label_pair(first: ArrayLike, second: ArrayLike, name: str) -> tuple[Bools, Bools]:
    """Return two label matrices of the same images and classes; refuse others: (n, c) each."""
    predicted, other = as_labels(first), as_labels(second, name)
    if predicted.shape != other.shape:
        raise PredictionError(
            f"predictions are {predicted.shape} but {name} are {other.shape}: "
            "give both for the same images and classes"
        )
    return predicted, other


def parent_columns(parent: ArrayLike, classes: int) -> Ints:
    """Return the column of each class's superclass, -1 for none; refuse all else: (c,)."""
    above = np.asarray(parent)
    if above.shape != (classes,):
        raise PredictionError(
            f"parent must be one column number per class, ({classes},); its shape is {above.shape}"
        )
    if not classes:
        return above.astype(np.intp)
    if not np.issubdtype(above.dtype, np.integer) or above.min() < -1 or above.max() >= classes:
        raise PredictionError(
            f"parent must be column numbers from 0 to {classes - 1}, or -1 for none; "
            f"what came is {above.dtype} from {above.min()} to {above.max()}"
        )
    return above.astype(np.intp)


def whole_matrix(predictions: object, shape: tuple[int, int], wanted: str) -> Bools:
    """Return predictions, whole or in batches, as one matrix; ``wanted`` begins its errors."""
    if _is_matrix(predictions, wanted):
        whole = as_labels(predictions)
        if whole.shape != shape:
            raise PredictionError(f"{wanted}. What came is {whole.shape}{_hint(whole, shape)}")
        return whole
    if not isinstance(predictions, Iterable):
        raise PredictionError(f"{wanted}. What came is {predictions!r}, no array and no batches")
    return _join(predictions, shape, wanted)


def _is_matrix(predictions: object, wanted: str) -> bool:
    """Tell one matrix, an array or a list of lists of numbers, from batches."""
    if isinstance(predictions, np.ndarray) or hasattr(predictions, "__array__"):
        return True
    if not isinstance(predictions, list | tuple):
        return False
    # One number tells: a list of rows may be long, and a batch of lists begins with a list.
    if not all(
        isinstance(r, list | tuple) and r and isinstance(r[0], NUMBERS) for r in predictions
    ):
        return False
    widths = {len(row) for row in predictions}
    if len(widths) > 1:
        raise PredictionError(
            f"{wanted}. What came is a list of rows of {min(widths)} to {max(widths)} numbers"
        )
    return bool(predictions)


def _join(batches: Iterable[object], shape: tuple[int, int], wanted: str) -> Bools:
    whole = np.empty(shape, dtype=bool)
    filled = 0
    for number, batch in enumerate(batches):
        labels = as_labels(batch, f"batch {number} of the predictions")
        end = filled + len(labels)
        if labels.shape[1] != shape[1] or end > shape[0]:
            raise PredictionError(
                f"{wanted}. Batch {number}, after {filled} rows, is "
                f"{labels.shape}{_hint(labels, shape)}"
            )
        whole[filled:end] = labels
        filled = end
    if filled != shape[0]:
        raise PredictionError(f"{wanted}. The batches have {filled} rows in all")
    return whole


def _hint(labels: Bools, shape: tuple[int, int]) -> str:
    if labels.shape == shape[::-1]:
        return ": transpose it"
    if labels.shape[1] > shape[1]:
        return f": leave out the columns of future classes, predictions[:, :{shape[1]}]"
    if labels.shape[1] == shape[1] and labels.shape[0] > shape[0]:
        return ": keep the view's rows alone, predictions[view.rows], if these are the whole file's"
    return ""
