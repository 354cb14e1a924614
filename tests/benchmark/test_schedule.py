"""Schedules: what is refused, and orders drawn by the paper's rules."""

import dataclasses
from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarbear import Hierarchy, Schedule
from polarbear.base.errors import ScheduleError
from polarbear.named.registry import find
from strategies import hierarchies, quick, schedules, thorough

BEARS = Hierarchy.from_children(
    {"bear": ["polar bear", "brown bear"], "bird": ["owl"]}, alone=["lamp"]
)


@given(st.data())
@quick
def test_classes_are_numbered_as_they_arrive(data: st.DataObject) -> None:
    schedule = data.draw(schedules(data.draw(hierarchies())))
    assert schedule.classes == tuple(name for task in schedule.tasks for name in task)
    assert schedule.seen(len(schedule) - 1) == schedule.classes
    assert schedule.seen(0) == schedule.tasks[0]
    for index in range(1, len(schedule)):
        assert schedule.seen(index) == schedule.seen(index - 1) + schedule.tasks[index]
    for name in schedule.classes:
        assert name in schedule.tasks[schedule.task_of[name]]
    assert schedule.joint().tasks == (schedule.classes,)
    assert schedule.joint().classes == schedule.classes


@given(st.data())
@quick
def test_children_too_early_are_all_found(data: st.DataObject) -> None:
    hierarchy = data.draw(hierarchies())
    schedule = data.draw(schedules(hierarchy))
    expected = {
        (superclass, name)
        for i, task in enumerate(schedule.tasks)
        for name in task
        for later in schedule.tasks[i:]
        for superclass in later
        if hierarchy.parent(name) == superclass
    }
    assert set(schedule.children_too_early(hierarchy)) == expected


def test_any_nested_lists_make_a_schedule() -> None:
    assert Schedule.of([["a"], iter("bc")]) == Schedule((("a",), ("b", "c")))
    assert len({Schedule.of([["a"], ["b"]]), Schedule.of((("a",), ("b",)))}) == 1


def test_nothing_can_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Schedule((("a",),)).tasks = ()  # type: ignore[misc]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Schedule(()), "at least one task; none was given"),
        (lambda: Schedule.of([["a"], []]), "task 1 has no class: leave the task out"),
        (
            lambda: Schedule.of([["a"], ["b", "c"], ["b"]]),
            "class 'b' is in task 1 and again in task 2: a class arrives once",
        ),
        (lambda: Schedule.of([["a", "a"]]), "class 'a' is in task 0 and again in task 0"),
        (lambda: Schedule.of(["bear", "lamp"]), "a task is a list of classes, not the text 'bear'"),
        (lambda: Schedule("bear"), "a task is a list of classes, not the text 'b'"),  # type: ignore[arg-type]
        (lambda: Schedule.of([["a"], ["b"]]).seen(2), "after=2: tasks are 0 to 1"),
        (lambda: Schedule.of([["a"], ["b"]]).seen(-1), "after=-1: tasks are 0 to 1"),
    ],
)
def test_what_is_no_schedule_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        make()


def keeps_the_rules(order: Schedule, hierarchy: Hierarchy, first: int, size: int) -> None:
    home = order.task_of
    assert [len(task) for task in order.tasks[:-1]] == [first, *[size] * (len(order) - 2)][
        : len(order) - 1
    ]
    assert 1 <= len(order.tasks[-1]) <= max(first, size)
    assert set(order.tasks[0]) <= set(hierarchy.superclasses)
    for name in order.classes:
        parent = hierarchy.parent(name)
        assert parent is None or home[parent] < home[name]
    assert order.children_too_early(hierarchy) == ()


def possible(hierarchy: Hierarchy, first: int, size: int, tasks: int | None) -> bool:
    """Whether any order keeps the rules: by trying them all."""
    names = hierarchy.names
    roots = [n for n in hierarchy.superclasses if hierarchy.parent(n) is None]
    states = {frozenset(chosen) for chosen in combinations(roots, first)}
    rounds = 1
    while states and len(next(iter(states))) < len(names) and rounds != tasks:
        count = min(size, len(names) - len(next(iter(states))))
        states = {
            seen | set(chosen)
            for seen in states
            for chosen in combinations(
                [n for n in names if n not in seen and hierarchy.parent(n) in {None, *seen}], count
            )
        }
        rounds += 1
    return bool(states)


