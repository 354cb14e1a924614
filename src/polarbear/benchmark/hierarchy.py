"""Class names and their parents: a forest."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np

from polarbear.base.arrays import Bools, Ints, frozen
from polarbear.base.errors import HierarchyError, unknown_name
from polarbear.base.guarded import naming, read_csv, read_toml
from polarbear.base.names import readable

#: Levels of a hierarchy; WordNet, the deepest that images are labelled with, has 20. What is done
#: for each class with all above it takes longer the more there are.
DEEPEST = 100


@dataclass(frozen=True)
class Hierarchy:
    """Which classes there are and which class each belongs to.

    ``names[i]`` is a class, ``parents[i]`` the number of the class above it, or -1 for none.
    Images carry leaves: classes without children. A class has at most one parent, so that
    "which images does it get" has one answer.

    >>> h = Hierarchy.from_children({"bear": ["polar bear", "brown bear"]}, alone=["lamp"])
    >>> h.labels_of("polar bear")
    ('bear', 'polar bear')
    >>> h.superclasses
    ('bear',)
    """

    names: tuple[str, ...]
    parents: tuple[int, ...]
    titles: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __post_init__(self) -> None:
        """Refuse what is not a forest."""
        if not self.names:
            raise HierarchyError("a hierarchy needs at least one class; none was given")
        if len(self.names) != len(self.parents):
            raise HierarchyError(
                f"{len(self.names)} names but {len(self.parents)} parents: give one each"
            )
        seen: set[str] = set()
        for name in self.names:
            _refuse_bad_name(name)
            if name in seen:
                raise HierarchyError(f"class {name!r} is doubled: name every class once")
            seen.add(name)
        _refuse_bad_parents(self.names, self.parents)
        for name, title in self.titles.items():
            if not isinstance(title, str):
                raise HierarchyError(f"the title of {name!r} must be a text, not {title!r}")

    @classmethod
    def from_parents(
        cls,
        parents: Mapping[str, str | None] | Iterable[tuple[str, str | None]],
        titles: Mapping[str, str] | None = None,
    ) -> "Hierarchy":
        """Build from (class, its parent or None); a parent need not have a line of its own."""
        given: dict[str, str | None] = {}
        number: dict[str, int] = {}
        for child, up in parents.items() if isinstance(parents, Mapping) else parents:
            for name in (up or child, child):
                _refuse_bad_name(name)
                number.setdefault(name, len(number))
            if child in given:
                raise HierarchyError(
                    f"class {child!r} is doubled: under {given[child] or 'nothing'!r} and under "
                    f"{up or 'nothing'!r}. A class has one parent, so that it is clear which "
                    "images it gets; give the second one a name of its own"
                )
            given[child] = up
        up_of = tuple(number[up] if (up := given.get(name)) else -1 for name in number)
        return cls(tuple(number), up_of, titles or {})

    @classmethod
    def from_children(
        cls,
        children: Mapping[str, Any],
        alone: Iterable[str] = (),
        titles: Mapping[str, str] | None = None,
    ) -> "Hierarchy":
        """Build from superclass → subclasses (a list, or a mapping for more levels)."""
        pairs = [*_walk(children, None), *((name, None) for name in _listed("alone", alone))]
        return cls.from_parents(pairs, titles)

    @classmethod
    def flat(cls, names: Iterable[str], titles: Mapping[str, str] | None = None) -> "Hierarchy":
        """Build classes without superclasses: plain class-incremental learning."""
        return cls.from_parents([(name, None) for name in _listed("flat", names)], titles)

    @classmethod
    def read(cls, path: str | Path) -> "Hierarchy":
        """Read a ``.toml`` file (``[tree]``, ``alone``, ``[titles]``) or a ``.csv`` (class,parent).

        TOML::

            alone = ["lamp"]
            [tree]
            bear = ["polar bear", "brown bear"]
        """
        path = Path(path)
        reader = {".toml": _from_toml, ".csv": _from_csv}.get(path.suffix.lower())
        if reader is None:
            raise HierarchyError(
                f"{path}: a hierarchy is a .toml or a .csv file, not {path.suffix!r}"
            )
        with naming(path, f"a hierarchy ({path.suffix})", HierarchyError, ""):
            return reader(path)

    def __len__(self) -> int:
        """Count the classes."""
        return len(self.names)

    @cached_property
    def number(self) -> dict[str, int]:
        """Class name → its number."""
        return {name: i for i, name in enumerate(self.names)}

    def index(self, name: str) -> int:
        """Return a class's number, or an error with the nearest name."""
        try:
            return self.number[name]
        except KeyError:
            raise unknown_name("class", name, self.names) from None

    def title(self, name: str) -> str:
        """Return a class's name as people write it: ``n02134084`` → ``ice bear``."""
        return readable(self.titles.get(name, name.replace("_", " ")))

    @cached_property
    def parent_array(self) -> Ints:
        """Parent numbers, -1 for none: (c,)."""
        return frozen(np.array(self.parents, dtype=np.intp))

    @cached_property
    def depth(self) -> Ints:
        """Steps from each class up to its root: (c,)."""
        return frozen(self.closure.sum(axis=1) - 1)

    @cached_property
    def closure(self) -> Bools:
        """Labels implied by each class: ``closure[i, j]`` if j is i or above i: (c, c)."""
        closure = np.eye(len(self), dtype=bool)
        up = self.parent_array.copy()
        while (rows := np.flatnonzero(up >= 0)).size:
            closure[rows, up[rows]] = True
            up[rows] = self.parent_array[up[rows]]
        return frozen(closure)

    @cached_property
    def is_leaf(self) -> Bools:
        """Whether nothing is below each class: (c,)."""
        leaf = np.ones(len(self), dtype=bool)
        leaf[self.parent_array[self.parent_array >= 0]] = False
        return frozen(leaf)

    @cached_property
    def leaf_counts(self) -> Ints:
        """Leaves at or below each class: (c,)."""
        return frozen(self.closure[self.is_leaf].sum(axis=0))

    @cached_property
    def leaves(self) -> tuple[str, ...]:
        """Classes that images carry."""
        return tuple(name for name, leaf in zip(self.names, self.is_leaf, strict=True) if leaf)

    @cached_property
    def superclasses(self) -> tuple[str, ...]:
        """Classes with others below them."""
        return tuple(name for name, leaf in zip(self.names, self.is_leaf, strict=True) if not leaf)

    def parent(self, name: str) -> str | None:
        """Return the class above, or None."""
        up = self.parents[self.index(name)]
        return None if up < 0 else self.names[up]

    def children(self, name: str) -> tuple[str, ...]:
        """Return the classes right below."""
        i = self.index(name)
        return tuple(n for n, up in zip(self.names, self.parents, strict=True) if up == i)

    def labels_of(self, leaf: str) -> tuple[str, ...]:
        """Return every label of an image of this class, from the top down."""
        path: list[str] = []
        up: str | None = leaf
        while up is not None:
            path.append(up)
            up = self.parent(up)
        return tuple(reversed(path))


