"""Hierarchies: any forest, its closure, its files, and what is refused."""

import dataclasses
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from polarbear import Hierarchy
from polarbear.base.errors import HierarchyError, PolarbearError, UnknownNameError
from strategies import hierarchies, thorough

ANIMALS: dict[str, Any] = {
    "animal": {"bear": ["polar bear", "brown bear"], "bird": {"owl": []}},
    "vehicle": ["bus"],
}


def up(hierarchy: Hierarchy, name: str) -> list[str]:
    """The class and everything above it, by hand."""
    number = hierarchy.names.index(name)
    path = []
    while number >= 0:
        path.append(hierarchy.names[number])
        number = hierarchy.parents[number]
    return path


@given(hierarchies())
@thorough
def test_closure_depth_and_leaves_are_what_walking_up_gives(hierarchy: Hierarchy) -> None:
    inner = {parent for parent in hierarchy.parents if parent >= 0}
    for i, name in enumerate(hierarchy.names):
        above = set(up(hierarchy, name))
        assert {hierarchy.names[j] for j in np.flatnonzero(hierarchy.closure[i])} == above
        assert hierarchy.labels_of(name) == tuple(reversed(up(hierarchy, name)))
        assert hierarchy.depth[i] == len(above) - 1
        assert hierarchy.is_leaf[i] == (i not in inner)
        below = [leaf for leaf in hierarchy.leaves if name in up(hierarchy, leaf)]
        assert hierarchy.leaf_counts[i] == len(below)
        assert hierarchy.index(name) == hierarchy.number[name] == i
        assert hierarchy.parent(name) == [*up(hierarchy, name), None][1]
    assert {*hierarchy.leaves, *hierarchy.superclasses} == set(hierarchy.names)
    assert not set(hierarchy.leaves) & set(hierarchy.superclasses)
    assert len(hierarchy) == len(hierarchy.names)


@given(hierarchies())
@thorough
def test_children_and_parent_are_inverse(hierarchy: Hierarchy) -> None:
    for name in hierarchy.names:
        assert all(hierarchy.parent(child) == name for child in hierarchy.children(name))
        parent = hierarchy.parent(name)
        assert parent is None or name in hierarchy.children(parent)


@given(hierarchies())
@thorough
def test_parents_give_the_same_forest_back(hierarchy: Hierarchy) -> None:
    parents = {name: hierarchy.parent(name) for name in hierarchy.names}
    again = Hierarchy.from_parents(parents)
    assert {name: again.parent(name) for name in again.names} == parents


def test_children_of_any_depth() -> None:
    hierarchy = Hierarchy.from_children(ANIMALS, alone=["lamp"])
    assert hierarchy.labels_of("polar bear") == ("animal", "bear", "polar bear")
    assert hierarchy.labels_of("owl") == ("animal", "bird", "owl")
    assert hierarchy.superclasses == ("animal", "bear", "bird", "vehicle")
    assert hierarchy.leaves == ("polar bear", "brown bear", "owl", "bus", "lamp")
    assert hierarchy.depth.tolist() == [0, 1, 2, 2, 1, 2, 0, 1, 0]


def test_a_parent_needs_no_line_of_its_own() -> None:
    hierarchy = Hierarchy.from_parents([("polar bear", "bear"), ("lamp", None)])
    assert hierarchy.names == ("bear", "polar bear", "lamp")
    assert hierarchy.parents == (-1, 0, -1)


def test_a_childs_line_may_come_before_its_parents() -> None:
    hierarchy = Hierarchy.from_parents([("c", "b"), ("b", "a")])
    assert hierarchy.labels_of("c") == ("a", "b", "c")


def test_titles_are_for_people() -> None:
    hierarchy = Hierarchy.flat(["n02134084", "lawn_mower"], {"n02134084": "ice bear"})
    assert hierarchy.title("n02134084") == "ice bear"
    assert hierarchy.title("lawn_mower") == "lawn mower"


def test_equal_forests_are_equal_whatever_their_titles() -> None:
    plain, titled = Hierarchy.flat(["a", "b"]), Hierarchy.flat(["a", "b"], {"a": "A"})
    assert plain == titled
    assert hash(plain) == hash(titled)
    assert plain != Hierarchy.from_parents([("b", "a")])