@given(
    hierarchies(most=8),
    st.integers(0, 2**40),
    st.integers(1, 3),
    st.integers(1, 4),
    st.none() | st.integers(1, 4),
)
@thorough
def test_a_drawn_order_keeps_the_rules_or_there_is_none(
    hierarchy: Hierarchy, seed: int, first: int, size: int, tasks: int | None
) -> None:
    try:
        order = Schedule.draw(hierarchy, seed=seed, first=first, size=size, tasks=tasks)
    except ScheduleError:
        assert not possible(hierarchy, first, size, tasks)
        return
    keeps_the_rules(order, hierarchy, first, size)
    assert order == Schedule.draw(hierarchy, seed=seed, first=first, size=size, tasks=tasks)
    if tasks is None:
        assert set(order.classes) == set(hierarchy.names)
    else:
        assert len(order) <= tasks


@pytest.mark.parametrize(
    ("name", "first", "size", "tasks", "length"),
    [
        ("iirc-cifar", 10, 5, None, 22),
        ("iirc-imagenet-full", 63, 30, None, 35),
        ("iirc-imagenet-full", 63, 30, 10, 10),
    ],
)
def test_new_orders_of_the_published_benchmarks(
    name: str, first: int, size: int, tasks: int | None, length: int
) -> None:
    hierarchy = find(name).hierarchy()
    drawn = [
        Schedule.draw(hierarchy, seed=seed, first=first, size=size, tasks=tasks)
        for seed in range(3)
    ]
    assert len(set(drawn)) == 3
    for order in drawn:
        keeps_the_rules(order, hierarchy, first, size)
        assert [len(task) for task in order.tasks] == [first, *[size] * (length - 1)]


def test_late_superclasses_are_spread_over_the_tasks() -> None:
    """As in the published orders, where 23, 19 and 8 of 50 come in the thirds of the tasks."""
    hierarchy = find("iirc-cifar").hierarchy()
    late = [
        order.task_of[name]
        for seed in range(100)
        for order in [Schedule.draw(hierarchy, seed=seed, first=10, size=5)]
        for name in hierarchy.superclasses
        if name not in order.tasks[0]
    ]
    assert len(late) == 500
    assert max(late) < 21  # in the last task its subclasses would have nowhere to go
    counts = np.bincount(late, minlength=22)[1:21]
    assert counts.min() >= 3
    assert counts.max() <= 50
    for third in (counts[:7], counts[7:14], counts[14:]):
        assert third.sum() >= 80


def test_every_superclass_is_sometimes_first() -> None:
    hierarchy = find("iirc-cifar").hierarchy()
    first = [Schedule.draw(hierarchy, seed=s, first=10, size=5).tasks[0] for s in range(60)]
    times = [sum(name in task for task in first) for name in hierarchy.superclasses]
    assert min(times) >= 20  # of 60, 40 on average
    assert len({task[0] for task in first}) >= 10


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"first": 3}, "task 0 cannot have 3 superclasses: this hierarchy has 2 to choose from"),
        ({"first": 0}, "task 0 cannot have 0 superclasses"),
        ({"size": 0}, "a task needs at least one class"),
        ({"tasks": 0}, "a schedule one task"),
        ({"seed": -1}, "a seed is a whole number from 0, not -1"),
        # After one superclass of two, four classes are free at most, and five are left.
        ({"first": 1, "size": 5}, r"no order with 1 \+ 5 a task.*smaller size"),
    ],
)
def test_what_cannot_be_drawn_is_refused(changed: dict[str, int], message: str) -> None:
    with pytest.raises(ScheduleError, match=message):
        Schedule.draw(BEARS, **({"seed": 0, "first": 1, "size": 2} | changed))


def test_without_superclasses_there_is_no_first_task() -> None:
    with pytest.raises(ScheduleError, match="this hierarchy has 0 to choose from"):
        Schedule.draw(Hierarchy.flat(["a", "b"]), seed=0, first=1, size=1)
