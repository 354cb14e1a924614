"""A trainer as a checkpoint, and a checkpoint as a trainer that goes on exactly there."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor

from polarbear.base.errors import PolarbearError
from polarbear.engine.contract.method import Method, frozen_copy
from polarbear.engine.nets.model import Model
from polarbear.engine.task.labels import Labels
from polarbear.engine.task.learner import Learner
from polarbear.engine.task.optimiser import restore_state, saved_state
from polarbear.engine.task.plateau import Plateau
from polarbear.engine.task.replay_memory import ReplayMemory
from polarbear.engine.task.training_set import TrainingSet
from polarbear.engine.trainer import Progress, Trainer
from polarbear.launch.checkpoint import Checkpoint


def take_snapshot(trainer: Trainer) -> Checkpoint:
    """Return all that decides how a run goes on; the networks are the run's own, not copies."""
    trainer.refuse_divergence()
    learner, begun = trainer.learner, trainer.progress.begun
    groups: dict[str, Mapping[str, Tensor]] = {
        "model": learner.model.state_dict(),
        "best": trainer.best,
        "optimiser": saved_state(trainer.optimiser, learner.method) if begun else {},
        "memory": {
            k: torch.tensor(np.asarray(a)) for k, a in learner.memory_now().to_arrays().items()
        },
        "losses": {"epoch": torch.tensor(trainer.loss_values())},
        "method": learner.method.state(),
        "logged": learner.method.logged,
    }
    if trainer.progress.phase > 0:  # chosen with the weights that the phase began with
        chosen = trainer.images.training_set
        arrays = {"rows": chosen.rows, "targets": chosen.targets, "places": chosen.places}
        groups["phase"] = {name: torch.tensor(array) for name, array in arrays.items()}
        groups["phase-stored"] = chosen.stored
    networks = _networks(learner)
    tensors = {f"{group}/{name}": t for group, part in groups.items() for name, t in part.items()}
    facts = {"progress": asdict(trainer.progress), "sizes": _sizes(learner.model)}
    if networks:
        facts["network_sizes"] = {group: _sizes(one) for group, one in networks.items()}
    return Checkpoint(
        {k: t.detach().cpu().clone() for k, t in tensors.items()},
        facts,
        {group: network.state_dict() for group, network in networks.items()},
    )


def restore(trainer: Trainer, checkpoint: Checkpoint) -> None:
    """Bring a fresh trainer to where a checkpoint was taken."""
    learner, facts = trainer.learner, checkpoint.facts
    progress = {k: _number(v) for k, v in facts["progress"].items() if k != "plateau"}
    plateau = Plateau(**{k: _number(v) for k, v in facts["progress"]["plateau"].items()})
    trainer.progress = Progress(**progress, plateau=plateau)
    memory = _group(checkpoint, "memory")
    learner.memory = ReplayMemory.from_arrays({name: t.numpy() for name, t in memory.items()})
    trainer.losses = _group(checkpoint, "losses")["epoch"].double().numpy()
    own, device = _restore_weights(learner, checkpoint), learner.machine.device
    if not trainer.progress.begun:
        learner.method.load_state(own)
    else:
        networks = dict(learner.method.networks)
        if type(learner.method).load_state is Method.load_state:
            _bring_back_buffers(learner.method, own)
        # In begin_task a method may build on what it has, and change that and the weights: those of
        # the checkpoint come back after.
        trainer.prepare_method()
        learner.model.load_state_dict(_group(checkpoint, "model"))
        learner.method.load_state(own)
        learner.method.networks.clear()
        for name, network in networks.items():
            network.load_state_dict(_network(checkpoint, f"network/{name}"))
            learner.method.networks[name] = network
        trainer.ask_for_phases()
    learner.machine.place(learner.model)
    logged = _group(checkpoint, "logged")
    learner.method.logged = {name: total.to(device) for name, total in logged.items()}
    if trainer.progress.begun:
        given = {name: tensor.numpy() for name, tensor in _group(checkpoint, "phase").items()}
        # With an optimiser of the parameters that there are now.
        stored = {name: t.to(device) for name, t in _group(checkpoint, "phase-stored").items()}
        chosen = None
        if given:
            labels = Labels.of_targets(given["targets"])
            chosen = TrainingSet(given["rows"], labels, given["places"], stored)
        trainer.prepare_phase(chosen)
        # Earlier versions had SGD alone, and its momentum by the names of the parameters.
        momentum = _group(checkpoint, "momentum").items()
        earlier = {f"momentum_buffer/{name}": buffer for name, buffer in momentum}
        saved = earlier | _group(checkpoint, "optimiser")
        restore_state(trainer.optimiser, learner.method, saved)
        best = _group(checkpoint, "best")
        trainer.best = {name: t.to(learner.machine.device) for name, t in best.items()}


