"""Labels of many images without a matrix of them: images of one kind carry the same."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from polarbear.base.arrays import Bools, Ints
from polarbear.benchmark.stream import View


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels of n images: ``kind`` (n,) is each one's row of ``table`` (k, seen).

    Of ImageNet's 1.28 million images a matrix would take 1.3 GB, a table of its classes takes 1 MB.

    >>> labels = Labels.of_targets(np.array([[1, 0], [0, 1], [1, 0]], dtype=bool))
    >>> labels.kind.tolist(), labels.counts.tolist()
    ([1, 0, 1], [2, 1])
    """

    table: Bools
    kind: Ints

    @classmethod
    def of_view(cls, view: View) -> "Labels":
        """Return a view's labels: its images' kinds are their leaves."""
        return cls(view.label_table, view.leaf)

    @classmethod
    def of_targets(cls, targets: Bools) -> "Labels":
        """Return labels that are given as a matrix (n, seen)."""
        table, kind = np.unique(targets, axis=0, return_inverse=True)
        return cls(table, kind.reshape(-1))  # which one release of NumPy gives another shape

    @classmethod
    def joined(cls, parts: Sequence["Labels"]) -> "Labels":
        """Put labels one after another, of the same seen classes."""
        first = np.cumsum([0, *(len(part.table) for part in parts[:-1])])
        kinds = [part.kind + begin for part, begin in zip(parts, first, strict=True)]
        return cls(np.concatenate([part.table for part in parts]), np.concatenate(kinds))

    def take(self, index: Ints | slice) -> "Labels":
        """Return those of some images."""
        return Labels(self.table, self.kind[index])

    @property
    def targets(self) -> Bools:
        """A matrix of them: (n, seen)."""
        found: Bools = self.table[self.kind]
        return found

    @property
    def counts(self) -> Ints:
        """Images with each label: (seen,)."""
        return np.bincount(self.kind, minlength=len(self.table)) @ self.table

    def having(self, column: int) -> Bools:
        """Return which images carry a label: (n,)."""
        found: Bools = self.table[:, column][self.kind]
        return found