def test_nothing_can_be_changed() -> None:
    hierarchy = Hierarchy.from_children(ANIMALS)
    with pytest.raises(dataclasses.FrozenInstanceError):
        hierarchy.names = ()  # type: ignore[misc]
    for name in ("parent_array", "depth", "closure", "is_leaf", "leaf_counts"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(hierarchy, name)[0] = 0


def test_a_pickle_of_ours_keeps_it_whole() -> None:
    hierarchy = Hierarchy.from_children(ANIMALS, titles={"bus": "omnibus"})
    again = pickle.loads(pickle.dumps(hierarchy))
    assert again == hierarchy
    assert again.title("bus") == "omnibus"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Hierarchy((), ()), "at least one class; none was given"),
        (lambda: Hierarchy.flat([]), "at least one class"),
        (lambda: Hierarchy(("a", "b"), (-1,)), "2 names but 1 parents: give one each"),
        (lambda: Hierarchy(("a", "b", "a"), (-1, -1, -1)), "class 'a' is doubled"),
        (lambda: Hierarchy(("a", ""), (-1, -1)), "non-empty text, not ''"),
        (lambda: Hierarchy.flat(["a", "  "]), "non-empty text, not '  '"),
        (lambda: Hierarchy.flat(["a", None]), "non-empty text, not None"),  # type: ignore[list-item]
        (lambda: Hierarchy.flat(["a", ["b"]]), r"non-empty text, not \['b'\]"),  # type: ignore[list-item]
        (lambda: Hierarchy.flat("bear"), "a list of classes is needed, not 'bear'"),
        (lambda: Hierarchy.from_parents([("a", 3)]), "non-empty text, not 3"),  # type: ignore[list-item]
        (
            lambda: Hierarchy(("a", "b"), (-1, 2)),
            r"class 'b' has parent number 2; valid: -1 \(none\) to 1",
        ),
        (lambda: Hierarchy(("a", "b"), (-2, -1)), "class 'a' has parent number -2"),
        (lambda: Hierarchy(("a",), (0,)), "a cycle: a → a. A class cannot lie above itself"),
        (
            lambda: Hierarchy.from_parents({"a": "b", "b": "c", "c": "b"}),
            "a cycle: b → c → b",
        ),
        (
            lambda: Hierarchy.from_children({"bear": ["polar bear"], "white": ["polar bear"]}),
            "'polar bear' is doubled: under 'bear' and under 'white'.*a name of its own",
        ),
        (
            lambda: Hierarchy.from_children({"bear": ["lamp"]}, alone=["lamp"]),
            "'lamp' is doubled: under 'bear' and under 'nothing'",
        ),
        (
            lambda: Hierarchy.from_children({"bear": "polar bear"}),
            "below 'bear': a list of classes is needed, not 'polar bear'",
        ),
        (lambda: Hierarchy.from_children({"bear": 3}), "below 'bear'.*not 3"),
        (lambda: Hierarchy.from_children({}, alone="lamp"), "alone.*not 'lamp'"),
    ],
)
def test_what_is_no_forest_is_refused(make: Callable[[], Hierarchy], message: str) -> None:
    with pytest.raises(HierarchyError, match=message):
        make()


@given(hierarchies(most=8))
@thorough
def test_every_circle_is_found_and_shown(hierarchy: Hierarchy) -> None:
    """Hang each root below one of its own leaves: now the walk up never ends."""
    for root in (i for i, parent in enumerate(hierarchy.parents) if parent < 0):
        leaf = int(np.flatnonzero(hierarchy.closure[:, root] & hierarchy.is_leaf)[0])
        parents = list(hierarchy.parents)
        parents[root] = leaf
        with pytest.raises(HierarchyError, match="a cycle: ") as caught:
            Hierarchy(hierarchy.names, tuple(parents))
        circle = str(caught.value).partition("a cycle: ")[2].partition(". A class")[0]
        shown = circle.split(" → ")
        assert shown[0] == shown[-1]
        assert set(shown) == set(hierarchy.labels_of(hierarchy.names[leaf]))


def test_a_wrong_class_gets_the_nearest_name() -> None:
    hierarchy = Hierarchy.from_children(ANIMALS)
    for ask in (hierarchy.index, hierarchy.parent, hierarchy.children, hierarchy.labels_of):
        with pytest.raises(UnknownNameError, match="'polarbear': did you mean 'polar bear'"):
            ask("polarbear")


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_toml_of_three_levels(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "animals.toml",
        """
        alone = ["lamp"]
        [tree]
        vehicle = ["bus"]
        [tree.animal]
        bear = ["polar bear", "brown bear"]
        [tree.animal.bird]
        owl = []
        [titles]
        bus = "Bus"
        """,
    )
    hierarchy = Hierarchy.read(path)
    expected = Hierarchy.from_children(ANIMALS, alone=["lamp"])
    assert {n: hierarchy.parent(n) for n in hierarchy.names} == {
        n: expected.parent(n) for n in expected.names
    }
    assert hierarchy.title("bus") == "Bus"
    assert Hierarchy.read(str(path)) == hierarchy


CSV = "class,parent,title\npolar bear,bear,ice bear\nbear,animal,\nanimal,,\nlamp,,\n"


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(CSV, id="plain"),
        pytest.param("\ufeff" + CSV, id="byte order mark of a spreadsheet"),
        pytest.param(CSV.replace("\n", "\r\n"), id="Windows line ends"),
        pytest.param(CSV.replace(",", " , "), id="blanks around commas"),
        pytest.param(CSV.replace("\n", "\n\n"), id="empty lines"),
    ],
)
def test_csv(tmp_path: Path, content: str) -> None:
    hierarchy = Hierarchy.read(write(tmp_path, "bears.csv", content))
    assert hierarchy.labels_of("polar bear") == ("animal", "bear", "polar bear")
    assert hierarchy.leaves == ("polar bear", "lamp")
    assert hierarchy.title("polar bear") == "ice bear"
    assert hierarchy.title("bear") == "bear"


