"""The named benchmarks: the paper's counts, the rules all orders keep, names and versions."""

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polarbear
from polarbear import Benchmark, Hierarchy, Schedule, SplitRule, Stream, benchmarks, load
from polarbear.base.errors import DataError, PolarbearError, ScheduleError, UnknownNameError
from polarbear.benchmark.split import class_rows
from polarbear.named.registry import (
    _REGISTRY,
    data_root,
    find,
    nominal_stream,
    register,
    short_name,
)
from polarbear.named.shipped import LEFT_OUT, PUBLISHED
from twin import Twin, labels

IIRC = [
    (name, order)
    for name, orders in (("iirc-cifar", 10), ("iirc-imagenet-full", 5), ("iirc-imagenet-lite", 5))
    for order in range(orders)
]
IMAGES_A_LEAF = 1300  # ImageNet's most frequent class size, and the one the paper's examples have


def nominal(name: str, order: int = 0) -> Stream:
    stream = nominal_stream(name, order)
    assert stream is not None
    return stream


def of_class(stream: Stream, name: str) -> int:
    """How many training rows a class gets."""
    parts = class_rows(name, "train", stream._grouped, stream.rule)
    return sum(len(part) for part in parts)


def title_of(hierarchy: Hierarchy, title: str) -> str:
    (found,) = (leaf for leaf in hierarchy.leaves if hierarchy.title(leaf) == title)
    return found


# --- The paper's tables: CIFAR ----------------------------------------------------------------


@pytest.mark.parametrize("order", range(10))
def test_cifars_counts_are_the_papers(order: int) -> None:
    stream = nominal("iirc-cifar", order)
    last = len(stream) - 1
    assert [len(task.classes) for task in stream] == [10, *[5] * 21]
    assert sum(len(task.train) for task in stream) == 46_160
    assert len(stream.train(after=last)) == 40_000
    assert sum(len(task.valid) for task in stream) == 5_770
    assert len(stream.valid(after=last)) == 5_000
    assert len(stream.post_valid(after=last)) == 5_000
    assert len(stream.test(after=last)) == 10_000


def test_cifars_rows_task_by_task() -> None:
    stream = nominal("iirc-cifar")
    assert [len(task.train) for task in stream[:4]] == [8160, 1840, 2160, 1760]
    test = [len(stream.test(after=21, task=k)) for k in range(22)]
    assert test[:3] == [5100, 500, 900]
    assert sum(test) == 17_700


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("vehicles", 1280),
        ("bus", 320),
        ("small_mammals", 800),
        ("squirrel", 320),
        ("mushroom", 400),
    ],
)
def test_cifars_example_classes_have_the_papers_size(name: str, rows: int) -> None:
    assert of_class(nominal("iirc-cifar"), name) == rows


@pytest.mark.parametrize(
    ("name", "supers", "below", "alone"),
    [("iirc-cifar", 15, 77, 23), ("iirc-imagenet-full", 85, 788, 210)],
)
def test_hierarchies_have_the_papers_size(name: str, supers: int, below: int, alone: int) -> None:
    hierarchy = find(name).hierarchy()
    has_parent = [hierarchy.parent(leaf) is not None for leaf in hierarchy.leaves]
    assert len(hierarchy.superclasses) == supers
    assert sum(has_parent) == below
    assert len(has_parent) - sum(has_parent) == alone
    assert hierarchy.depth.max() == 1


# --- The paper's tables: ImageNet -------------------------------------------------------------


@pytest.fixture(scope="module")
def imagenet() -> Stream:
    """ImageNet-full as if every class had 1,300 images."""
    leaves = find("cil-imagenet-full").hierarchy().names
    return load(
        "iirc-imagenet-full",
        leaf_train=np.repeat(np.array(leaves), IMAGES_A_LEAF),
        leaf_test=np.repeat(np.array(leaves), 50),
    )


