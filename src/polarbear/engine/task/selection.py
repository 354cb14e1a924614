"""How memory chooses among the images of a class: by name, or by a function of one's own."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polarbear.base.arrays import Ints
from polarbear.base.dotted import find_dotted
from polarbear.base.errors import PolarbearError, unknown_name
from polarbear.engine.task.replay_memory import herding

RESERVOIR = "reservoir"  # chooses at every step instead of after the task


@dataclass(frozen=True, eq=False)
class Candidates:
    """Images of one class that memory may keep: those with the label ``column``, ``rows`` (n,).

    ``features`` (n, d) and ``logits`` (n, seen) are those of the network as the task ends, each
    worked out when it is asked for. ``random`` draws by the run's seed.
    """

    column: int
    rows: Ints
    random: np.random.Generator
    look: Callable[[str], NDArray[np.float32]]

    def __len__(self) -> int:
        """Count them."""
        return len(self.rows)

    @cached_property
    def features(self) -> NDArray[np.float32]:
        """What the backbone gives for each image, not augmented: (n, d)."""
        return self.look("features")

    @cached_property
    def logits(self) -> NDArray[np.float32]:
        """What the whole network gives for each image, not augmented: (n, seen)."""
        return self.look("logits")


Choose = Callable[[Candidates, int], Any]
"""``choose(candidates, count)`` gives ``count`` positions from 0 to n - 1, the dearest first."""

SELECTIONS: Mapping[str, Choose] = MappingProxyType(
    {
        "random": lambda among, count: among.random.choice(len(among), count, replace=False),
        "herding": lambda among, count: herding(among.features, count),
    }
)


def find_selection(name: str) -> Choose:
    """Return a way to choose by its name or its dotted path.

    >>> among = Candidates(0, np.arange(9), np.random.default_rng(0), lambda what: np.eye(9))
    >>> len(find_selection("herding")(among, 4))
    4
    """
    if ":" in name:
        found: Choose = find_dotted(name, "function")
        return found
    if name not in SELECTIONS:
        raise unknown_name("selection", name, [*SELECTIONS, RESERVOIR, "package.module:function"])
    return SELECTIONS[name]


def chosen_rows(name: str, among: Candidates, count: int) -> Ints:
    """Return the rows that a selection chooses, the dearest first; a wrong choice is an error."""
    positions = np.asarray(find_selection(name)(among, count))
    fits = (
        positions.dtype.kind in "iu"
        and positions.shape == (count,)
        and len(set(positions.tolist()) & set(range(len(among)))) == count
    )
    if not fits:
        raise PolarbearError(
            f"selection {name!r} was asked for {count} of {len(among)} images and gave "
            f"{np.array2string(positions, threshold=20)}: give {count} whole numbers from 0 to "
            f"{len(among) - 1}, none twice"
        )
    chosen: Ints = among.rows[positions]
    return chosen
