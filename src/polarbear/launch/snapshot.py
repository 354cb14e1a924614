"""A trainer as a checkpoint, and a checkpoint as a trainer that goes on exactly there."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polarbear.engine.contract.method import frozen_copy
from polarbear.engine.nets.model import Model
from polarbear.engine.task.learner import Learner
from polarbear.engine.task.plateau import Plateau
from polarbear.engine.task.replay_memory import ReplayMemory
from polarbear.engine.trainer import Progress, Trainer
from polarbear.launch.checkpoint import Checkpoint


def take_snapshot(trainer: Trainer) -> Checkpoint:
    """Return all that decides how a run goes on."""
    trainer.refuse_divergence()
    learner = trainer.learner
    groups: dict[str, Mapping[str, Tensor]] = {
        "model": learner.model.state_dict(),
        "best": trainer.best,
        "momentum": _momentum(trainer) if trainer.progress.begun else {},
        "memory": {
            k: torch.tensor(np.asarray(a)) for k, a in learner.memory_now().to_arrays().items()
        },
        "losses": {"epoch": torch.tensor(trainer.loss_values())},
        "method": learner.method.state(),
    }
    if learner.method.teacher is not None:
        groups["teacher"] = learner.method.teacher.state_dict()
    tensors = {f"{group}/{name}": t for group, part in groups.items() for name, t in part.items()}
    facts = {"progress": asdict(trainer.progress), "sizes": _sizes(learner.model)}
    if learner.method.teacher is not None:
        facts["teacher_sizes"] = _sizes(learner.method.teacher)
    return Checkpoint({k: t.detach().cpu().clone() for k, t in tensors.items()}, facts)


def restore(trainer: Trainer, checkpoint: Checkpoint) -> None:
    """Bring a fresh trainer to where a checkpoint was taken."""
    learner, facts = trainer.learner, checkpoint.facts
    progress = {k: _number(v) for k, v in facts["progress"].items() if k != "plateau"}
    plateau = Plateau(**{k: _number(v) for k, v in facts["progress"]["plateau"].items()})
    trainer.progress = Progress(**progress, plateau=plateau)
    memory = _group(checkpoint, "memory")
    learner.memory = ReplayMemory.from_arrays({name: t.numpy() for name, t in memory.items()})
    trainer.losses = _group(checkpoint, "losses")["epoch"].double().numpy()
    if trainer.progress.begun:
        _restore_teacher(learner, checkpoint)
    _resize(learner.model, facts["sizes"])
    learner.model.load_state_dict(_group(checkpoint, "model"))
    if trainer.progress.begun:
        # A method may change weights in begin_task, so those of the checkpoint come back after.
        trainer.prepare_method()
        learner.model.load_state_dict(_group(checkpoint, "model"))
    learner.machine.place(learner.model)
    device = learner.machine.device
    learner.method.load_state({k: t.to(device) for k, t in _group(checkpoint, "method").items()})
    if trainer.progress.begun:
        _restore_momentum(trainer, _group(checkpoint, "momentum"))
        best = _group(checkpoint, "best")
        trainer.best = {name: t.to(learner.machine.device) for name, t in best.items()}


def _restore_teacher(learner: Learner, checkpoint: Checkpoint) -> None:
    if weights := _group(checkpoint, "teacher"):
        _resize(learner.model, checkpoint.facts["teacher_sizes"])
        learner.machine.place(learner.model)
        learner.method.teacher = frozen_copy(learner.model)
        learner.method.teacher.load_state_dict(weights)


def _sizes(model: Model) -> tuple[int, int]:
    return model.head.sizes  # type: ignore[return-value]


def _resize(model: Model, sizes: list[int]) -> None:
    model.head.resize(*sizes)  # type: ignore[operator]


def _group(checkpoint: Checkpoint, group: str) -> dict[str, Tensor]:
    prefix = f"{group}/"
    return {k[len(prefix) :]: t for k, t in checkpoint.tensors.items() if k.startswith(prefix)}


def _number(value: Any) -> Any:
    """JSON has no infinity: null stands for "no score yet"."""
    return float("-inf") if value is None else value


def _momentum(trainer: Trainer) -> dict[str, Tensor]:
    state = trainer.optimiser.state
    named = trainer.learner.model.named_parameters()
    buffers = {name: state[p].get("momentum_buffer") for name, p in named if p in state}
    return {name: buffer for name, buffer in buffers.items() if buffer is not None}


def _restore_momentum(trainer: Trainer, buffers: Mapping[str, Tensor]) -> None:
    for name, parameter in trainer.learner.model.named_parameters():
        if name in buffers:
            buffer = torch.empty_like(parameter).copy_(buffers[name])
            trainer.optimiser.state[parameter]["momentum_buffer"] = buffer