@pytest.mark.parametrize(
    ("superclass", "subclasses", "size", "subclass"),
    [
        # The paper has 3,762: some of the 58 birds have fewer than 1,300 images.
        ("bird", 58, 3_770, "ostrich"),
        ("big_cat", 6, 2_868, "leopard"),
        ("keyboard_instrument", 4, 1_912, "grand piano"),
    ],
)
def test_imagenets_example_classes_have_the_papers_size(
    imagenet: Stream, superclass: str, subclasses: int, size: int, subclass: str
) -> None:
    hierarchy = imagenet.hierarchy
    leaf = title_of(hierarchy, subclass)
    assert hierarchy.parent(leaf) == superclass
    assert len(hierarchy.children(superclass)) == subclasses
    assert of_class(imagenet, superclass) == size
    assert of_class(imagenet, leaf) == 956


def test_a_class_without_a_superclass_keeps_all_its_rows(imagenet: Stream) -> None:
    spoon = title_of(imagenet.hierarchy, "wooden spoon")
    assert imagenet.hierarchy.parent(spoon) is None
    assert of_class(imagenet, spoon) == 1_196


def test_the_cap_binds_for_23_superclasses_and_dog_has_118(imagenet: Stream) -> None:
    hierarchy = imagenet.hierarchy
    sizes = {name: len(hierarchy.children(name)) for name in hierarchy.superclasses}
    assert sum(size > 8 for size in sizes.values()) == 23
    assert sizes["dog"] == max(sizes.values()) == 118
    assert of_class(imagenet, "dog") == 118 * int(8 / 118 * 0.4 * 1_196)


def test_two_leaves_are_left_out_of_imagenet(imagenet: Stream) -> None:
    leaves = find("cil-imagenet-full").hierarchy().names
    assert len(leaves) == 1_000
    assert set(leaves) - set(imagenet.hierarchy.leaves) == set(LEFT_OUT)
    assert (imagenet.train_leaf == -1).sum() == 2 * IMAGES_A_LEAF
    assert len(imagenet.test(after=34)) == 49_900  # the paper's count


# --- Orders -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "order"), IIRC)
def test_published_orders_keep_the_papers_rules(name: str, order: int) -> None:
    hierarchy, schedule = find(name).hierarchy(), find(name).schedule(order)
    supers = set(hierarchy.superclasses)
    home = schedule.task_of
    assert set(schedule.tasks[0]) <= supers
    for child in schedule.classes:
        parent = hierarchy.parent(child)
        assert parent is None or home[parent] < home[child]
    assert schedule.children_too_early(hierarchy) == ()


@pytest.mark.parametrize("order", range(5))
def test_sizes_of_imagenets_orders(order: int) -> None:
    full, lite = (find(f"iirc-imagenet-{kind}") for kind in ("full", "lite"))
    assert [len(task) for task in full.schedule(order).tasks] == [63, *[30] * 34]
    assert set(full.schedule(order).classes) == set(full.hierarchy().names)
    assert len(full.hierarchy()) == 1_083
    classes = lite.schedule(order).classes
    assert [len(task) for task in lite.schedule(order).tasks] == [63, *[30] * 9]
    assert len(classes) == 333
    assert 66 <= len(set(classes) & set(lite.hierarchy().superclasses)) <= 71


@pytest.mark.parametrize(
    ("name", "sizes", "orders"),
    [
        ("cil-cifar", [50, *[5] * 10], 10),
        ("cil-cifar-b0-5", [5] * 20, 1),
        ("cil-imagenet-full", [160, *[30] * 28], 5),
        ("cil-imagenet-lite", [160, *[30] * 9], 5),
    ],
)
def test_class_incremental_counterparts(name: str, sizes: list[int], orders: int) -> None:
    benchmark = find(name)
    assert not benchmark.hierarchy().superclasses
    assert len(benchmark.orders()) == len(set(benchmark.orders())) == orders
    for schedule in benchmark.orders():
        assert [len(task) for task in schedule.tasks] == sizes
        assert set(schedule.classes) <= set(benchmark.hierarchy().names)


