"""Which rows of the data serve which split and which class.

IIRC shuffles nothing: of each leaf's training rows, in file order, the first part is in-task
validation, the next post-task validation, the rest training. Inside training and inside in-task
validation a superclass then takes the first rows of each leaf below it and the leaf the last.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from polarbear.base.arrays import Ints
from polarbear.base.errors import DataError
from polarbear.benchmark.hierarchy import Hierarchy


@dataclass(frozen=True)
class SplitRule:
    """The shares, with IIRC-CIFAR's values.

    ``valid`` and ``post_valid`` are parts of each leaf's training rows. A superclass gets the
    first ``superclass`` part of the rows of each leaf below it, a leaf with a superclass the last
    ``subclass`` part, and a leaf without one all its rows. A superclass of k > ``cap`` leaves gets
    ``superclass · cap / k``. ``shuffle_seed`` mixes each leaf's rows first, as the paper's text
    says; the published benchmark, and the default, take them in file order.

    With more than two levels, the window of rows of each level below the top starts half a
    superclass share after the one above it (or ends with the leaf's rows), so that neighbours
    share half their images, as the two levels of IIRC do.

    With ``equal``, sizes and repeated images say nothing about the hierarchy: every class has the
    same number of rows, as many as the smallest leaf allows, and no row serves two classes. A
    superclass takes equal parts of the leaves below it; ``superclass``, ``subclass`` and ``cap``
    do not count.
    """

    valid: float = 0.1
    post_valid: float = 0.1
    superclass: float = 0.4
    subclass: float = 0.8
    cap: int = 8
    shuffle_seed: int | None = None
    equal: bool = False

    def __post_init__(self) -> None:
        """Refuse shares that are no shares."""
        for name in ("valid", "post_valid", "superclass", "subclass"):
            value = getattr(self, name)
            if not 0 <= value <= 1:
                raise DataError(f"{name} is a share of the rows, from 0 to 1, not {value}")
        if self.valid + self.post_valid > 1:
            raise DataError(
                f"valid + post_valid is {self.valid + self.post_valid}, more than all rows"
            )
        if self.cap < 1:
            raise DataError(f"cap counts subclasses, from 1; it is {self.cap}")
        if self.shuffle_seed is not None and self.shuffle_seed < 0:
            raise DataError(f"shuffle_seed is a whole number from 0, not {self.shuffle_seed}")


@dataclass(frozen=True, eq=False)
class LeafRows:
    """Training rows grouped by leaf: those of class c are ``rows[start[c] : start[c + 1]]``.

    Inside a leaf the first ``valid[c]`` are in-task validation, up to ``post[c]`` post-task
    validation, the rest training. ``start`` has c + 1 entries.
    """

    hierarchy: Hierarchy
    rows: Ints
    start: Ints
    valid: Ints
    post: Ints

    @cached_property
    def count(self) -> Ints:
        """Rows of each class: (c,)."""
        return np.diff(self.start)

    @cached_property
    def parts(self) -> dict[str, tuple[Ints, Ints]]:
        """Split → first position and number of its rows inside each leaf: (c,), (c,)."""
        return {
            "valid": (np.zeros_like(self.valid), self.valid),
            "post_valid": (self.valid, self.post - self.valid),
            "train": (self.post, self.count - self.post),
        }

    @cached_property
    def equal(self) -> dict[str, int]:
        """Split → rows of each class where all have the same number."""
        return {split: equal_size(size, self.hierarchy) for split, (_, size) in self.parts.items()}


def group_by_leaf(
    leaf: Ints, hierarchy: Hierarchy, rule: SplitRule, file_order: Ints | None = None
) -> LeafRows:
    """Group rows by leaf; inside a leaf they follow ``file_order`` (default: row number).

    ``leaf`` is (n,) with class numbers, -1 for rows no class of the hierarchy claims.
    ``file_order`` is a permutation of the rows.
    """
    classes = len(hierarchy)
    order = np.arange(len(leaf)) if file_order is None else file_order
    if rule.shuffle_seed is not None:
        order = order[np.random.default_rng(rule.shuffle_seed).permutation(len(order))]
    # int16 makes the stable sort a radix sort: 1.28 million rows in about 10 ms.
    keys = leaf[order].astype(np.int16 if classes < 2**15 else np.int64)
    rows = order[np.argsort(keys, kind="stable")]
    count = np.bincount(leaf[leaf >= 0], minlength=classes)
    start = np.concatenate([[0], np.cumsum(count)]).astype(np.intp)
    valid = (rule.valid * count).astype(np.intp)
    post = valid + (rule.post_valid * count).astype(np.intp)
    return LeafRows(hierarchy, rows[len(rows) - start[-1] :], start, valid, post)


def class_rows(name: str, split: str, grouped: LeafRows, rule: SplitRule) -> list[Ints]:
    """Return the rows a class trains on (or is validated on), one array a leaf below it."""
    hierarchy = grouped.hierarchy
    c = hierarchy.index(name)
    begin, size = grouped.parts[split]
    first = grouped.start[:-1] + begin
    if hierarchy.is_leaf[c]:
        kept = int(rule.subclass * size[c]) if hierarchy.parents[c] >= 0 else size[c]
        kept = grouped.equal[split] if rule.equal else kept
        return [grouped.rows[first[c] + size[c] - kept : first[c] + size[c]]]
    leaves = np.flatnonzero(hierarchy.closure[:, c] & hierarchy.is_leaf)
    k = len(leaves)
    if rule.equal:
        n = grouped.equal[split]
        length = n // k + (np.arange(k) < n % k)
        shift = np.sum(_part(n, hierarchy)[hierarchy.closure[c]]) - _part(n, hierarchy)[c]
    else:
        share = rule.cap / k * rule.superclass if k > rule.cap else rule.superclass
        length = (share * size[leaves]).astype(np.intp)
        shift = (hierarchy.depth[c] * rule.superclass / 2 * size[leaves]).astype(np.intp)
    low = first[leaves] + np.minimum(shift, size[leaves] - length)
    return [grouped.rows[a : a + n] for a, n in zip(low, length, strict=True)]


def equal_size(size: Ints, hierarchy: Hierarchy) -> int:
    """Return the most rows that every class can have if none share any, from each leaf's (c,).

    >>> h = Hierarchy.from_children({"bear": ["polar bear", "brown bear"]}, alone=["lamp"])
    >>> equal_size(np.array([0, 30, 30, 30]), h)
    20
    """
    leaves = hierarchy.is_leaf
    given = hierarchy.closure[leaves].astype(float)
    n = int(np.min(size[leaves] / (given @ (1 / hierarchy.leaf_counts))))
    while np.any(given @ _part(n, hierarchy) > size[leaves]):
        n -= 1
    return n


def _part(n: int, hierarchy: Hierarchy) -> Ints:
    """What each leaf below a class gives, at most, to its n rows, and a leaf to its own: (c,)."""
    return -(-n // hierarchy.leaf_counts)
