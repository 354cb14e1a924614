"""Streams: every row and label against the slow twin, and the promises a learner relies on."""

import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarbear import Hierarchy, Schedule, SplitRule, Stream, View
from polarbear.base.errors import DataError, ScheduleError, UnknownNameError
from polarbear.benchmark.labels import leaf_numbers
from polarbear.benchmark.source import Source
from strategies import hierarchies, quick, schedules, streams, thorough
from twin import Twin, labels

EVALUATIONS = ("train", "valid", "post_valid", "test")

BEARS = Hierarchy.from_children(
    {"bear": ["polar bear", "brown bear"], "bird": ["owl"]}, alone=["lamp"]
)
ORDER = Schedule.of([["bear", "bird"], ["polar bear", "lamp"], ["owl", "brown bear"]])


def bears(**more: Any) -> Stream:
    leaves = ["polar bear", "brown bear", "owl", "lamp"]
    return Stream.build(BEARS, ORDER, leaves * 20, leaves * 2, **more)


def views(stream: Stream) -> list[View]:
    """Every view a stream can give."""
    found = [view for task in stream for view in (task.train, task.valid)]
    for split in EVALUATIONS:
        for after in range(len(stream)):
            tasks = (None, *range(after + 1))
            found += [getattr(stream, split)(after=after, task=task) for task in tasks]
    return found


# --- The slow twin ---------------------------------------------------------------------------


@given(streams())
@thorough
def test_every_task_is_the_specifications(stream: Stream) -> None:
    twin = Twin(stream)
    for index, task in enumerate(stream):
        assert task.index == index
        assert task.classes == stream.schedule.tasks[index]
        assert labels(task.train) == twin.incomplete("train", index)
        assert labels(task.valid) == twin.incomplete("valid", index)


@given(streams())
@thorough
def test_every_evaluation_is_the_specifications(stream: Stream) -> None:
    twin = Twin(stream)
    for split in EVALUATIONS:
        for after in range(len(stream)):
            view = getattr(stream, split)
            assert labels(view(after)) == twin.complete(split, after, range(after + 1))
            assert np.array_equal(view(after).label_counts, view(after).targets.sum(axis=0))
            for task in range(after + 1):
                assert labels(view(after, task)) == twin.complete(split, after, [task])


# --- Promises ---------------------------------------------------------------------------------


@given(streams())
@quick
def test_no_future_label_ever(stream: Stream) -> None:
    for after, task in enumerate(stream):
        seen = tuple(name for earlier in stream.schedule.tasks[: after + 1] for name in earlier)
        shown = [task.train, task.valid, stream.test(after), stream.post_valid(after)]
        for view in (*shown, stream.train(after), stream.valid(after), stream.test(after, 0)):
            assert view.classes == task.seen == seen
            assert view.targets.shape == (len(view), len(seen))


@given(streams())
@quick
def test_true_labels_lie_on_the_path_of_the_leaf(stream: Stream) -> None:
    for view in views(stream):
        leaf = stream.train_leaf if view.file == "train" else stream.test_leaf
        assert view.leaf.tolist() == leaf[view.rows].tolist()
        for number, names in zip(view.leaf, labels(view).values(), strict=True):
            assert names <= set(stream.hierarchy.labels_of(stream.hierarchy.names[number]))


@given(streams())
@quick
def test_incomplete_is_part_of_complete_and_only_of_this_task(stream: Stream) -> None:
    for index, task in enumerate(stream):
        for split in ("train", "valid"):
            some: View = getattr(task, split)
            full: View = getattr(stream, split)(after=index, task=index)
            assert some.rows.tolist() == full.rows.tolist()
            assert not (some.targets & ~full.targets).any()
            assert not some.targets[:, : task.new.start].any()
            assert (some.targets[:, task.new] == full.targets[:, task.new]).all()
            assert some.targets.any(axis=1).all()
        assert task.seen[task.new] == task.classes


@given(streams())
@quick
def test_the_union_of_all_tasks_is_joint(stream: Stream) -> None:
    joint = dataclasses.replace(stream, schedule=stream.schedule.joint())
    last = len(stream) - 1
    for split in ("train", "valid"):
        rows = set().union(*(getattr(task, split).rows.tolist() for task in stream))
        assert getattr(joint[0], split).rows.tolist() == sorted(rows)
        assert labels(getattr(joint[0], split)) == labels(getattr(stream, split)(after=last))
    for split in EVALUATIONS:
        assert labels(getattr(joint, split)(after=0)) == labels(getattr(stream, split)(after=last))