def test_tasks_of_five_come_in_the_order_of_the_literature() -> None:
    stream = nominal("cil-cifar-b0-5")
    numbers = np.random.RandomState(1993).permutation(100)
    names = sorted(find("cil-cifar").hierarchy().leaves)  # CIFAR-100 numbers them by the alphabet
    assert stream.schedule.classes == tuple(names[number] for number in numbers)
    assert numbers[:5].tolist() == [68, 56, 78, 8, 23]
    assert [len(task.train) for task in stream] == [2500] * 20
    assert [len(task.valid) for task in stream] == [0] * 20
    assert len(stream.test(after=19)) == 10_000


@pytest.mark.parametrize("name", [benchmark.name for benchmark in benchmarks()])
def test_every_order_fits_its_hierarchy_and_differs(name: str) -> None:
    benchmark = find(name)
    assert len(set(benchmark.orders())) == len(benchmark.orders())
    for schedule in benchmark.orders():
        Stream.build(benchmark.hierarchy(), schedule, [], [])


@pytest.mark.parametrize("name", ["iirc-cifar", "iirc-cifar-v2", "cil-cifar"])
def test_a_nominal_stream_is_the_slow_twins(name: str) -> None:
    """Whole CIFAR once through the loops, in a made-up row order."""
    leaves = find(name).hierarchy().leaves
    random = np.random.default_rng(3)
    train, test = (random.permutation(np.repeat(np.array(leaves), n)) for n in (500, 100))
    stream = load(name, 4, leaf_train=train, leaf_test=test)
    twin = Twin(stream)
    for index in (0, 1, 5, len(stream) - 1):
        assert labels(stream[index].train) == twin.incomplete("train", index)
        assert labels(stream[index].valid) == twin.incomplete("valid", index)
        assert labels(stream.test(index, 0)) == twin.complete("test", index, [0])
        post = twin.complete("post_valid", index, range(index + 1))
        assert labels(stream.post_valid(index)) == post


# --- load -------------------------------------------------------------------------------------


def leaves_of(name: str) -> dict[str, Any]:
    leaves = find(name).hierarchy().leaves
    return {"leaf_train": leaves * 20, "leaf_test": leaves}  # fewer than are published


def test_a_loaded_stream_says_what_it_is() -> None:
    stream = load("iirc-cifar", 3, **leaves_of("iirc-cifar"))
    assert (stream.name, stream.order) == ("iirc-cifar-v1-partial", 3)
    assert stream.schedule == find("iirc-cifar").schedule(3)
    assert stream.rule == SplitRule()
    assert load("iirc-cifar-v1", 3, **leaves_of("iirc-cifar")).schedule == stream.schedule


def test_imagenet_has_smaller_validation_shares() -> None:
    stream = load("iirc-imagenet-lite", **leaves_of("iirc-imagenet-lite"))
    assert stream.rule == SplitRule(valid=0.04, post_valid=0.04)


def test_joint_is_one_task() -> None:
    stream = load("iirc-cifar", 2, joint=True, **leaves_of("iirc-cifar"))
    assert stream.schedule == find("iirc-cifar").schedule(2).joint()
    assert len(stream) == 1


def test_a_schedule_of_your_own() -> None:
    schedule = Schedule.of([["vehicles"], ["bus", "clock"]])
    stream = load("iirc-cifar", schedule=schedule, **leaves_of("iirc-cifar"))
    assert stream.schedule == schedule
    assert stream.order is None


