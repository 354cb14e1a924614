"""iirc-shapes: the same pixels everywhere, and classes that differ by form and not by colour."""

import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

import polarbear
from polarbear.base.errors import DataError, UnknownNameError
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.schedule import Schedule
from polarbear.benchmark.source import Source
from polarbear.benchmark.stream import Stream
from polarbear.data.shapes import LEAVES, draw_leaf, shapes

PUBLISHED = Path(polarbear.__file__).parent / "named" / "published"
ORDERS = [
    Schedule.of(order)
    for order in json.loads((PUBLISHED / "iirc-shapes.orders.json").read_text("utf-8"))["orders"]
]

# fmt: off
MEANS = [
    133.519, 126.743, 129.277, 126.654, 134.608, 129.872, 119.724, 130.905, 135.831, 131.665,
    127.111, 119.886, 121.684, 128.363, 121.61, 133.546, 127.413, 128.386, 138.137, 124.611,
    140.837, 123.22, 136.415, 131.864, 124.073, 125.07, 128.827, 142.652, 127.668,
]
# fmt: on


@pytest.fixture(scope="module")
def source() -> Source:
    return shapes()


@pytest.fixture(scope="module")
def hierarchy() -> Hierarchy:
    return Hierarchy.read(PUBLISHED / "iirc-shapes.toml")


def test_images_are_small_colour_pictures(source: Source) -> None:
    assert source.train[:].shape == (2900, 32, 32, 3)
    assert source.test[:].shape == (870, 32, 32, 3)
    assert source.train[:].dtype == source.test[:].dtype == np.uint8
    assert source.origin == "iirc-shapes"


def test_every_leaf_has_its_images_and_neighbouring_rows_are_a_mix(source: Source) -> None:
    assert np.bincount(source.train_leaf).tolist() == [100] * 29
    assert np.bincount(source.test_leaf).tolist() == [30] * 29
    assert np.array_equal(source.train_leaf, np.arange(2900) % 29)
    assert np.array_equal(source.test_leaf, np.arange(870) % 29)


def test_rows_show_the_leaf_they_name(source: Source) -> None:
    leaf = LEAVES.index("hollow_star")
    assert np.array_equal(source.train[source.train_leaf == leaf], draw_leaf("hollow_star", 100))
    test = draw_leaf("hollow_star", 30, split="test")
    assert np.array_equal(source.test[source.test_leaf == leaf], test)


def test_nobody_can_change_the_images(source: Source) -> None:
    with pytest.raises(ValueError, match="read-only"):
        source.train[0] = 0
    with pytest.raises(ValueError, match="read-only"):
        source.train_leaf[0] = 1


# A change of any of these changes published results: raise the benchmark's version with it.


def test_labels_are_pinned(source: Source) -> None:
    text = "\n".join(source.leaves[i] for i in [*source.train_leaf, *source.test_leaf])
    assert (
        sha256(text.encode()).hexdigest()
        == "fed2c70a61046d492f0ebfa0e0431c4c912124deb2730a1f60e7a884d908963f"
    )


def test_pixels_of_one_class_are_pinned() -> None:
    pixels = draw_leaf("checked_cross", 100)
    assert (
        sha256(pixels.tobytes()).hexdigest()
        == "74c1c307df8adcb1b0473bccfeec8f655e481576f5cdae47b75a3071671957b9"
    )


def test_average_brightness_of_every_class_is_pinned(source: Source) -> None:
    by_leaf = source.train[:].reshape(100, 29, -1).mean(axis=(0, 2))
    assert by_leaf == pytest.approx(MEANS, abs=2e-3)


def test_orders_are_pinned() -> None:
    text = (PUBLISHED / "iirc-shapes.orders.json").read_text("utf-8")
    packed = json.dumps(json.loads(text), separators=(",", ":"))
    assert (
        sha256(packed.encode()).hexdigest()
        == "dd7c9dc85f6dfe16f3ad32bfea3519a6f939c9727d1a52d312b0ea0020b36ed2"
    )


# Randomness by key


@settings(max_examples=15)
@given(
    leaf=st.sampled_from(LEAVES),
    seed=st.integers(0, 2**40),
    few=st.integers(0, 4),
    more=st.integers(0, 4),
)
def test_more_images_keep_the_earlier_ones(leaf: str, seed: int, few: int, more: int) -> None:
    longer = draw_leaf(leaf, few + more, seed=seed)
    assert longer.shape == (few + more, 32, 32, 3)
    assert np.array_equal(longer[:few], draw_leaf(leaf, few, seed=seed))


def test_a_larger_set_begins_with_the_smaller_one() -> None:
    small, large = shapes(5, 2, 1), shapes(5, 3, 2)
    assert np.array_equal(large.train[: 2 * 29], small.train)
    assert np.array_equal(large.test[:29], small.test)


def test_same_seed_same_bytes_and_checksum(source: Source) -> None:
    again = shapes()
    assert np.array_equal(again.train, source.train)
    assert np.array_equal(again.test, source.test)
    assert again.checksum == source.checksum
    assert source.checksum.startswith("sha256:")


def test_seeds_files_leaves_and_images_differ() -> None:
    first = draw_leaf("moon", 2)
    assert not np.array_equal(first[0], first[1])
    assert not np.array_equal(first, draw_leaf("moon", 2, seed=1))
    assert not np.array_equal(first, draw_leaf("moon", 2, split="test"))
    corner = (slice(None), slice(0, 3), slice(0, 3))
    assert not np.array_equal(first[corner], draw_leaf("cloud", 2)[corner])
    assert shapes(0, 1, 1).checksum != shapes(1, 1, 1).checksum


