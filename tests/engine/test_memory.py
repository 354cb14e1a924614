"""Memory: what is kept, with which labels, within which limit; herding against brute force."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from polarbear.base.errors import DataError
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.schedule import Schedule
from polarbear.benchmark.stream import Stream
from polarbear.engine.generator import generator_for
from polarbear.engine.task.replay_memory import ReplayMemory, herding, random_choice
from polarbear.named.registry import load

STREAM = load("iirc-shapes", order=0)


def first(column, rows, count):
    return rows[:count]


def filled(tasks, select=first, **limit):
    memory = ReplayMemory()
    for task in STREAM[:tasks]:
        memory = memory.add(task, select, **limit)
    return memory


def test_stored_labels_are_those_of_the_task_an_image_came_in():
    memory = filled(3, per_class=7)
    seen = len(STREAM[3].seen)
    targets = memory.targets(seen)
    assert len(memory) == 7 * len(STREAM[2].seen)
    assert targets.shape == (len(memory), seen)
    shown = {
        (row, column)
        for task in STREAM[:3]
        for row, labels in zip(task.train.rows, task.train.targets, strict=True)
        for column in np.flatnonzero(labels)
    }
    for row, home, labels in zip(memory.rows, memory.classes, targets, strict=True):
        assert labels[home]
        assert {(row, column) for column in np.flatnonzero(labels)} <= shown
        assert not labels[len(STREAM[2].seen) :].any()


def test_one_image_is_kept_under_the_labels_of_two_tasks():
    memory = filled(len(STREAM))
    targets = memory.targets(len(STREAM.classes))
    rows, counts = np.unique(memory.rows, return_counts=True)
    (twice,) = np.nonzero(memory.rows == rows[counts == 2][0])
    assert not (targets[twice[0]] & targets[twice[1]]).any()
    coarse, fine = (STREAM.classes[memory.classes[i]] for i in twice)
    assert STREAM.hierarchy.parent(fine) == coarse


def test_without_a_limit_everything_is_kept_and_nothing_is_selected():
    def refuse(column, rows, count):
        raise AssertionError("nothing to choose")

    memory = filled(3, refuse)
    assert len(memory) == sum(task.train.targets.sum() for task in STREAM[:3])


def test_several_labels_of_one_task_are_all_stored():
    h = Hierarchy.from_children({"bear": ["polar bear", "brown bear"]})
    schedule = Schedule.of([["bear", "polar bear"], ["brown bear"]])
    leaf = ["polar bear"] * 10 + ["brown bear"] * 10
    stream = Stream.build(h, schedule, leaf, ["polar bear"])
    memory = ReplayMemory().add(stream[0], first)
    both = {tuple(map(bool, labels)) for labels in memory.targets(3)[memory.classes == 1]}
    assert both == {(True, True, False)}


def test_a_total_is_shared_by_the_seen_classes_and_cuts_old_lists_from_their_end():
    total, memory = 50, ReplayMemory()
    for task in STREAM[:3]:
        before, memory = memory, memory.add(task, first, total=total)
        share = math.ceil(total / len(task.seen))
        assert np.bincount(memory.classes).tolist() == [share] * len(task.seen)
        for column in range(task.new.start):
            kept, had = (m.rows[m.classes == column] for m in (memory, before))
            assert kept.tolist() == had[:share].tolist()


def test_a_total_replaces_the_limit_of_a_class():
    assert len(filled(1, per_class=1, total=12)) == 12


def test_a_class_with_fewer_images_than_the_limit_gives_all_of_them():
    memory = filled(1, per_class=10**6)
    assert len(memory) == len(STREAM[0].train)


def test_selection_is_asked_for_each_class_and_its_order_is_kept():
    asked = []

    def backwards(column, rows, count):
        asked.append((column, count, rows.tolist()))
        return rows[::-1][:count]

    memory = filled(1, backwards, per_class=3)
    view = STREAM[0].train
    for column, count, rows in asked:
        assert count == 3
        assert rows == view.rows[view.targets[:, column]].tolist()
        assert memory.rows[memory.classes == column].tolist() == rows[::-1][:3]


def test_adding_leaves_the_memory_it_was_added_to_alone():
    one = filled(1, per_class=2)
    rows = one.rows.copy()
    two = one.add(STREAM[1], first, per_class=2)
    assert one.rows.tolist() == rows.tolist()
    assert len(two) > len(one)
    with pytest.raises(ValueError, match="read-only"):
        two.rows[0] = 1


@pytest.mark.parametrize("tasks", [0, 1, 4])
def test_a_memory_survives_as_arrays(tasks):
    memory = filled(tasks, per_class=5)
    arrays = {name: array.copy() for name, array in memory.to_arrays().items()}
    back = ReplayMemory.from_arrays(arrays)
    seen = len(STREAM[tasks].seen)
    for one, other in zip(extended(memory, tasks), extended(back, tasks), strict=True):
        assert one.rows.tolist() == other.rows.tolist()
        assert one.classes.tolist() == other.classes.tolist()
        assert np.array_equal(one.targets(seen), other.targets(seen))


def extended(memory, tasks):
    return memory, memory.add(STREAM[tasks], first, total=30)


def test_damaged_arrays_are_refused():
    arrays = filled(2, per_class=5).to_arrays()
    with pytest.raises(DataError, match="lacks the arrays labels, rows"):
        ReplayMemory.from_arrays({k: v for k, v in arrays.items() if k not in ("rows", "labels")})
    with pytest.raises(DataError, match=r"should have 55 rows .* has 54"):
        ReplayMemory.from_arrays(arrays | {"rows": arrays["rows"][:-1]})


@pytest.mark.parametrize("limit", [{"per_class": 0}, {"total": -1}])
def test_a_limit_below_one_is_refused(limit):
    with pytest.raises(DataError, match=r"(per_class=0|total=-1): .* at least 1 .*None keeps all"):
        filled(1, **limit)


def test_a_task_is_added_once():
    with pytest.raises(DataError, match=f"class '{STREAM[0].classes[0]}' is in memory already"):
        filled(1, per_class=1).add(STREAM[0], first, per_class=1)


def test_labels_do_not_fit_fewer_classes_than_were_seen():
    with pytest.raises(DataError, match="seen=3: this memory has labels of 6 classes"):
        filled(1, per_class=1).targets(3)


@pytest.mark.parametrize("wrong", [lambda rows: rows[[0, 0]], lambda rows: np.array([10**6])])
def test_a_selection_gives_rows_of_its_class_once(wrong):
    with pytest.raises(DataError, match="rows of the class it was asked for, none twice"):
        filled(1, lambda column, rows, count: wrong(rows), per_class=2)


def test_random_choice_is_uniform_without_replacement_and_by_key():
    rows = np.arange(100, 110)
    drawn = np.array([random_choice(rows, 4, generator_for(1, "memory", i)) for i in range(4000)])
    assert all(len(set(one)) == 4 for one in drawn.tolist())
    # 4000 draws of 4 in 10: 1600 of each row, deviation 31; of each row in first place 400 ± 19.
    counts = np.bincount(drawn.ravel(), minlength=110)[100:]
    assert (abs(counts - 1600) < 160).all()
    assert (abs(np.bincount(drawn[:, 0], minlength=110)[100:] - 400) < 100).all()
    again = random_choice(rows, 4, generator_for(1, "memory", 0))
    assert again.tolist() == drawn[0].tolist()


def test_random_choice_gives_all_where_there_are_fewer():
    assert sorted(random_choice(np.arange(3), 20, generator_for(1, "memory"))) == [0, 1, 2]


def distances(features, chosen, scale_mean=False):
    """For each image left: how far its mean with the chosen ones is from the mean of all."""
    unit = [row / max(np.linalg.norm(row), 1e-12) for row in features]
    target = sum(unit) / len(unit)
    if scale_mean:
        target = target / np.linalg.norm(target)
    found = {}
    for i in range(len(unit)):
        if i not in chosen:
            mean = sum(unit[k] for k in [*chosen, i]) / (len(chosen) + 1)
            found[i] = math.sqrt(sum((a - b) ** 2 for a, b in zip(mean, target, strict=True)))
    return found


@given(seed=st.integers(0, 10**6), n=st.integers(1, 25), d=st.integers(2, 6), k=st.integers(1, 30))
def test_every_choice_of_herding_is_the_best_by_brute_force(seed, n, d, k):
    features = np.random.default_rng(seed).normal(0.3, 1, (n, d)).astype(np.float32)
    chosen = herding(features, k).tolist()
    assert len(chosen) == min(n, k)
    for size, choice in enumerate(chosen):
        left = distances(features.astype(float), chosen[:size])
        # Of two images, both are equally good at first: only rounding decides.
        assert left[choice] <= min(left.values()) + 1e-9


def test_herding_does_not_scale_the_mean_to_length_one():
    features = np.random.default_rng(1).normal(0.3, 1, (30, 4))
    chosen, scaled = herding(features, 5).tolist(), []
    for _ in range(5):
        left = distances(features, scaled, scale_mean=True)
        scaled.append(min(left, key=left.__getitem__))
    assert chosen != scaled


def test_herding_looks_at_directions_only():
    random = np.random.default_rng(0)
    features = random.normal(0.3, 1, (30, 4))
    louder = features * random.uniform(0.1, 10, (30, 1))
    assert herding(features, 10).tolist() == herding(louder, 10).tolist()


def test_a_shorter_herd_is_the_start_of_a_longer_one():
    features = np.random.default_rng(0).normal(size=(40, 5))
    assert herding(features, 5).tolist() == herding(features, 40)[:5].tolist()
    assert sorted(herding(features, 40)) == list(range(40))


def test_herding_of_nothing_gives_nothing():
    assert herding(np.empty((0, 0)), 3).tolist() == []


def test_zero_features_do_not_give_nan():
    assert herding(np.zeros((3, 2)), 2).tolist() == [0, 1]


def test_memory_and_method_names_need_no_torch():
    code = (
        "import sys, polarbear.engine.task.replay_memory, polarbear.methods.catalogue as c;"
        "[c.summary(n) for n in c.method_names()]; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    loud = code.replace("[c.", "from polarbear.methods.registry import resolve; resolve('er'); [c.")
    assert subprocess.run([sys.executable, "-c", loud]).returncode == 1