def test_csv_needs_no_titles_and_takes_columns_in_any_order(tmp_path: Path) -> None:
    path = write(tmp_path, "bears.csv", 'parent,class\nbear,polar bear\nbear,"bear, brown"\n')
    assert Hierarchy.read(path).children("bear") == ("polar bear", "bear, brown")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.toml", "tree = [", "cannot be read as TOML"),
        ("a.toml", "alone = ['a']\nalone = ['b']", "cannot be read as TOML: Cannot overwrite"),
        ("a.toml", b"alone = ['\xff']", "codec can't decode"),
        ("a.toml", "", "at least one class"),
        ("a.toml", "alone = 'lamp'", "alone: a list of classes is needed, not 'lamp'"),
        ("a.toml", "alone = 3", "alone: a list of classes is needed, not 3"),
        ("a.toml", "alone = [3]", "non-empty text, not 3"),
        ("a.toml", "tree = ['a']", r"tree must be a table, \[tree\], not \['a'\]"),
        ("a.toml", "titles = 'a'\nalone = ['a']", "titles must be a table"),
        ("a.toml", "[tree]\na = 'b'", "below 'a': a list of classes is needed, not 'b'"),
        ("a.toml", "[tree]\na = [['b']]", r"non-empty text, not \['b'\]"),
        ("a.toml", "[tree]\na = ['b']\nc = ['b']", "'b' is doubled: under 'a' and under 'c'"),
        ("a.toml", "[tree]\na = ['a']", "'a' is doubled"),
        ("a.csv", "", "the first line must name the columns class,parent"),
        ("a.csv", "name,parent\na,b\n", "columns class,parent .* it is 'name,parent'"),
        ("a.csv", "class,parent\n", "at least one class"),
        ("a.csv", "class,parent\n,b\n", "non-empty text, not ''"),
        ("a.csv", "class,parent\na,b\na,c\n", "'a' is doubled: under 'b' and under 'c'"),
        ("a.csv", "class,parent\na,b\nb,a\n", "a cycle: b → a → b"),
        ("a.csv", "class,parent\na,b,c\n", "line 'a,b,c' has 3 columns, the first line 2"),
        ("a.csv", "class,parent\na\n", "line 'a' has 1 columns, the first line 2"),
        ("a.csv", b"class,parent\nb\xe4r,\n", "codec can't decode"),
        ("a.yaml", "a: b", "a hierarchy is a .toml or a .csv file, not '.yaml'"),
    ],
)
def test_a_bad_file_is_refused_by_name(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    path = write(tmp_path, name, content)
    with pytest.raises(HierarchyError, match=message) as caught:
        Hierarchy.read(path)
    assert str(path) in str(caught.value)


def test_an_unknown_key_gets_the_nearest(tmp_path: Path) -> None:
    path = write(tmp_path, "a.toml", "[title]\na = 'b'\n[tree]\na = ['c']")
    with pytest.raises(PolarbearError, match=r"unknown key in .*'title': did you mean 'titles'"):
        Hierarchy.read(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(HierarchyError, match=r"there is no file .*nowhere\.toml"):
        Hierarchy.read(tmp_path / "nowhere.toml")


def chain(levels: int) -> dict[str, str | None]:
    """Each class below the one before it, the lowest first."""
    return {f"c{i}": f"c{i - 1}" if i else None for i in reversed(range(levels))}


def test_hierarchies_have_at_most_a_hundred_levels(tmp_path: Path) -> None:
    assert Hierarchy.from_parents(chain(100)).depth.max() == 99
    for levels in (101, 5_000):
        with pytest.raises(HierarchyError, match="at most 100 levels"):
            Hierarchy.from_parents(chain(levels))
    nested: dict[str, Any] = {"leaf": []}
    for i in range(5_000):
        nested = {f"c{i}": nested}
    with pytest.raises(HierarchyError, match="at most 100 levels"):
        Hierarchy.from_children(nested)
    file = tmp_path / "tree.toml"
    file.write_text("[tree]\n" + ".".join(f"c{i}" for i in range(2_000)) + ' = ["leaf"]\n')
    with pytest.raises(HierarchyError, match=r"tree\.toml: .*at most 100 levels"):
        Hierarchy.read(file)


def test_a_long_cycle_is_found_and_cut_short() -> None:
    with pytest.raises(HierarchyError, match=r"a cycle: .* → … \(20000 classes\)") as refused:
        Hierarchy.from_parents(chain(20_000) | {"c0": "c19999"})
    assert len(str(refused.value)) < 500
