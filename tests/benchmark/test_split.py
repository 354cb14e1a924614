"""Splits: the shares of each leaf and of each class, against loops and lists."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarbear import Hierarchy, Schedule, SplitRule, Stream
from polarbear.base.arrays import Ints
from polarbear.base.errors import DataError
from polarbear.benchmark.split import LeafRows, class_rows, group_by_leaf
from strategies import hierarchies, leaf_vectors, quick, rules, streams, thorough
from twin import Twin

SPLITS = ("valid", "post_valid", "train")
LAMP = Hierarchy.flat(["lamp"])


def pool(grouped: LeafRows, split: str, leaf: int) -> list[int]:
    """A leaf's rows in a split, in file order."""
    begin, size = grouped.parts[split]
    start = grouped.start[leaf] + begin[leaf]
    rows: list[int] = grouped.rows[start : start + size[leaf]].tolist()
    return rows


def group(stream: Stream) -> LeafRows:
    return group_by_leaf(stream.train_leaf, stream.hierarchy, stream.rule, stream.file_order)


@given(streams())
@thorough
def test_pools_are_the_specifications(stream: Stream) -> None:
    grouped, twin = group(stream), Twin(stream)
    for number, name in enumerate(stream.hierarchy.names):
        for split in SPLITS:
            assert pool(grouped, split, number) == twin.pools[split][name]


@given(streams())
@thorough
def test_rows_of_every_class_are_the_specifications(stream: Stream) -> None:
    grouped, twin = group(stream), Twin(stream)
    for name in stream.hierarchy.names:
        for split in ("valid", "train"):
            parts = class_rows(name, split, grouped, stream.rule)
            rows = [int(row) for part in parts for row in part]
            assert sorted(rows) == sorted(twin.class_rows(name, split))
            assert len(set(rows)) == len(rows)


@given(streams())
@thorough
def test_every_row_is_in_one_pool_once(stream: Stream) -> None:
    grouped = group(stream)
    found = [
        row
        for split in SPLITS
        for leaf in range(len(stream.hierarchy))
        for row in pool(grouped, split, leaf)
    ]
    assert sorted(found) == np.flatnonzero(stream.train_leaf >= 0).tolist()


@st.composite
def vectors_and_rules(draw: st.DrawFn, shuffled: bool) -> tuple[Ints, SplitRule, Hierarchy]:
    hierarchy = draw(hierarchies())
    return draw(leaf_vectors(hierarchy)), draw(rules(shuffled)), hierarchy


@given(vectors_and_rules(shuffled=True))
@quick
def test_a_shuffle_keeps_counts_and_leaves(case: tuple[Ints, SplitRule, Hierarchy]) -> None:
    leaf, rule, hierarchy = case
    mixed = group_by_leaf(leaf, hierarchy, rule)
    plain = group_by_leaf(leaf, hierarchy, dataclasses.replace(rule, shuffle_seed=None))
    again = group_by_leaf(leaf, hierarchy, rule)
    assert mixed.rows.tolist() == again.rows.tolist()
    for name in ("start", "valid", "post"):
        assert getattr(mixed, name).tolist() == getattr(plain, name).tolist()
    assert leaf[mixed.rows].tolist() == leaf[plain.rows].tolist()
    assert sorted(mixed.rows) == sorted(plain.rows)


def test_shuffles_mix_and_differ_by_seed() -> None:
    leaf = np.zeros(100, np.intp)
    rows = [
        group_by_leaf(leaf, LAMP, SplitRule(shuffle_seed=s)).rows.tolist() for s in (None, 0, 1)
    ]
    assert rows[0] == list(range(100))
    assert len({tuple(r) for r in rows}) == 3


def test_file_order_decides_who_is_first() -> None:
    grouped = group_by_leaf(np.zeros(10, np.intp), LAMP, SplitRule(), np.arange(10)[::-1])
    assert pool(grouped, "valid", 0) == [9]
    assert pool(grouped, "post_valid", 0) == [8]
    assert pool(grouped, "train", 0) == [7, 6, 5, 4, 3, 2, 1, 0]