def _refuse_bad_name(name: object) -> None:
    if not isinstance(name, str) or not name.strip():
        raise HierarchyError(f"a class name must be a non-empty text, not {name!r}")


def _refuse_bad_parents(names: tuple[str, ...], parents: tuple[int, ...]) -> None:
    for i, up in enumerate(parents):
        if not -1 <= up < len(names):
            raise HierarchyError(
                f"class {names[i]!r} has parent number {up}; valid: -1 (none) to {len(names) - 1}"
            )
    level = {-1: 0}
    try:
        for i in TopologicalSorter({i: [up] for i, up in enumerate(parents)}).static_order():
            if i >= 0:
                level[i] = level[parents[i]] + 1
    except CycleError as error:
        circle = [names[i] for i in error.args[1][:0:-1]]
        more = [f"… ({len(circle)} classes)"] if len(circle) > 20 else []
        shown = " → ".join([*circle[:20], *more, circle[0]])
        raise HierarchyError(f"a cycle: {shown}. A class cannot lie above itself") from None
    _refuse_too_deep(max(level.values()))


def _refuse_too_deep(levels: int) -> None:
    if levels > DEEPEST:
        raise HierarchyError(
            f"a hierarchy has at most {DEEPEST} levels, as an image has a label of each; this has "
            f"{levels} or more: is each class below the one before it by mistake?"
        )


def _walk(
    tree: Mapping[str, Any], up: str | None, level: int = 1
) -> Iterator[tuple[str, str | None]]:
    _refuse_too_deep(level)
    for name, below in tree.items():
        yield name, up
        if isinstance(below, Mapping):
            yield from _walk(below, name, level + 1)
        else:
            for child in _listed(f"below {name!r}", below):
                yield child, name


def _listed(where: str, names: Any) -> Iterable[str]:
    """Return the names, unless they are one text, which Python would take letter by letter."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise HierarchyError(f"{where}: a list of classes is needed, not {names!r}")
    return names


def _from_toml(path: Path) -> Hierarchy:
    content = read_toml(path, HierarchyError)
    for key in content:
        if key not in ("tree", "alone", "titles"):
            raise unknown_name(f"key in {path}", key, ("tree", "alone", "titles"))
    for key in ("tree", "titles"):
        if not isinstance(content.get(key, {}), Mapping):
            raise HierarchyError(f"{key} must be a table, [{key}], not {content[key]!r}")
    return Hierarchy.from_children(
        content.get("tree", {}), content.get("alone", ()), content.get("titles", {})
    )


def _from_csv(path: Path) -> Hierarchy:
    lines = read_csv(path, ("class", "parent"), "and title, if you like", HierarchyError)
    titles = {line["class"]: line["title"] for line in lines if line.get("title")}
    return Hierarchy.from_parents([(line["class"], line["parent"]) for line in lines], titles)