def test_the_papers_shuffle_is_an_option() -> None:
    def first_rows(**more: Any) -> list[int]:
        stream = load("iirc-cifar", **more, **leaves_of("iirc-cifar"))
        return [int(row) for row in stream[0].train.rows]

    assert first_rows() == first_rows()
    assert first_rows(shuffle_seed=1) == first_rows(shuffle_seed=1)
    assert len({tuple(first_rows(shuffle_seed=seed)) for seed in (None, 0, 1)}) == 3
    assert len(first_rows(shuffle_seed=1)) == len(first_rows())


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"name": "iirc-cifer"}, UnknownNameError, "unknown benchmark.*did you mean 'iirc-cifar'"),
        ({"name": "IIRC-CIFAR"}, UnknownNameError, "did you mean 'iirc-cifar'"),
        (
            {"name": "cifar100"},
            UnknownNameError,
            "data set.*benchmarks: iirc-cifar, cil-cifar, cil-cifar-b0-5, iirc-cifar-v2$",
        ),
        (
            {"name": "CIFAR-100"},
            UnknownNameError,
            "data set.*benchmarks: iirc-cifar, cil-cifar, cil-cifar-b0-5, iirc-cifar-v2$",
        ),
        ({"name": "imagenet"}, UnknownNameError, "is a data set.* iirc-imagenet-lite, iirc-imag"),
        (
            {"name": "iirc-cifar-v9"},
            PolarbearError,
            "no version 9.*has iirc-cifar-v1, iirc-cifar-v2$",
        ),
        ({"name": "iirc-cifer-v1"}, UnknownNameError, "did you mean 'iirc-cifar-v1'"),
        (
            {"name": "cil-cifar-v2"},
            PolarbearError,
            "no version 2: this polarbear has cil-cifar-v1$",
        ),
        (
            {"order": 10},
            ScheduleError,
            r"no order 10: its 10 published orders are 0 to 9 \(Schedule.draw",
        ),
        ({"order": -1}, ScheduleError, "no order -1"),
        ({"leaf_train": None}, DataError, "both leaf_train and leaf_test, or neither"),
        ({"leaf_test": None}, DataError, "both leaf_train and leaf_test, or neither"),
        ({"leaf_train": ["buss"]}, UnknownNameError, "unknown leaf class 'buss'.*'bus'"),
        ({"leaf_train": ["vehicles"]}, DataError, "labelled 'vehicles', which has subclasses"),
        (
            {"schedule": Schedule.of([["vehicle"]])},
            UnknownNameError,
            "unknown class 'vehicle': did you mean 'vehicles'",
        ),
        ({"row_order": "random"}, UnknownNameError, "unknown row order 'random'"),
        ({"shuffle_seed": -3}, DataError, "shuffle_seed is a whole number from 0"),
    ],
)
def test_what_cannot_be_loaded(
    changed: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        load(**({"name": "iirc-cifar"} | leaves_of("iirc-cifar") | changed))


def test_missing_data_are_told_where_they_were_looked_for(tmp_path: Path) -> None:
    for name in ("iirc-cifar", "iirc-imagenet-full"):
        with pytest.raises(DataError, match=str(tmp_path)):
            load(name, root=tmp_path)


def test_the_data_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POLARBEAR_DATA", raising=False)
    assert data_root() == Path("data")
    monkeypatch.setenv("POLARBEAR_DATA", "elsewhere")
    assert data_root() == Path("elsewhere")
    assert data_root("here") == Path("here")


def test_leaves_of_uneven_size_have_no_nominal_stream() -> None:
    assert nominal_stream("iirc-imagenet-full") is None


# --- Registry ---------------------------------------------------------------------------------


@pytest.fixture
def mine() -> Iterator[Benchmark]:
    hierarchy = Hierarchy.from_children({"bear": ["polar bear"]}, alone=["lamp"])
    benchmark = replace(
        find("iirc-cifar"),
        name="my-bears",
        version=3,
        hierarchy=lambda: hierarchy,
        orders=lambda: (Schedule.of([["bear"], ["polar bear", "lamp"]]),),
        images_per_leaf=(10, 2),
    )
    register(benchmark)
    yield benchmark
    del _REGISTRY["my-bears"]


def test_a_benchmark_of_your_own(mine: Benchmark) -> None:
    assert mine in benchmarks()
    assert nominal("my-bears").name == "my-bears-v3"
    assert len(nominal("my-bears").test(after=1)) == 4
    with pytest.raises(PolarbearError, match="'my-bears' exists: choose another name"):
        register(mine)
    with pytest.raises(ScheduleError, match="my-bears has no order 1: its 1 published order is 0"):
        load("my-bears", 1, leaf_train=[], leaf_test=[])
    with pytest.raises(ScheduleError, match="my-bears has no order '0'"):
        load("my-bears", "0", leaf_train=[], leaf_test=[])  # type: ignore[arg-type]


def test_names_and_versions_are_public() -> None:
    names = [benchmark.name for benchmark in polarbear.benchmarks()]
    assert {"iirc-shapes", "iirc-cifar", "iirc-imagenet-lite", "iirc-imagenet-full"} <= set(names)
    assert {"cil-cifar", "cil-imagenet-lite", "cil-imagenet-full"} <= set(names)
    for benchmark in polarbear.benchmarks():
        assert find(benchmark.id) is find(short_name(benchmark)) is benchmark
        assert benchmark.id == f"{benchmark.name}-v{benchmark.version}"
        assert find(benchmark.name).version == 1


# --- Second versions --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["iirc-shapes", "iirc-cifar", "iirc-imagenet-lite", "iirc-imagenet-full"]
)
def test_a_second_version_differs_in_who_gets_which_training_images_alone(name: str) -> None:
    first, second = find(name), find(f"{name}-v2")
    changed = {"version": 2, "summary": second.summary, "rule": replace(first.rule, equal=True)}
    assert second == replace(first, **changed)
    assert not first.rule.equal