# The benchmark around it


def test_hierarchy_has_the_classes_that_are_drawn(source: Source, hierarchy: Hierarchy) -> None:
    assert hierarchy.leaves == source.leaves == LEAVES
    assert len(hierarchy) == 36
    assert len(hierarchy.superclasses) == 7
    below = [len(hierarchy.children(name)) for name in hierarchy.superclasses]
    assert below == [4, 4, 4, 3, 3, 3, 3]


def test_a_subclass_is_named_after_its_look_and_its_superclass(hierarchy: Hierarchy) -> None:
    for shape in hierarchy.superclasses:
        assert all(name.endswith(f"_{shape}") for name in hierarchy.children(shape))
    assert hierarchy.title("striped_circle") == "striped circle"


def test_no_look_belongs_to_one_shape(hierarchy: Hierarchy) -> None:
    looks = [name.split("_")[0] for name in hierarchy.leaves if hierarchy.parent(name)]
    assert {looks.count(look) for look in looks} == {4}


@pytest.mark.parametrize("order", ORDERS)
def test_orders_obey_the_rules(order: Schedule, hierarchy: Hierarchy) -> None:
    assert sorted(order.classes) == sorted(hierarchy.names)
    assert [len(task) for task in order.tasks] == [6, 5, 5, 5, 5, 5, 5]
    assert set(order.tasks[0]) < set(hierarchy.superclasses)
    assert order.children_too_early(hierarchy) == ()


def test_there_are_five_different_orders() -> None:
    assert len({order.tasks for order in ORDERS}) == 5


def test_every_task_has_images_for_every_class(source: Source, hierarchy: Hierarchy) -> None:
    stream = Stream.from_source(source, hierarchy, ORDERS[0])
    for task in stream:
        for view in (task.train, task.valid):
            assert view.targets[:, task.new].any(axis=0).all()
            assert not view.targets[:, : task.new.start].any()
    assert len(stream.test(after=6)) == 870


# What can be learnt, and from what


def _shape_numbers(leaf: np.ndarray, hierarchy: Hierarchy) -> np.ndarray:
    tops = [hierarchy.labels_of(name)[0] for name in hierarchy.leaves]
    return np.array([sorted(set(tops)).index(top) for top in tops])[leaf]


def _contrast(images: np.ndarray) -> np.ndarray:
    """How far each pixel is from the image's border colour: (n, 1024)."""
    values = images.astype(np.float64)
    border = np.concatenate([values[:, 0], values[:, -1], values[:, :, 0], values[:, :, -1]], 1)
    return np.abs(values - border.mean(axis=1)[:, None, None]).sum(axis=-1).reshape(len(images), -1)


def test_form_tells_the_superclass(source: Source, hierarchy: Hierarchy) -> None:
    model = KNeighborsClassifier(1).fit(
        _contrast(source.train[:]), _shape_numbers(source.train_leaf, hierarchy)
    )
    right = model.score(_contrast(source.test[:]), _shape_numbers(source.test_leaf, hierarchy))
    assert right > 0.8  # the commonest answer is right for 4 of 29


def test_leaves_can_be_told_apart_but_not_by_pixels_alone(source: Source) -> None:
    def pixels(images: np.ndarray) -> np.ndarray:
        return images.reshape(len(images), -1).astype(np.float32)

    model = KNeighborsClassifier(1).fit(pixels(source.train[:]), source.train_leaf)
    right = model.score(pixels(source.test[:]), source.test_leaf)
    assert 5 / 29 < right < 0.6


def test_average_colour_tells_nothing(source: Source, hierarchy: Hierarchy) -> None:
    train, test = (images[:].mean(axis=(1, 2)) / 64 for images in (source.train, source.test))
    leaf = LogisticRegression(max_iter=1000).fit(train, source.train_leaf)
    assert leaf.score(test, source.test_leaf) < 1 / 29 + 0.03
    shape = LogisticRegression(max_iter=1000).fit(
        train, _shape_numbers(source.train_leaf, hierarchy)
    )
    assert shape.score(test, _shape_numbers(source.test_leaf, hierarchy)) < 4 / 29 + 0.03


def test_figure_stands_out_from_its_ground() -> None:
    for leaf in LEAVES:
        bright = draw_leaf(leaf, 50) @ [0.30, 0.59, 0.11]
        border = np.concatenate([bright[:, 0], bright[:, -1], bright[:, :, 0], bright[:, :, -1]], 1)
        contrast = np.abs(bright.reshape(50, -1) - border.mean(axis=1, keepdims=True))
        # The 60 clearest pixels of the thinnest figure lie a fifth of the scale from the ground.
        assert np.sort(contrast)[:, -60:].mean(axis=1).min() > 51, leaf


# Bad input


@pytest.mark.parametrize("name", ["seed", "train_per_leaf", "test_per_leaf"])
@pytest.mark.parametrize("value", [-1, 1.5, "3"])
def test_odd_numbers_are_refused(name: str, value: object) -> None:
    with pytest.raises(DataError, match=rf"{name} must be a whole number from 0 upwards, not "):
        shapes(**{"train_per_leaf": 1, "test_per_leaf": 1, name: value})


def test_unknown_leaf_gets_the_nearest_name() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'striped_circle'"):
        draw_leaf("stripy_circle", 1)


def test_unknown_file_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="Valid: test, train"):
        draw_leaf("moon", 1, split="tests")  # type: ignore[arg-type]
