"""The weights of a task's best epoch: copied when it is over, put back when the task ends."""

import torch
from torch import Tensor

from polarbear.engine.task.learner import Learner
from polarbear.engine.task.optimiser import own_parameters

Weights = dict[str, Tensor]


def weights_of(learner: Learner) -> Weights:
    """Return what is kept of a best epoch: the tensors themselves, by name.

    Asked for anew in every epoch: a network may put another tensor in the place of a buffer.
    """
    found: Weights = learner.model.state_dict()
    return found | own_parameters(learner.method)


@torch.no_grad()
def copied(weights: Weights, earlier: Weights) -> Weights:
    """Return copies of weights, in the place of an earlier epoch's where names are the same."""
    if earlier.keys() != weights.keys():
        return {name: tensor.clone() for name, tensor in weights.items()}
    torch._foreach_copy_([earlier[name] for name in weights], list(weights.values()))
    return earlier


@torch.no_grad()
def put_back(learner: Learner, best: Weights) -> None:
    """Let a learner go on with the weights of its best epoch."""
    models = dict(best)
    for name, parameter in own_parameters(learner.method).items():
        if name in models:  # checkpoints of earlier versions have the model's alone
            parameter.copy_(models.pop(name))
    learner.model.load_state_dict(models)