def counts(name: str, hierarchy: Hierarchy, n: int, rule: SplitRule) -> list[list[int]]:
    """Positions inside each leaf's training rows that a class gets, when each leaf has n."""
    leaf = np.repeat(np.flatnonzero(hierarchy.is_leaf), n)
    grouped = group_by_leaf(leaf, hierarchy, rule)
    return [(p % n).tolist() for p in class_rows(name, "train", grouped, rule)]


def test_superclass_takes_the_first_rows_and_subclass_the_last() -> None:
    h = Hierarchy.from_children({"bear": ["polar bear", "brown bear"]}, alone=["lamp"])
    rule = SplitRule(valid=0, post_valid=0)
    assert counts("bear", h, 10, rule) == [[0, 1, 2, 3], [0, 1, 2, 3]]
    assert counts("polar bear", h, 10, rule) == [[2, 3, 4, 5, 6, 7, 8, 9]]
    assert counts("lamp", h, 10, rule) == [list(range(10))]


@pytest.mark.parametrize(
    ("subclasses", "rows"),
    [(7, 400), (8, 400), (9, 355), (16, 200), (17, 188), (118, 27)],
)
def test_a_superclass_of_more_than_the_cap_takes_less_of_each(subclasses: int, rows: int) -> None:
    h = Hierarchy.from_children({"dog": [f"dog {i}" for i in range(subclasses)]})
    assert rows == int(0.4 * 8 / max(8, subclasses) * 1000)
    rule = SplitRule(valid=0, post_valid=0)
    assert [len(part) for part in counts("dog", h, 1000, rule)] == [rows] * subclasses
    assert len(counts("dog 0", h, 1000, rule)[0]) == 800


def test_above_sixteen_subclasses_the_shares_no_longer_meet() -> None:
    rule = SplitRule(valid=0, post_valid=0)

    def shared(subclasses: int) -> int:
        h = Hierarchy.from_children({"dog": [f"dog {i}" for i in range(subclasses)]})
        return len({*counts("dog", h, 1000, rule)[0]} & {*counts("dog 0", h, 1000, rule)[0]})

    assert shared(8) == 200
    assert shared(15) > 0
    assert shared(17) == 0


@pytest.mark.parametrize(
    ("rows", "superclass", "subclass"),
    [(0, 0, 0), (1, 0, 0), (2, 0, 1), (3, 1, 2), (5, 2, 4)],
)
def test_a_share_that_rounds_to_nothing_gives_nothing(
    rows: int, superclass: int, subclass: int
) -> None:
    h = Hierarchy.from_children({"bear": ["polar bear"]})
    rule = SplitRule(valid=0, post_valid=0)
    assert [len(part) for part in counts("bear", h, rows, rule)] == [superclass]
    assert [len(part) for part in counts("polar bear", h, rows, rule)] == [subclass]


def test_three_levels_each_share_half_with_the_next() -> None:
    h = Hierarchy.from_children({"animal": {"bear": ["polar bear"]}})
    rule = SplitRule(valid=0, post_valid=0)
    assert counts("animal", h, 10, rule) == [[0, 1, 2, 3]]
    assert counts("bear", h, 10, rule) == [[2, 3, 4, 5]]
    assert counts("polar bear", h, 10, rule) == [[2, 3, 4, 5, 6, 7, 8, 9]]


def test_a_very_deep_level_stays_inside_its_leaf() -> None:
    names = list("abcdefgh")
    h = Hierarchy.from_parents(list(zip(names, [None, *names], strict=False)))
    rule = SplitRule(valid=0, post_valid=0)
    assert counts("g", h, 10, rule) == [[6, 7, 8, 9]]


