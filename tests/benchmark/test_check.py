"""The checkers find what was put in, all of it, and nothing in the published benchmarks."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import polarbear
from polarbear.base.errors import DataError, PolarbearError
from polarbear.benchmark.checks import CheckError, Finding, check_hierarchy, check_stream
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.schedule import Schedule
from polarbear.benchmark.source import Source
from polarbear.benchmark.split import SplitRule
from polarbear.benchmark.stream import Stream
from polarbear.named.registry import benchmarks, nominal_stream

TREE = Hierarchy.from_children({"bear": ["polar", "brown"], "car": ["taxi", "van"]}, alone=["lamp"])
ORDER = Schedule.of([["bear", "car"], ["polar", "brown"], ["taxi", "van", "lamp"]])
LEAVES = ("polar", "brown", "taxi", "van", "lamp")


def make(
    counts: tuple[int, ...] = (50,) * 5,
    test: tuple[int, ...] = (2,) * 5,
    schedule: Schedule = ORDER,
    **more: object,
) -> Stream:
    return Stream.build(TREE, schedule, np.repeat(LEAVES, counts), np.repeat(LEAVES, test), **more)


def with_images(train: np.ndarray, test: np.ndarray) -> Stream:
    stream = make()
    number = {name: i for i, name in enumerate(LEAVES)}
    leaves = [
        np.array([number[TREE.names[i]] for i in s]) for s in (stream.train_leaf, stream.test_leaf)
    ]
    return Stream.from_source(Source(LEAVES, train, leaves[0], test, leaves[1]), TREE, ORDER)


def only(findings: tuple[Finding, ...]) -> Finding:
    assert len(findings) == 1, [str(finding) for finding in findings]
    return findings[0]


@pytest.mark.parametrize("name", [b.name for b in benchmarks() if b.name.startswith("iirc")])
def test_published_hierarchies_are_clean(name: str) -> None:
    assert check_hierarchy(next(b for b in benchmarks() if b.name == name).hierarchy()) == ()


@pytest.mark.parametrize("order", [0, 4])
@pytest.mark.parametrize("name", ["iirc-cifar", "iirc-shapes"])
def test_published_streams_are_clean(name: str, order: int) -> None:
    assert check_stream(nominal_stream(name, order)) == ()


def test_shapes_are_clean_with_their_images() -> None:
    assert check_stream(polarbear.load("iirc-shapes")) == ()
    assert check_stream(make()) == ()


def test_cifar_is_clean_with_its_images(cifar_root) -> None:
    assert check_stream(polarbear.load("iirc-cifar", root=cifar_root)) == ()


def test_one_level_is_plain_class_incremental() -> None:
    found = only(check_hierarchy(Hierarchy.flat(["a", "b"])))
    assert found.level == "warning"
    assert "plain class-incremental learning" in found.message
    assert "group classes below superclasses" in found.message
    assert only(check_stream(nominal_stream("cil-cifar"))) == found


def test_single_subclass() -> None:
    found = only(check_hierarchy(Hierarchy.from_children({"bear": ["polar"], "car": ["a", "b"]})))
    assert found.level == "warning"
    assert found.message.startswith("superclass 'bear' has a single subclass")


def test_leaves_on_different_levels() -> None:
    tree = Hierarchy.from_children({"animal": {"bear": ["polar", "brown"], "fish": []}}, ["lamp"])
    found = only(check_hierarchy(tree))
    assert found.level == "warning"
    assert "different levels (2 and 3)" in found.message
    assert "'fish'" in found.message
    assert "lamp" not in found.message


def test_names_that_look_alike_are_an_error() -> None:
    tree = Hierarchy.flat(["polar bear", "Polar_Bear", "lamp", "polar-bear"])
    with pytest.raises(CheckError, match="'polar bear', 'Polar_Bear', 'polar-bear' differ only"):
        check_hierarchy(tree)
    found = check_hierarchy(tree, strict=False)
    assert [finding.level for finding in found] == ["warning", "error"]


def test_an_error_carries_every_finding_errors_first() -> None:
    with pytest.raises(PolarbearError) as caught:
        check_hierarchy(Hierarchy.from_children({"bear": ["polar"], "car": ["van", "Van"]}))
    assert isinstance(caught.value, CheckError)
    assert [finding.level for finding in caught.value.findings] == ["error", "warning"]
    first, *lines = str(caught.value).splitlines()
    assert first == "the hierarchy: 1 error"
    assert lines[0].startswith("  error: 'van', 'Van' differ")
    assert lines[1].startswith("  warning: superclass 'bear'")


def test_subclass_with_its_superclass() -> None:
    schedule = Schedule.of([["bear", "car"], ["polar", "brown"], ["taxi", "van", "lamp"]])
    together = Schedule.of([["bear"], ["polar", "brown", "lamp"], ["car", "taxi", "van"]])
    assert check_stream(make(schedule=schedule)) == ()
    found = only(check_stream(make(schedule=together)))
    assert found.level == "warning"
    assert "arrive together with their superclass ('taxi < car', 'van < car')" in found.message
    assert "both labels at once" in found.message


def test_subclass_before_its_superclass() -> None:
    schedule = Schedule.of([["bear"], ["polar", "taxi", "lamp"], ["car", "brown"], ["van"]])
    found = only(check_stream(make(schedule=schedule)))
    assert "arrive before their superclass ('taxi < car')" in found.message


def test_leaves_in_task_0() -> None:
    schedule = Schedule.of([["bear", "car", "lamp"], ["polar", "brown", "taxi", "van"]])
    found = only(check_stream(make(schedule=schedule)))
    assert found.level == "warning"
    assert found.message.startswith("task 0 has leaves ('lamp')")


def test_joint_is_told_once() -> None:
    assert "together" in only(check_stream(make(schedule=ORDER.joint()))).message


def test_classes_that_never_arrive() -> None:
    found = only(check_stream(make(schedule=Schedule.of([["bear", "car"], ["polar"]]))))
    assert found.level == "warning"
    assert found.message.startswith("4 classes of the hierarchy in no task ('brown', 'taxi'")


def messages(stream: Stream, level: str) -> list[str]:
    return [f.message for f in check_stream(stream, strict=False) if f.level == level]


def test_class_without_training_images() -> None:
    errors = messages(make(counts=(50, 50, 50, 50, 0)), "error")
    assert len(errors) == 1
    assert errors[0].startswith("no training image has the label 'lamp'")
    assert "share rounds down to 0" in errors[0]


def test_share_that_rounds_to_nothing() -> None:
    errors = messages(make(counts=(2, 2, 50, 50, 50)), "error")
    assert [e[:41] for e in errors] == ["no training image has the label 'bear': t"]


def test_class_without_test_images() -> None:
    errors = messages(make(test=(2, 2, 2, 2, 0)), "error")
    assert len(errors) == 1
    assert errors[0].startswith("no test image has the label 'lamp': whether it was learnt")


def test_task_without_images() -> None:
    errors = messages(make(counts=(0, 0, 50, 50, 50), test=(0, 0, 2, 2, 2)), "error")
    assert any(e.startswith("task 1 has no train and no test images") for e in errors)
    assert not any(e.startswith("task 0") for e in errors)


def test_splits_without_validation() -> None:
    warnings = messages(make(rule=SplitRule(valid=0, post_valid=0)), "warning")
    assert [w.split(" image")[0] for w in warnings] == [
        "no in-task validation",
        "no post-task validation",
    ]
    assert "raise SplitRule.valid (new-benchmark --valid)" in warnings[0]
    assert "(7 in all)" in warnings[0]


def test_superclass_without_in_task_validation() -> None:
    (warning,) = messages(make(counts=(50, 50, 20, 20, 50)), "warning")
    assert warning.startswith("no in-task validation image has the label 'car'")


def test_uneven_leaves() -> None:
    assert not messages(make(counts=(500, 50, 50, 50, 50)), "warning")
    (warning,) = messages(make(counts=(501, 50, 50, 50, 50)), "warning")
    assert "'polar' has 501 training images, 'brown' 50" in warning


TRAIN, TEST = np.zeros((250, 4, 4, 3), np.uint8), np.zeros((10, 4, 4, 3), np.uint8)


def test_images_as_they_should_be() -> None:
    assert check_stream(with_images(TRAIN, TEST)) == ()


@pytest.mark.parametrize(
    ("train", "test", "expected"),
    [
        (TRAIN / 255.0, TEST, "train images are float64; due is uint8"),
        (TRAIN.transpose(0, 3, 1, 2), TEST.transpose(0, 3, 1, 2), "images.transpose(0, 2, 3, 1)"),
        (TRAIN[..., 0], TEST[..., 0], "images[..., None].repeat(3, axis=-1)"),
        (TRAIN[..., :1], TEST[..., :1], "the shape (n, 4, 4, 1); due is (n, height, width, 3)"),
        (TRAIN, TEST[:, :3], "differ in shape, (3, 4, 3) and (4, 4, 3)"),
    ],
)
def test_images_of_a_wrong_kind(train: np.ndarray, test: np.ndarray, expected: str) -> None:
    with pytest.raises(CheckError) as caught:
        check_stream(with_images(train, test))
    assert expected in str(caught.value)


def test_images_that_do_not_fit_the_labels() -> None:
    stream = with_images(TRAIN, TEST)
    other = replace(stream, test_leaf=stream.test_leaf[:-1])
    assert messages(other, "error") == ["the test file has 10 images but 9 leaf labels"]


@dataclass(frozen=True)
class Unreadable:
    def __len__(self) -> int:
        return len(TEST)

    def __getitem__(self, rows: object, /) -> np.ndarray:
        raise DataError("polar/3.jpg is cut off")


def test_unreadable_images_are_a_finding() -> None:
    assert messages(with_images(TRAIN, Unreadable()), "error") == ["polar/3.jpg is cut off"]


class Leaky(Stream):
    """Shows labels of later tasks: what must never be."""

    def _label_table(self, after: int) -> np.ndarray:
        table = super()._label_table(after).copy()
        table[:, 0] = True
        return table


def test_a_wrong_label_is_found() -> None:
    fine = make()
    leaky = Leaky(fine.hierarchy, fine.schedule, fine.train_leaf, fine.test_leaf)
    errors = messages(leaky, "error")
    assert any("after task 1, test labels are not all labels" in e for e in errors)
    assert any("task 0's training labels are not those of its own classes" in e for e in errors)


class Overlapping(Stream):
    """Trains on post-task validation rows: what must never be."""

    @property
    def _post_rows(self) -> np.ndarray:
        return np.arange(len(self.train_leaf))


def test_rows_in_two_splits_are_found() -> None:
    fine = make()
    mixed = Overlapping(fine.hierarchy, fine.schedule, fine.train_leaf, fine.test_leaf)
    (error,) = messages(mixed, "error")
    # All 250 rows but the 25 that are post-task validation anyway.
    assert error.startswith("225 images serve both training and a validation split")


@given(seed=st.integers(0, 100), first=st.integers(1, 2), size=st.integers(1, 3))
def test_drawn_orders_are_clean(seed: int, first: int, size: int) -> None:
    try:
        schedule = Schedule.draw(TREE, seed=seed, first=first, size=size)
    except PolarbearError:
        return
    assert check_stream(make(schedule=schedule)) == ()