@pytest.mark.parametrize("order", range(10))
def test_cifars_second_version_has_equal_classes_and_no_image_twice(order: int) -> None:
    first, second = nominal("iirc-cifar", order), nominal("iirc-cifar-v2", order)
    last = len(second) - 1
    assert {of_class(second, name) for name in second.classes} == {320}
    assert [len(task.train) for task in second] == [3_200, *[1_600] * 21]
    assert [len(task.valid) for task in second] == [400, *[200] * 21]
    assert len(second.train(after=last)) == 115 * 320
    assert len(second.valid(after=last)) == 115 * 40
    for after in range(len(second)):
        for split in ("post_valid", "test"):
            theirs, ours = (getattr(stream, split)(after) for stream in (first, second))
            assert np.array_equal(theirs.rows, ours.rows)
            assert np.array_equal(theirs.targets, ours.targets)


def test_cifars_second_version_shows_no_class_an_image_that_the_first_does_not() -> None:
    first, second = nominal("iirc-cifar"), nominal("iirc-cifar-v2")
    for ours, theirs in zip(second, first, strict=True):
        for split in ("train", "valid"):
            theirs_all = labels(getattr(theirs, split)).items()
            assert labels(getattr(ours, split)).items() <= theirs_all


def test_imagenets_second_version_is_as_large_as_its_smallest_leaf_allows() -> None:
    hierarchy = find("iirc-imagenet-full-v2").hierarchy()
    count = np.full(len(hierarchy.leaves), 1_300)
    tight = hierarchy.leaves.index(title_of(hierarchy, "leopard"))
    count[tight] = 732  # the fewest that ImageNet has; a leopard is one of six big cats
    leaves = np.repeat(np.array(hierarchy.leaves), count)
    for name in ("iirc-imagenet-full-v2", "iirc-imagenet-lite-v2"):
        stream = load(name, leaf_train=leaves, leaf_test=list(hierarchy.leaves))
        # Of its 732 - 29 - 29 for training, 577 remain when a big cat's share, 97, is taken.
        assert {of_class(stream, name) for name in stream.classes} == {577}
        rows = np.concatenate([task.train.rows for task in stream])
        assert len(np.unique(rows)) == len(rows)


# --- Files ------------------------------------------------------------------------------------


def test_published_files_have_not_been_altered() -> None:
    """After a change that is meant: ``sha256sum *.json *.toml */*.csv > SHA256SUMS`` there."""
    lines = (PUBLISHED / "SHA256SUMS").read_text(encoding="utf-8").splitlines()
    expected = {name: digest for digest, name in (line.split("  ", 1) for line in lines)}
    files = [file for kind in ("*.json", "*.toml", "*/*.csv") for file in PUBLISHED.glob(kind)]
    found = {
        file.relative_to(PUBLISHED).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }
    assert found == expected
