"""Forward transfer: what a learner says of a task's images before it has met the task."""

from collections.abc import Iterable

import numpy as np

from polarbear.base.arrays import Bools, Floats
from polarbear.benchmark.stream import Stream
from polarbear.score.metrics import pw_jaccard


def before_arrival(stream: Stream, task: int, predicted: Bools) -> float:
    """Return pw-JS right before a task, on its test images that carry a class seen by then.

    ``predicted`` (n, s) is for ``stream.test(task - 1)``. Such images are those of subclasses whose
    superclass came before; NaN where there are none.
    """
    view, tree = stream.test(task - 1), stream.hierarchy
    new = [tree.index(name) for name in stream.schedule.tasks[task]]
    mine = np.any(tree.closure[view.leaf][:, new], axis=1)
    return float(pw_jaccard(predicted, view.targets)[mine].mean()) if mine.any() else float("nan")


def mean_so_far(before: Floats, done: Iterable[int]) -> Floats:
    """Return, after each task done, the mean over the tasks so far that have a value: (T,).

    >>> mean_so_far(np.array([np.nan, 0.5, np.nan, 0.7]), [0, 1, 2]).tolist()
    [nan, 0.5, 0.5, nan]
    """
    means = np.full(len(before), np.nan)
    for after in done:
        there = before[: after + 1][~np.isnan(before[: after + 1])]
        means[after] = there.mean() if there.size else np.nan
    return means
