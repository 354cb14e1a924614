"""Names of leaves, one an image, turned into numbers."""

from collections.abc import Sequence

import numpy as np

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
    raise DataError(
        f"{where} has images labelled {name!r}, which has subclasses: label them with one of "
        f"{', '.join(hierarchy.children(name)[:5])}, or add a subclass for the rest"
    )