@given(streams(everything=True))
@quick
def test_splits_never_share_a_row(stream: Stream) -> None:
    last = len(stream) - 1
    rows = [
        row
        for split in ("train", "valid", "post_valid")
        for row in getattr(stream, split)(after=last).rows.tolist()
    ]
    assert len(set(rows)) == len(rows)
    assert set(rows) <= set(np.flatnonzero(stream.train_leaf >= 0).tolist())


@given(streams(everything=True))
@quick
def test_with_all_classes_every_evaluation_image_is_scored(stream: Stream) -> None:
    last = len(stream) - 1
    assert stream.test(last).rows.tolist() == np.flatnonzero(stream.test_leaf >= 0).tolist()
    assert stream.test(last).targets.sum(axis=1).tolist() == [
        stream.hierarchy.depth[leaf] + 1 for leaf in stream.test(last).leaf
    ]


@given(streams())
@quick
def test_rows_ascend_and_come_once(stream: Stream) -> None:
    for view in views(stream):
        assert (np.diff(view.rows) > 0).all()
        assert len(view) == len(view.rows) == len(view.leaf) == len(view.targets)


@given(streams())
@quick
def test_the_tasks_tests_make_up_the_union(stream: Stream) -> None:
    for split in EVALUATIONS:
        for after in range(len(stream)):
            union = labels(getattr(stream, split)(after))
            parts = [labels(getattr(stream, split)(after, task)) for task in range(after + 1)]
            for part in parts:
                assert part.items() <= union.items()
            assert set().union(*parts) == set(union)


@given(streams())
@quick
def test_labels_of_earlier_images_grow(stream: Stream) -> None:
    for split in EVALUATIONS:
        for task in range(len(stream)):
            for after in range(task, len(stream) - 1):
                now = getattr(stream, split)(after, task)
                later = getattr(stream, split)(after + 1, task)
                assert now.rows.tolist() == later.rows.tolist()
                kept = later.targets[:, : now.targets.shape[1]]
                assert (now.targets == kept).all()


@given(st.data())
@quick
def test_names_and_numbers_give_the_same_stream(data: st.DataObject) -> None:
    stream = data.draw(streams())
    known = [i for i in stream.train_leaf.tolist() if i >= 0]
    names = [stream.hierarchy.names[i] for i in known]
    schedule, hierarchy = stream.schedule, stream.hierarchy
    built = [
        Stream.build(hierarchy, schedule, leaf, [])
        for leaf in (known, np.array(known, np.int16), names, tuple(names), np.array(names, object))
    ]
    if names:
        built.append(Stream.build(hierarchy, schedule, np.array(names), []))
    for other in built:
        assert [labels(t.train) for t in other] == [labels(t.train) for t in built[0]]


@given(st.data())
@quick
def test_ignored_classes_leave_no_trace(data: st.DataObject) -> None:
    hierarchy = data.draw(hierarchies())
    names = data.draw(st.lists(st.sampled_from([*hierarchy.leaves, "left out"]), max_size=40))
    schedule = data.draw(schedules(hierarchy))
    stream = Stream.build(hierarchy, schedule, names, names, ignore=["left out"])
    shown = {row for v in views(stream) for row in v.rows.tolist()}
    assert all(names[row] != "left out" for row in shown)
    assert stream.train_leaf.tolist() == [hierarchy.number.get(name, -1) for name in names]


# --- Small, by hand ---------------------------------------------------------------------------


def test_evaluation_labels_by_hand() -> None:
    stream = bears()
    assert labels(stream.test(after=0)) == {
        row: {"bear"} if row % 4 < 2 else {"bird"} for row in (0, 1, 2, 4, 5, 6)
    }
    assert labels(stream.test(after=1, task=0))[0] == {"bear", "polar bear"}
    assert labels(stream.test(after=1, task=0))[1] == {"bear"}
    assert labels(stream.test(after=2, task=0))[1] == {"bear", "brown bear"}
    assert sorted(labels(stream.test(after=2, task=1))) == [0, 3, 4, 7]
    assert labels(stream[1].train).keys() >= {76}
    assert labels(stream[1].train)[76] == {"polar bear"}
    assert labels(stream.train(after=1))[76] == {"bear", "polar bear"}


