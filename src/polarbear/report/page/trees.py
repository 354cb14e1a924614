"""What a page shows of the trees that methods infer: family by family, right, missing and wrong."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from polarbear.base.errors import PolarbearError
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.report.read.answers import known_hierarchy
from polarbear.report.read.groups import Runs
from polarbear.report.read.trees import Inferred, inferred


def tree_data(runs: Runs) -> list[dict[str, Any]]:
    """Return the tree of each method that infers one, ready for JSON; none is an empty list."""
    with suppress(PolarbearError):  # the benchmark is not here: nobody knows its true tree
        hierarchy = known_hierarchy(runs.benchmark)
        return [_tree(runs, one, hierarchy) for one in inferred(runs, hierarchy)]
    return []


def _tree(runs: Runs, tree: Inferred, hierarchy: Hierarchy) -> dict[str, Any]:
    parents = dict.fromkeys((*tree.true.values(), *tree.found.values()))
    ordered = sorted(parents, key=lambda name: (name not in tree.true.values(), name))
    return {
        "method": runs.names.index(tree.group.name),
        "order": tree.run.order,
        "after": tree.run.done[-1],
        "counts": [len(tree.true), tree.right, tree.wrong, tree.needless],
        "families": [_family(tree, parent, hierarchy) for parent in ordered],
    }


def _family(tree: Inferred, parent: str, hierarchy: Hierarchy) -> dict[str, Any]:
    """Return what is below a class and what was put there: titles, a family's own first."""
    own = [child for child in tree.seen if tree.true.get(child) == parent]
    put = [child for child in tree.seen if tree.found.get(child) == parent]

    def titles(names: Iterable[str]) -> list[str]:
        return sorted(hierarchy.title(name) for name in names)

    return {
        "name": hierarchy.title(parent),
        "right": titles(set(own) & set(put)),
        "missing": titles(set(own) - set(put)),
        "wrong": titles(set(put) - set(own)),
    }
