"""What each phase of a task trains on."""

import logging
from dataclasses import replace

import numpy as np

from polarbear.base.arrays import Ints
from polarbear.base.errors import PolarbearError
from polarbear.benchmark.stream import Stream, Task
from polarbear.engine.contract.phase import Phase
from polarbear.engine.generator import generator_for
from polarbear.engine.task.learner import Learner
from polarbear.engine.task.replay_memory import ReplayMemory, random_choice
from polarbear.engine.task.selection import RESERVOIR
from polarbear.engine.task.stored import tables
from polarbear.engine.task.training_set import TaskImages, TrainingSet, training_view

log = logging.getLogger("polarbear")


def later_phases(learner: Learner, task: int) -> tuple[Phase, ...]:
    """Return the phases that a method wants after a task's main one.

    Without those on images held out, where memory can spare none: images of new classes alone
    would teach such a phase that all others are rare.
    """
    method, memory = learner.method, learner.memory
    wanted = tuple(method.phases())
    if not method.held_out or not len(memory) or _most_of_a_class(memory) > 1:
        return wanted
    for phase in wanted:
        if phase.on == "held_out":
            log.warning(
                "task %d goes without the phase %r: memory has one image of each class and can "
                "hold none out for it. Give memory_per_class or memory_total a higher value",
                *(task, phase.name),
            )
    return tuple(phase for phase in wanted if phase.on != "held_out")


def main_images(learner: Learner, stream: Stream, task: int) -> TaskImages:
    """Return what a task's main phase trains on: all but what is held out, or a balanced set."""
    images = TaskImages.of(stream, task, learner)
    if learner.method.trains_on == "balanced":
        return replace(images, training_set=_balanced(learner, stream[task]))
    everything, kept_out = images.training_set, _held_out(learner, images, task)
    if not kept_out.size:
        return images
    # By row: the same image may be there twice, with the labels of two tasks.
    rest = np.flatnonzero(~np.isin(everything.rows, everything.rows[kept_out]))
    return replace(images, training_set=everything.take(rest))


def task_rows(learner: Learner, stream: Stream, task: int) -> Ints:
    """Return every training row that a task's phases and its validation look at, ascending."""
    complete = learner.method.complete
    valid = stream.valid(after=task) if complete else stream[task].valid
    own = training_view(stream, task, complete)
    return np.unique(np.concatenate([own.rows, valid.rows, learner.memory_now().rows]))


def phase_set(learner: Learner, stream: Stream, task: int, phase: Phase) -> TrainingSet:
    """Return what a later phase of a task trains on."""
    method, images = learner.method, TaskImages.of(stream, task, learner)
    seen, stored = len(stream[task].seen), images.training_set.stored
    chosen = {
        "all": lambda: main_images(learner, stream, task).training_set,
        "task": lambda: replace(
            TrainingSet.of(training_view(stream, task, method.complete)), stored=stored
        ),
        "memory": lambda: replace(TrainingSet.of_memory(learner.memory, seen), stored=stored),
        "balanced": lambda: _balanced(learner, stream[task]),
        "held_out": lambda: images.training_set.take(_held_out(learner, images, task)),
    }
    if method.selection == RESERVOIR:  # its steps have filled it already
        chosen["balanced"] = chosen["memory"]
    training_set = chosen[phase.on]()
    if not len(training_set):
        raise PolarbearError(
            f"the phase {phase.name!r} of {type(method).__name__} has no images: there are none "
            f"{phase.on!r} in task {task} with replay = {method.replay!r} and held_out = "
            f"{method.held_out}"
        )
    return training_set


def _balanced(learner: Learner, task: Task) -> TrainingSet:
    """Return the memory as it would be if the task ended now."""
    memory = learner.filled(task)
    return TrainingSet(
        memory.rows,
        memory.labels(len(task.seen)),
        np.where(memory.classes < task.new.start, np.arange(len(memory)), -1),
        tables(memory.stored, learner.machine.device),
    )


def _held_out_per_class(held_out: float, memory: ReplayMemory) -> int:
    """Return how many images of each class are held out: a number, or a part of memory's.

    None where memory has one of each class at most.
    """
    most = _most_of_a_class(memory) if held_out else 0
    if most < 2:
        return 0
    return int(held_out) if held_out >= 1 else max(1, int(held_out * most))


def _most_of_a_class(memory: ReplayMemory) -> int:
    """Return how many images the class has that memory has most of."""
    return int(np.bincount(memory.classes, minlength=1).max())


def _held_out(learner: Learner, images: TaskImages, task: int) -> Ints:
    """Return the positions of what a task's training set lacks in its main phase.

    Of each class as many of the task's images as of memory's: in the first task, none. Never more
    than half of what a class has.
    """
    memory, found = learner.memory, images.training_set
    count = _held_out_per_class(learner.method.held_out, memory)
    own, chosen = len(found) - len(memory), [np.empty(0, dtype=np.intp)]
    labels = found.labels.take(slice(own))
    for column in np.flatnonzero(labels.counts).tolist() if count else ():
        random = generator_for(learner.settings.seed, "held-out", task, int(column))
        rows = np.flatnonzero(labels.having(column))
        chosen.append(random_choice(rows, min(count, len(rows) // 2), random))
    for column in np.unique(memory.classes) if count else ():
        stored = np.flatnonzero(memory.classes == column)
        chosen.append(own + stored[max(len(stored) - count, -(-len(stored) // 2)) :])
    return np.unique(np.concatenate(chosen))