def test_a_subclass_may_come_before_its_superclass_or_with_it() -> None:
    leaf = ["polar bear"] * 10
    rule = SplitRule(0, 0)
    late = Stream.build(BEARS, Schedule.of([["polar bear"], ["bear"]]), leaf, leaf, rule=rule)
    assert labels(late.test(after=0))[0] == {"polar bear"}
    assert labels(late.test(after=1, task=0))[0] == {"polar bear", "bear"}
    assert late[1].train.targets.tolist() == [[False, True]] * 4
    same = Stream.build(BEARS, Schedule.of([["polar bear", "bear"]]), leaf, leaf, rule=rule)
    assert same[0].train.targets.tolist() == [[True, True]] * 10


def test_a_stream_is_a_sequence() -> None:
    stream = bears()
    assert len(stream) == 3
    assert [task.index for task in stream] == [0, 1, 2]
    assert [task.index for task in stream[1:]] == [1, 2]
    assert [task.index for task in reversed(stream)] == [2, 1, 0]
    assert stream[-1].index == 2
    assert stream.classes == ORDER.classes


def test_empty_data_make_empty_views() -> None:
    stream = Stream.build(BEARS, ORDER, [], np.array([], dtype="<U5"))
    for view in views(stream):
        assert view.rows.shape == view.leaf.shape == (0,)
        assert view.targets.shape == (0, len(view.classes))
        assert view.rows.dtype == np.intp


