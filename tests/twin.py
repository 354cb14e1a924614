"""The slow twin of a stream: the specification in loops, lists and sets, one row at a time."""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from polarbear import Stream, View
from polarbear.base.arrays import Ints

Labels = dict[int, frozenset[str]]


def labels(view: View) -> Labels:
    """A view as row number → names of its labels."""
    return {
        int(row): frozenset(name for name, true in zip(view.classes, line, strict=True) if true)
        for row, line in zip(view.rows, view.targets, strict=True)
    }


class Twin:
    """What a stream should give, as row number → label names."""

    def __init__(self, stream: Stream) -> None:
        hierarchy = stream.hierarchy
        self.rule = stream.rule
        self.tasks = stream.schedule.tasks
        self.up: dict[str, str | None] = {
            name: hierarchy.names[parent] if parent >= 0 else None
            for name, parent in zip(hierarchy.names, hierarchy.parents, strict=True)
        }
        self.train_leaf = [hierarchy.names[i] if i >= 0 else None for i in stream.train_leaf]
        self.test_leaf = [hierarchy.names[i] if i >= 0 else None for i in stream.test_leaf]
        self.pools = self._pools(stream.file_order)
        self.equal = {split: self._most_for_all(split) for split in self.pools if self.rule.equal}

    def path(self, leaf: str | None) -> list[str]:
        """The labels of an image, from its leaf up."""
        path = []
        while leaf is not None:
            path.append(leaf)
            leaf = self.up[leaf]
        return path

    def leaves_below(self, name: str) -> list[str]:
        inner = set(self.up.values())
        return [leaf for leaf in self.up if leaf not in inner and name in self.path(leaf)]

    def _pools(self, file_order: Ints | None) -> dict[str, dict[str, list[int]]]:
        """Split → leaf → its rows in file order."""
        order = list(range(len(self.train_leaf)) if file_order is None else file_order)
        if self.rule.shuffle_seed is not None:
            mixed = np.random.default_rng(self.rule.shuffle_seed).permutation(len(order))
            order = [order[i] for i in mixed]
        pools: dict[str, dict[str, list[int]]] = {"valid": {}, "post_valid": {}, "train": {}}
        for leaf in self.up:
            rows = [int(row) for row in order if self.train_leaf[row] == leaf]
            first = int(self.rule.valid * len(rows))
            second = first + int(self.rule.post_valid * len(rows))
            pools["valid"][leaf] = rows[:first]
            pools["post_valid"][leaf] = rows[first:second]
            pools["train"][leaf] = rows[second:]
        return pools

    def _most_for_all(self, split: str) -> int:
        """How many rows every class can have when no row serves two."""
        paths = {leaf: self.path(leaf) for leaf in self.up if self.leaves_below(leaf) == [leaf]}
        below = {name: len(self.leaves_below(name)) for name in self.up}
        n = 0
        while all(
            sum(math.ceil((n + 1) / below[name]) for name in path) <= len(self.pools[split][leaf])
            for leaf, path in paths.items()
        ):
            n += 1
        return n

    def _equal_rows(self, name: str, split: str) -> list[int]:
        n, leaves = self.equal[split], self.leaves_below(name)
        if leaves == [name]:
            return self.pools[split][name][::-1][:n][::-1]
        start = sum(math.ceil(n / len(self.leaves_below(up))) for up in self.path(name)[1:])
        found = []
        for place, leaf in enumerate(leaves):
            length = len(range(place, n, len(leaves)))  # one row a leaf, in turns, until n are had
            found += self.pools[split][leaf][start : start + length]
        return found

    def class_rows(self, name: str, split: str) -> list[int]:
        """The rows a class trains on, or is validated on in its task."""
        if self.rule.equal:
            return self._equal_rows(name, split)
        leaves = self.leaves_below(name)
        if leaves == [name]:
            rows = self.pools[split][name]
            kept = len(rows) if self.up[name] is None else int(self.rule.subclass * len(rows))
            return rows[len(rows) - kept :]
        share = self.rule.superclass
        if len(leaves) > self.rule.cap:
            share = self.rule.cap / len(leaves) * share
        found = []
        for leaf in leaves:
            rows = self.pools[split][leaf]
            length = int(share * len(rows))
            steps_down = len(self.path(name)) - 1
            start = int(steps_down * self.rule.superclass / 2 * len(rows))
            start = min(start, len(rows) - length)
            found += rows[start : start + length]
        return found

    def incomplete(self, split: str, task: int) -> Labels:
        """In-task rows with only the labels of that task."""
        rows = [row for name in self.tasks[task] for row in self.class_rows(name, split)]
        return self._labelled(rows, self.train_leaf, self.tasks[task])

    def complete(self, split: str, after: int, tasks: Iterable[int]) -> Labels:
        """Rows of some tasks with every label seen by now."""
        seen = [name for task in self.tasks[: after + 1] for name in task]
        wanted = [name for task in tasks for name in self.tasks[task]]
        if split in ("train", "valid"):
            rows = [row for name in wanted for row in self.class_rows(name, split)]
            return self._labelled(rows, self.train_leaf, seen)
        leaf = self.test_leaf if split == "test" else self.train_leaf
        pool = (
            range(len(leaf))
            if split == "test"
            else [row for rows in self.pools[split].values() for row in rows]
        )
        rows = [row for row in pool if set(self.path(leaf[row])) & set(wanted)]
        return self._labelled(rows, leaf, seen)

    def _labelled(
        self, rows: Iterable[int], leaf: Sequence[str | None], classes: Iterable[str]
    ) -> Labels:
        return {row: frozenset(self.path(leaf[row])) & frozenset(classes) for row in rows}