def restore_learnt(learner: Learner, checkpoint: Checkpoint) -> None:
    """Bring to a fresh learner what it had learnt at the end of a task, and no more."""
    learner.method.load_state(_restore_weights(learner, checkpoint))
    learner.machine.place(learner.model)
    learner.method.to(learner.machine.device)


def _restore_weights(learner: Learner, checkpoint: Checkpoint) -> dict[str, Tensor]:
    """Bring back the model and frozen networks; returns the tensors that are the method's own."""
    _restore_networks(learner, checkpoint)
    _resize(learner.model, checkpoint.facts["sizes"])
    learner.model.load_state_dict(_group(checkpoint, "model"))
    device = learner.machine.device
    return {name: tensor.to(device) for name, tensor in _group(checkpoint, "method").items()}


def _bring_back_buffers(method: Method, own: Mapping[str, Tensor]) -> None:
    """Let ``begin_task`` find the buffers there were; it may change these copies in place."""
    for name, tensor in own.items():
        if "." not in name and name not in method._parameters:
            method.register_buffer(name, tensor.clone())


def _networks(learner: Learner) -> dict[str, Model]:
    """Return the frozen networks a method has, by the name of their group of tensors."""
    for name in learner.method.networks:
        if not isinstance(name, str) or "/" in name:
            raise PolarbearError(
                f"{type(learner.method).__name__} keeps a network under {name!r}: its name must be "
                "a text without '/', so that checkpoints can hold it"
            )
    found = {f"network/{name}": one for name, one in learner.method.networks.items()}
    teacher = learner.method.teacher
    return found if teacher is None else found | {"teacher": teacher}


def _restore_networks(learner: Learner, checkpoint: Checkpoint) -> None:
    facts = checkpoint.facts
    sizes = dict(facts.get("network_sizes", {}))
    if "teacher_sizes" in facts:  # as earlier versions wrote it
        sizes["teacher"] = facts["teacher_sizes"]
    for group, its_sizes in sizes.items():
        _resize(learner.model, its_sizes)
        learner.machine.place(learner.model)
        network = frozen_copy(learner.model)
        network.load_state_dict(_network(checkpoint, group))
        if group == "teacher":
            learner.method.teacher = network
        else:
            learner.method.networks[group.removeprefix("network/")] = network


def _sizes(model: Model) -> tuple[int, int]:
    return model.head.sizes  # type: ignore[return-value]


def _resize(model: Model, sizes: list[int]) -> None:
    model.head.resize(*sizes)  # type: ignore[operator]


def _group(checkpoint: Checkpoint, group: str) -> dict[str, Tensor]:
    prefix = f"{group}/"
    return {k[len(prefix) :]: t for k, t in checkpoint.tensors.items() if k.startswith(prefix)}


def _network(checkpoint: Checkpoint, group: str) -> Mapping[str, Tensor]:
    """Return a frozen network's tensors: of its own file, or as earlier versions wrote it."""
    own = checkpoint.networks.get(group)
    return _group(checkpoint, group) if own is None else own


def _number(value: Any) -> Any:
    """JSON has no infinity: null stands for "no score yet"."""
    return float("-inf") if value is None else value