def test_nothing_can_be_changed() -> None:
    mine = np.array([2, 4] * 20)
    order = np.arange(40)[::-1].copy()
    stream = Stream(BEARS, ORDER, mine, mine, file_order=order)
    before = [labels(view) for view in views(stream)]
    mine[:] = 5
    order[:] = 0
    assert [labels(view) for view in views(stream)] == before
    for name in ("train_leaf", "test_leaf", "file_order"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(stream, name)[0] = 0
    for view in views(stream):
        for array in (view.rows, view.leaf, view.label_table, view.targets):
            assert not array.flags.writeable
    for thing, field in ((stream, "order"), (stream[0], "index"), (stream[0].train, "rows")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(thing, field, 1)


def test_a_shuffle_of_nothing_is_nothing() -> None:
    """Frozen arrays of no rows once slipped past NumPy's own copy before shuffling."""
    nothing = np.empty(0, np.intp)
    stream = Stream(BEARS, ORDER, nothing, nothing, SplitRule(shuffle_seed=0), file_order=nothing)
    assert len(stream.train(after=2)) == 0


def test_building_leaves_the_callers_arrays_alone() -> None:
    for mine in (np.array([2, 4] * 20), np.array(["owl", "lamp"] * 20)):
        stream = Stream.build(BEARS, ORDER, mine, mine)
        assert mine.flags.writeable
        assert not stream.train_leaf.flags.writeable


def test_a_stream_goes_through_a_pickle_of_ours() -> None:
    stream = bears(name="bears", order=3)
    again = pickle.loads(pickle.dumps(stream))
    assert [labels(v) for v in views(again)] == [labels(v) for v in views(stream)]
    assert (again.name, again.order) == ("bears", 3)


# --- Images -----------------------------------------------------------------------------------


def source(leaves: tuple[str, ...] = ("owl", "lamp"), **more: Any) -> Source:
    random = np.random.default_rng(0)
    pixels = random.integers(0, 256, (2, 30, 4, 4, 3), dtype=np.uint8)
    leaf = random.integers(0, 2, (2, 30))
    return Source(leaves, pixels[0], leaf[0], pixels[1], leaf[1], **more)


def test_a_source_brings_its_own_class_numbers_and_its_images() -> None:
    data = source()
    stream = Stream.from_source(data, BEARS, ORDER, name="mine")
    names = [data.leaves[i] for i in data.train_leaf]
    assert [BEARS.names[i] for i in stream.train_leaf] == names
    rows = stream[0].train.rows
    assert (stream.images("train")[rows] == data.train[rows]).all()
    assert stream.images("test") is data.test
    assert stream.name == "mine"


def test_a_sources_file_order_decides_the_split() -> None:
    order = np.arange(30)[::-1].copy()
    plain = Stream.from_source(source(), BEARS, ORDER)
    turned = Stream.from_source(source(file_order=order), BEARS, ORDER)
    assert plain.valid(after=2).rows.tolist() != turned.valid(after=2).rows.tolist()
    assert labels(turned.train(after=2)) == Twin(turned).complete("train", 2, range(3))


def test_a_sources_unknown_leaf_is_refused_or_ignored() -> None:
    with pytest.raises(UnknownNameError, match="unknown leaf class 'lamb': did you mean 'lamp'"):
        Stream.from_source(source(("owl", "lamb")), BEARS, ORDER)
    stream = Stream.from_source(source(("owl", "lamb")), BEARS, ORDER, ignore=["lamb"])
    assert set(stream.train_leaf.tolist()) == {BEARS.index("owl"), -1}


def test_without_images_the_remedy_is_told() -> None:
    with pytest.raises(DataError, match=r"custom was built from labels alone.*root=…"):
        bears().images("train")


# --- Bad input --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (lambda s: s[3], IndexError, "no task 3: tasks are 0 to 2"),
        (lambda s: s[-4], IndexError, "no task -4: tasks are 0 to 2"),
        (lambda s: s.test(after=3), ScheduleError, "after=3: tasks are 0 to 2"),
        (lambda s: s.test(after=-1), ScheduleError, "after=-1: tasks are 0 to 2"),
        (
            lambda s: s.post_valid(after=1, task=2),
            ScheduleError,
            "task=2: after task 1, tasks 0 to 1 have come",
        ),
        (lambda s: s.train(after=1, task=-1), ScheduleError, "task=-1: after task 1"),
        (lambda s: s.valid(after=7), ScheduleError, "after=7"),
        (
            lambda s: s.images("trian"),
            UnknownNameError,
            "unknown file 'trian': did you mean 'train'",
        ),
    ],
)
def test_moments_that_never_come(
    ask: Callable[[Stream], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        ask(bears())


@pytest.mark.parametrize(
    ("leaf", "error", "message"),
    [
        (["owl", "lanp"], UnknownNameError, "unknown leaf class 'lanp': did you mean 'lamp'"),
        (np.array(["owl", "lanp"]), UnknownNameError, "did you mean 'lamp'"),
        ([1, "owl"], UnknownNameError, "unknown leaf class '1'"),
        (["owl", 1], UnknownNameError, "unknown leaf class 1"),
        (["bear"], DataError, "images labelled 'bear', which has subclasses.*polar bear, brown"),
        ([0], DataError, "images labelled 'bear'"),
        ([6], DataError, "train_leaf has numbers 6 to 6; classes are 0 to 5"),
        ([-2, 1], DataError, "train_leaf has numbers -2 to 1; classes are 0 to 5"),
        ([["owl"], ["lamp"]], DataError, r"leaf labels are one a row, \(n,\).*\(2, 1\)"),
        (np.zeros((2, 3), int), DataError, r"their shape is \(2, 3\)"),
        (3, DataError, r"their shape is \(\)"),
        ("owl", DataError, r"their shape is \(\)"),
        ([1.0, 2.5], UnknownNameError, "unknown leaf class 1.0"),
        ([None], UnknownNameError, "unknown leaf class None"),
    ],
)
def test_leaves_that_are_none(leaf: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Stream.build(BEARS, ORDER, leaf, [])


def test_test_labels_are_checked_too() -> None:
    with pytest.raises(DataError, match="test_leaf has images labelled 'bird'"):
        Stream.build(BEARS, ORDER, [], ["bird"])


@pytest.mark.parametrize("leaf", [np.array([1.0]), np.array(["owl"]), np.array([[1]]), np.array(1)])
def test_numbers_are_needed_where_numbers_are_promised(leaf: Any) -> None:
    with pytest.raises(DataError, match="train_leaf must be one class number a row"):
        Stream(BEARS, ORDER, leaf, np.array([1]))


def test_a_schedule_of_other_classes_gets_the_nearest_name() -> None:
    with pytest.raises(UnknownNameError, match="unknown class 'polarbear': did you mean 'polar b"):
        Stream.build(BEARS, Schedule.of([["bear"], ["polarbear"]]), [], [])


@pytest.mark.parametrize("order", [[0, 1], [0, 1, 1], [1, 2, 3], [-1, 0, 1], [0, 1, 2, 3]])
def test_a_file_order_that_is_none(order: list[int]) -> None:
    with pytest.raises(DataError, match="file_order must name every training row once"):
        Stream.build(BEARS, ORDER, ["owl"] * 3, [], file_order=np.array(order))


@pytest.mark.parametrize("kind", [list, tuple, np.array])
def test_leaf_numbers(kind: Callable[[list[str]], Any]) -> None:
    names = ["owl", "owl", "x", "lamp", "owl"]
    numbers = leaf_numbers(BEARS, kind(names), ignore=["x"])
    assert numbers.tolist() == [4, 4, -1, 5, 4]
    assert numbers.dtype == np.intp
