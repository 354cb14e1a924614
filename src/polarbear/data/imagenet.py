"""ImageNet from ``train/<wnid>/*.JPEG`` and ``val/<wnid>/*.JPEG``, or packed."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from polarbear.base.arrays import Ints, frozen
from polarbear.base.errors import DataError, unknown_name
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.labels import leaf_numbers
from polarbear.benchmark.source import Source
from polarbear.data.folders import open_folders, refuse_wrong_classes
from polarbear.data.packed import is_packed, open_packed

# maillot and crane: words that occur twice among ImageNet's 1,000, so IIRC leaves them out.
NOT_IN_IIRC = ("n03710637", "n02012849")
ROW_ORDERS = ("sorted", "iirc-1.0.1")


def open_imagenet(
    root: str | Path,
    hierarchy: Hierarchy,
    *,
    ignore: Sequence[str] = NOT_IN_IIRC,
    size: int | None = None,
    row_order: str = "sorted",
    class_sequence: Sequence[str] = (),
    cache: bool | str | Path = True,
    workers: int | None = None,
) -> Source:
    """Open ImageNet's folders, or a packed file set of them, as a data source.

    The classes are the hierarchy's leaves; those of ``ignore`` may be there or not, and
    ``Stream.from_source(…, ignore=…)`` leaves their rows out. Images come as (size, size): 256
    by default, or as they were packed. ``row_order`` "sorted" splits each class by sorted file
    name; "iirc-1.0.1" as the authors' package does, going through the classes as in
    ``class_sequence``: see :func:`reference_file_order`.
    """
    if row_order not in ROW_ORDERS:
        raise unknown_name("row order", row_order, ROW_ORDERS)
    if row_order != "sorted" and not class_sequence:
        raise DataError(
            f"row_order={row_order!r} needs class_sequence: the leaves as that package takes them. "
            "polarbear.load(…, row_order=…) knows those of the published benchmarks"
        )
    if is_packed(root):
        source = open_packed(root, size=size, workers=workers)
        found = {
            f"{source.origin} ({split})": [source.leaves[i] for i in np.unique(leaf)]
            for split, leaf in (("train", source.train_leaf), ("val", source.test_leaf))
        }
        refuse_wrong_classes(found, hierarchy, ignore)
    else:
        if not Path(root).is_dir():
            raise DataError(
                f"no folder {Path(root) / 'train'}: {root} does not exist. ImageNet (ILSVRC 2012) "
                "comes from image-net.org after a registration; unpack it as train/<wnid>/*.JPEG "
                "and val/<wnid>/*.JPEG and name the folder above them as root"
            )
        source = open_folders(
            root,
            hierarchy,
            test="val",
            size=size or 256,
            ignore=ignore,
            cache=cache,
            workers=workers,
        )
    if row_order == "sorted":
        return source
    leaf = leaf_numbers(hierarchy, source.leaves, ignore)[source.train_leaf]
    sequence = [hierarchy.index(name) for name in class_sequence]
    return replace(source, file_order=reference_file_order(leaf, sequence, hierarchy))


def reference_file_order(leaf: Ints, sequence: Sequence[int], hierarchy: Hierarchy) -> Ints:
    """Return the training rows in the order in which ``iirc==1.0.1`` splits them: (n,).

    ``leaf`` (n,) is the class number of each row, in the order of sorted names inside a class;
    ``sequence`` the class numbers as the package goes through them. It lines the files up class
    by class, computes the permutation that would sort their paths, and applies the inverse of it.
    Seen from the sorted files that is the line-up applied to itself, which rotates the rows
    inside some classes. Rows of classes outside the sequence come last.

    >>> classes = Hierarchy.flat(["n1", "n2", "n3"])
    >>> reference_file_order(np.array([0, 0, 1, 2, 2]), [2, 0, 1], classes).tolist()
    [1, 2, 3, 4, 0]
    """
    names = [hierarchy.names[i] for i in sequence]
    if len(set(names)) != len(names):
        raise DataError("the class sequence names a class twice")
    # The last entry serves rows of no class (-1), as numbers above all others serve the rest.
    by_name, by_sequence = np.full((2, len(hierarchy) + 1), len(hierarchy), np.int16)
    by_name[[hierarchy.index(name) for name in sorted(names)]] = np.arange(len(names))
    by_sequence[list(sequence)] = np.arange(len(names))
    sorted_rows = np.argsort(by_name[leaf], kind="stable")
    line_up = np.argsort(by_sequence[leaf[sorted_rows]], kind="stable")
    return frozen(sorted_rows[line_up[line_up]])
