"""The leaf of each image: its name turned into a number, and numbers that are refused."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from polarbear.base.arrays import Ints, frozen
from polarbear.base.errors import DataError, unknown_name
from polarbear.benchmark.hierarchy import Hierarchy


def number_leaves(where: str, labels: Sequence[str], hierarchy: Hierarchy) -> Ints:
    """Return each label as a number of ``hierarchy.leaves``: (n,); ``where`` is for messages.

    >>> number_leaves("zoo.csv", ["pug", "lamp"], Hierarchy.flat(["lamp", "pug"])).tolist()
    [1, 0]
    """
    number = {name: i for i, name in enumerate(hierarchy.leaves)}
    try:
        return frozen(np.fromiter(map(number.__getitem__, labels), np.intp, len(labels)))
    except KeyError as error:
        name = error.args[0]
    if name not in hierarchy.number:
        raise unknown_name(f"leaf class in {where}", name, hierarchy.leaves)
    raise _not_a_leaf(where, name, hierarchy)


def leaf_numbers(hierarchy: Hierarchy, leaf: ArrayLike, ignore: Sequence[str] = ()) -> Ints:
    """Turn leaf names, one a row, into class numbers; whole numbers pass as they are.

    >>> leaf_numbers(Hierarchy.flat(["lamp", "bus"]), ["bus", "bus", "lamp"]).tolist()
    [1, 1, 0]
    """
    number = hierarchy.number | dict.fromkeys(ignore, -1)
    try:
        # Turning a list of text into an array would take longer than to look up every row.
        if isinstance(leaf, (list, tuple)) and leaf and isinstance(leaf[0], str):
            return frozen(np.fromiter(map(number.__getitem__, leaf), np.intp, len(leaf)))
        array = np.asarray(leaf)
        if array.ndim != 1:
            raise DataError(f"leaf labels are one a row, (n,); their shape is {array.shape}")
        if np.issubdtype(array.dtype, np.integer):
            return frozen(array.astype(np.intp))
        # Files mostly lie class by class, so each run of equal names is looked up once.
        start = np.flatnonzero(np.concatenate([[len(array) > 0], array[1:] != array[:-1]]))
        runs = [number[name] for name in array[start].tolist()]
        return frozen(np.repeat(np.array(runs, np.intp), np.diff(start, append=len(array))))
    except KeyError as error:
        raise unknown_name("leaf class", error.args[0], hierarchy.leaves) from None


def refuse_bad_leaves(what: str, leaf: Ints, hierarchy: Hierarchy) -> None:
    """Refuse class numbers, one a row, that are no leaf of the hierarchy and not -1."""
    if np.ndim(leaf) != 1 or not np.issubdtype(np.asarray(leaf).dtype, np.integer):
        raise DataError(
            f"{what} must be one class number a row, (n,) whole numbers; "
            f"it has shape {np.shape(leaf)} and type {np.asarray(leaf).dtype}"
        )
    if not len(leaf):
        return
    if leaf.min() < -1 or leaf.max() >= len(hierarchy):
        raise DataError(
            f"{what} has numbers {leaf.min()} to {leaf.max()}; "
            f"classes are 0 to {len(hierarchy) - 1}"
        )
    inner = np.flatnonzero(
        (np.bincount(leaf[leaf >= 0], minlength=len(hierarchy)) > 0) & ~hierarchy.is_leaf
    )
    if inner.size:
        raise _not_a_leaf(what, hierarchy.names[inner[0]], hierarchy)


def _not_a_leaf(where: str, name: str, hierarchy: Hierarchy) -> DataError:
    return DataError(
        f"{where} has images labelled {name!r}, which has subclasses: label them with one of "
        f"{', '.join(hierarchy.children(name)[:5])}, or add a subclass for the rest"
    )
