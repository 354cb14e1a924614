"""A spy who never looks at a picture: what sizes and repeated images tell of the hierarchy."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import polarbear
from polarbear import Hierarchy, Schedule, Source, Stream, View
from polarbear.benchmark.leaks import Leak, leaks
from polarbear.named.registry import find

STORED = 20  # images a class in the paper's replay memory


@dataclass(frozen=True)
class Shown:
    """What a learner is shown of a class on its arrival, and keeps of it."""

    name: str
    task: int
    train: frozenset[bytes]
    valid: frozenset[bytes]
    stored: frozenset[bytes]

    @property
    def images(self) -> frozenset[bytes]:
        return self.train | self.valid


Evidence = Callable[[Shown, Shown], float]


def shown_by(stream: Stream) -> list[Shown]:
    random = np.random.default_rng(0)
    pixels = stream.images("train")

    def images(view: View, column: int) -> list[bytes]:
        return [np.asarray(image).tobytes() for image in pixels[view.rows[view.targets[:, column]]]]

    classes = []
    for task in stream:
        for column, name in enumerate(task.classes, start=task.new.start):
            train, valid = images(task.train, column), images(task.valid, column)
            stored = frozenset(train[i] for i in random.permutation(len(train))[:STORED])
            classes.append(Shown(name, task.index, frozenset(train), frozenset(valid), stored))
    return classes


def nothing(leaf: Shown, other: Shown) -> float:
    return 0


def sizes(leaf: Shown, other: Shown) -> float:
    return len(other.train) >= 2 * len(leaf.train) and len(other.valid) >= 2 * len(leaf.valid)


def repeats(leaf: Shown, other: Shown) -> float:
    return len(leaf.images & other.images)


def stored_repeats(leaf: Shown, other: Shown) -> float:
    return len(leaf.images & other.stored)


def parents_found(stream: Stream, classes: list[Shown], evidence: Evidence) -> float:
    """How many leaves' parents the spy finds: the earlier class with the most evidence.

    Among several with as much, the spy takes any: what counts is how often that is right.
    """
    found = 0.0
    for leaf in classes:
        parent = stream.hierarchy.parent(leaf.name)
        if parent is not None:
            weight = {c.name: evidence(leaf, c) for c in classes if c.task < leaf.task}
            best = [name for name in weight if weight[name] == max(weight.values())]
            found += (parent in best) / len(best)
    return found


def made_up(name: str, order: int) -> Stream:
    """A benchmark of CIFAR-100's size whose images are their row numbers."""
    leaves = find(name).hierarchy().leaves
    numbers = np.arange(60_000, dtype="<u4").view(np.uint8).reshape(-1, 4)[:, :3]
    images = np.ascontiguousarray(numbers).reshape(-1, 1, 1, 3)
    train, test = (np.repeat(np.arange(100), n) for n in (500, 100))
    source = Source(leaves, images[:50_000], train, images[50_000:], test)
    return Stream.from_source(
        source, find(name).hierarchy(), find(name).schedule(order), rule=find(name).rule
    )


@pytest.mark.parametrize("order", range(10))
def test_a_spy_finds_cifars_parents_in_the_first_version(order: int) -> None:
    stream = made_up("iirc-cifar", order)
    classes = shown_by(stream)
    assert parents_found(stream, classes, nothing) < 2.1
    assert parents_found(stream, classes, sizes) > 5
    assert parents_found(stream, classes, stored_repeats) > 60
    assert parents_found(stream, classes, repeats) == 77


@pytest.mark.parametrize("order", range(10))
def test_a_spy_finds_no_more_than_chance_in_the_second_version(order: int) -> None:
    stream = made_up("iirc-cifar-v2", order)
    classes = shown_by(stream)
    chance = parents_found(stream, classes, nothing)
    assert 1 < chance < 2.1
    for evidence in (sizes, stored_repeats, repeats):
        assert parents_found(stream, classes, evidence) == chance
    # Nor does any other function of sizes or of repeated images tell two classes apart.
    assert {(len(shown.train), len(shown.valid)) for shown in classes} == {(320, 40)}
    assert len(frozenset().union(*(c.images for c in classes))) == sum(
        len(c.images) for c in classes
    )


def test_real_images_give_the_hierarchy_away_in_the_first_version_alone(cifar_root: Path) -> None:
    first, second = (
        polarbear.load(name, 0, cifar_root) for name in ("iirc-cifar", "iirc-cifar-v2")
    )
    assert parents_found(first, shown_by(first), repeats) == 77
    classes = shown_by(second)
    chance = parents_found(second, classes, nothing)
    assert parents_found(second, classes, sizes) == chance
    assert parents_found(second, classes, stored_repeats) == chance
    # CIFAR-100 itself has some images twice, one of them as a small mammal here and as a shrew.
    again = [c.name for c in classes if repeats(c, next(s for s in classes if s.name == "shrew"))]
    assert again == ["small_mammals", "shrew"]
    assert chance < parents_found(second, classes, repeats) < chance + 1


def test_leaks_are_counted() -> None:
    assert leaks(made_up("iirc-cifar", 0)) == (
        Leak("superclasses", 15, (640, 1_280), (80, 160), 0),
        Leak("leaves with a superclass", 77, (320, 320), (40, 40), 0.25),
        Leak("leaves without", 23, (400, 400), (50, 50), 0),
    )
    assert leaks(made_up("iirc-cifar-v2", 0)) == (
        Leak("superclasses", 15, (320, 320), (40, 40), 0),
        Leak("leaves with a superclass", 77, (320, 320), (40, 40), 0),
        Leak("leaves without", 23, (320, 320), (40, 40), 0),
    )


def test_leaks_of_a_parent_that_comes_last_and_of_no_images() -> None:
    tree = Hierarchy.from_children({"bear": ["polar bear", "brown bear"]})
    schedule = Schedule.of([["polar bear", "brown bear"], ["bear"]])
    stream = Stream.build(tree, schedule, ["polar bear"] * 10 + ["brown bear"] * 20, [])
    # To train on, the leaves have the last 6 of 8 rows and the last 12 of 16; the bear, later,
    # has the first 3 and the first 6, of which 1 and 2 have been shown.
    assert leaks(stream) == (
        Leak("superclasses", 1, (9, 9), (0, 0), 3 / 9),
        Leak("leaves with a superclass", 2, (6, 12), (0, 1), 0),
    )
    assert leaks(Stream.build(tree, schedule, [], []))[0] == Leak(
        "superclasses", 1, (0, 0), (0, 0), 0
    )
