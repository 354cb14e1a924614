"""What a learner keeps from one task to the next beside its network, in bytes."""

from collections.abc import Iterable

import numpy as np
from torch import Tensor

from polarbear.benchmark.stream import Stream
from polarbear.engine.task.learner import Learner
from polarbear.engine.task.training_set import training_view


def kept_bytes(learner: Learner, stream: Stream, task: int) -> dict[str, int]:
    """Return the bytes of stored images, of what is stored with them, of networks and tensors.

    An image counts as the source has it, a byte a channel, as often as it is stored. A method that
    trains on all data so far keeps them all. The teacher is the network itself, as the task ended.
    """
    method, memory = learner.method, learner.memory_now()
    every = method.complete or method.joint
    images = len(training_view(stream, task, complete=True)) if every else len(memory)
    networks = (tensor for one in method.networks.values() for tensor in one.state_dict().values())
    return {
        "images": images * np.asarray(stream.images("train")[0]).nbytes,
        "stored": sum(array.nbytes for array in memory.stored.values()),
        "networks": _bytes(networks),
        "tensors": _bytes(method.state().values()),
    }


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)