def test_equal_parts_share_no_row_and_every_class_has_as_many() -> None:
    h = Hierarchy.from_children({"bear": ["polar bear", "brown bear"]}, alone=["lamp"])
    rule = SplitRule(valid=0, post_valid=0, equal=True)
    assert counts("bear", h, 9, rule) == [[0, 1, 2], [0, 1, 2]]
    assert counts("polar bear", h, 9, rule) == counts("lamp", h, 9, rule) == [[*range(3, 9)]]
    # Of 8 rows a leaf keeps 5, so that the bear's 5 are 3 of the one and 2 of the other.
    assert counts("bear", h, 8, rule) == [[0, 1, 2], [0, 1]]
    assert counts("brown bear", h, 8, rule) == counts("lamp", h, 8, rule) == [[*range(3, 8)]]


def test_equal_parts_of_three_levels() -> None:
    h = Hierarchy.from_children({"animal": {"bear": ["polar bear", "brown bear"], "cat": ["lion"]}})
    rule = SplitRule(valid=0, post_valid=0, equal=True)
    assert counts("animal", h, 14, rule) == [[0, 1], [0, 1], [0, 1]]
    assert counts("bear", h, 14, rule) == [[2, 3, 4], [2, 3, 4]]
    assert counts("cat", h, 14, rule) == [[2, 3, 4, 5, 6, 7]]
    assert counts("lion", h, 14, rule) == counts("polar bear", h, 14, rule) == [[*range(8, 14)]]


@given(streams(everything=True))
@thorough
def test_equal_parts_of_any_stream(stream: Stream) -> None:
    rule = dataclasses.replace(stream.rule, equal=True)
    grouped = group_by_leaf(stream.train_leaf, stream.hierarchy, rule, stream.file_order)
    for split in ("valid", "train"):
        rows = [
            [int(row) for part in class_rows(name, split, grouped, rule) for row in part]
            for name in stream.hierarchy.names
        ]
        assert len({len(own) for own in rows}) == 1
        every = [row for own in rows for row in own]
        assert len(set(every)) == len(every)


def test_cifars_leaf_has_50_50_400() -> None:
    grouped = group_by_leaf(np.zeros(500, np.intp), LAMP, SplitRule())
    assert [int(grouped.parts[split][1][0]) for split in SPLITS] == [50, 50, 400]


def test_more_classes_than_sixteen_bits_hold() -> None:
    leaf = np.array([40_000, 3, 40_000, 39_999])
    grouped = group_by_leaf(leaf, Hierarchy.flat(map(str, range(40_001))), SplitRule())
    assert grouped.rows.tolist() == [1, 3, 0, 2]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"valid": 1.5}, "valid is a share of the rows, from 0 to 1, not 1.5"),
        ({"post_valid": -0.1}, "post_valid is a share"),
        ({"superclass": float("nan")}, "superclass is a share.*not nan"),
        ({"subclass": 80}, "subclass is a share.*not 80"),
        ({"valid": 0.6, "post_valid": 0.5}, r"valid \+ post_valid is 1.1, more than all rows"),
        ({"cap": 0}, "cap counts subclasses, from 1; it is 0"),
        ({"shuffle_seed": -1}, "shuffle_seed is a whole number from 0, not -1"),
    ],
)
def test_shares_that_are_none_are_refused(changed: dict[str, float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        SplitRule(**changed)  # type: ignore[arg-type]


def test_a_rule_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        SplitRule().cap = 9  # type: ignore[misc]


def test_the_task_lists_use_the_rule_they_were_given() -> None:
    h = Hierarchy.from_children({"bear": ["polar bear"]})
    schedule = Schedule.of([["bear"], ["polar bear"]])
    stream = Stream.build(h, schedule, [1] * 10, [], rule=SplitRule(0.2, 0.3, 1.0, 0.2))
    assert stream[0].train.rows.tolist() == [5, 6, 7, 8, 9]
    assert stream[1].train.rows.tolist() == [9]
    assert stream[0].valid.rows.tolist() == [0, 1]
    assert stream.post_valid(after=0).rows.tolist() == [2, 3, 4]
