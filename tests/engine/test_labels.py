"""Labels by kind: the matrices that they stand for, without any as long as the images are many."""

from unittest import mock

import numpy as np

from engine_run import shapes_stream, tiny
from polarbear.benchmark.stream import View
from polarbear.engine.task.labels import Labels
from polarbear.engine.task.replay_memory import ReplayMemory
from polarbear.engine.task.training_set import TaskImages, TrainingSet
from polarbear.launch.assembly import build_learner


def first_rows(column: int, rows: np.ndarray, count: int) -> np.ndarray:
    return rows[:count]


def memory_after(tasks: int) -> ReplayMemory:
    memory, stream = ReplayMemory(), shapes_stream()
    for task in stream[:tasks]:
        memory = memory.add(task, first_rows, per_class=4)
    return memory


def test_they_stand_for_the_matrix_they_were_made_of() -> None:
    targets = np.random.default_rng(0).random((50, 3)) < 0.5
    labels = Labels.of_targets(targets)
    assert len(labels.table) == 8
    assert (labels.targets == targets).all()
    assert (labels.counts == targets.sum(axis=0)).all()
    assert (labels.having(1) == targets[:, 1]).all()
    assert (labels.take(slice(7, 20)).targets == targets[7:20]).all()
    both = Labels.joined([labels, labels.take(np.array([3, 1]))])
    assert (both.targets == np.concatenate([targets, targets[[3, 1]]])).all()


def test_no_images_have_no_labels() -> None:
    labels = Labels.of_targets(np.zeros((0, 4), dtype=bool))
    assert labels.targets.shape == (0, 4)
    assert labels.counts.tolist() == [0] * 4


def test_memorys_labels_are_in_the_columns_of_the_task_they_came_in() -> None:
    memory, seen = memory_after(2), len(shapes_stream()[2].seen)
    by_list = np.zeros((len(memory), seen), dtype=bool)
    begin = 0
    for one in memory.lists:
        end = begin + len(one.rows)
        by_list[begin:end, one.first : one.first + one.labels.shape[1]] = one.labels
        begin = end
    assert (memory.labels(seen).targets == by_list).all()
    assert (memory.targets(seen) == by_list).all()


def test_a_training_set_has_the_views_labels_and_memorys() -> None:
    task, memory = shapes_stream()[2], memory_after(2)
    found = TrainingSet.of(task.train, memory)
    due = np.concatenate([task.train.targets, memory.targets(len(task.seen))])
    assert (found.targets == due).all()
    for column in range(len(task.seen)):
        assert (task.train.having(column) == task.train.targets[:, column]).all()


def test_what_a_task_trains_on_is_gathered_without_a_matrix() -> None:
    stream = shapes_stream()
    for method in ("er", "er-infinite", "incremental-joint"):
        learner = build_learner(tiny(method), stream)
        with mock.patch.object(View, "targets", property(lambda view: 1 / 0)):
            for task in stream[:2]:
                images = TaskImages.of(stream, task.index, learner)
                assert images.training_set.labels.counts.sum() > 0
                learner.remember(task)
