"""What moves the weights: SGD or AdamW over a method's groups of parameters."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from polarbear.base.errors import PolarbearError, unknown_name
from polarbear.engine.contract.method import Method
from polarbear.engine.world import World
from polarbear.settings.settings import Settings

GROUP_KEYS = ("params", "rate", "weight_decay")


def build_optimiser(
    method: Method, given: list[dict[str, Any]], settings: Settings, device: torch.device
) -> torch.optim.Optimizer:
    """Return a fresh optimiser of a method's groups of parameters."""
    groups = _groups(method, given)
    usual: dict[str, Any] = {
        "lr": settings.learning_rate,
        "weight_decay": settings.weight_decay,
        "fused": device.type == "cuda",
    }
    if settings.optimiser == "adamw":
        betas = (settings.momentum, 0.999)
        return torch.optim.AdamW(groups, betas=betas, capturable=device.type == "cuda", **usual)
    return torch.optim.SGD(groups, momentum=settings.momentum, nesterov=settings.nesterov, **usual)


def parameters_of(optimiser: torch.optim.Optimizer) -> Iterator[Tensor]:
    """Return all that an optimiser moves."""
    return (parameter for group in optimiser.param_groups for parameter in group["params"])


def drop_gradients(method: Method) -> None:
    """Let every gradient begin anew, also of parameters that no optimiser moves."""
    for parameter in (*method.model.parameters(), *method.parameters()):
        parameter.grad = None


@torch.no_grad()
def average_gradients(
    optimiser: torch.optim.Optimizer, also: Sequence[Tensor], loss: Tensor, world: World
) -> Tensor:
    """Give all processes the mean gradients, and those of other tensors; returns the mean loss.

    All is sent as one, and each process counts by its share of the step's images.
    """
    own = [*(p.grad for p in parameters_of(optimiser) if p.grad is not None), *also]
    *means, mean = world.averaged([*own, loss.float()])
    for tensor, average in zip(own, means, strict=True):
        tensor.copy_(average)
    return mean


def clip_and_step(optimiser: torch.optim.Optimizer, settings: Settings) -> None:
    """Move the parameters by their gradients, shortened together where they are too long."""
    if settings.clip is not None:
        torch.nn.utils.clip_grad_norm_(parameters_of(optimiser), settings.clip)
    optimiser.step()


def own_parameters(method: Method) -> dict[str, nn.Parameter]:
    """Return the trainable parameters of a method itself, by names that no model has."""
    named = method.named_parameters()
    return {f"method.{name}": parameter for name, parameter in named if parameter.requires_grad}


def fill_state(optimiser: torch.optim.Optimizer) -> None:
    """Begin what an optimiser remembers of each parameter with 0, where it is not there yet.

    That equals what it begins with at its first step, but a captured step must find it.
    """
    for parameter in parameters_of(optimiser):
        state = optimiser.state[parameter]
        if isinstance(optimiser, torch.optim.AdamW):
            for name in ("exp_avg", "exp_avg_sq"):
                state.setdefault(name, torch.zeros_like(parameter))
            state.setdefault("step", torch.zeros((), device=parameter.device))
        elif state.get("momentum_buffer") is None:
            state["momentum_buffer"] = torch.zeros_like(parameter)


def state_tensors(optimiser: torch.optim.Optimizer) -> list[Tensor]:
    """Return all that an optimiser remembers."""
    states = (optimiser.state[parameter] for parameter in parameters_of(optimiser))
    return [tensor for state in states for tensor in state.values() if isinstance(tensor, Tensor)]


def saved_state(optimiser: torch.optim.Optimizer, method: Method) -> dict[str, Tensor]:
    """Return what an optimiser remembers by names that last: ``momentum_buffer/head.weight``."""
    return {
        f"{what}/{name}": tensor
        for name, parameter in _named(method).items()
        for what, tensor in optimiser.state.get(parameter, {}).items()
        if isinstance(tensor, Tensor)
    }


def restore_state(
    optimiser: torch.optim.Optimizer, method: Method, saved: Mapping[str, Tensor]
) -> None:
    """Let an optimiser remember what :func:`saved_state` gave."""
    parameters = _named(method)
    for key, tensor in saved.items():
        what, _, name = key.partition("/")
        parameter = parameters[name]
        # A moving average lies in memory as its parameter does; a count of steps is one number.
        like = parameter if tensor.shape == parameter.shape else tensor
        own = torch.empty_like(like, dtype=tensor.dtype, device=parameter.device)
        optimiser.state[parameter][what] = own.detach().copy_(tensor)


def _named(method: Method) -> dict[str, nn.Parameter]:
    return dict(method.model.named_parameters()) | own_parameters(method)


def _groups(method: Method, all_given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a method's groups as PyTorch takes them, without parameters that are frozen."""
    groups = []
    for given in all_given:
        for key in given:
            if key not in GROUP_KEYS:
                raise unknown_name("key of a parameter group", key, GROUP_KEYS)
        group = {"rate": 1.0, **given, "params": _trainable(given)}
        for key in ("rate", "weight_decay"):
            if key in group and not 0 <= group[key] < float("inf"):
                raise PolarbearError(
                    f"the {key} of a parameter group must be a number from 0, not {group[key]!r}"
                )
        if group["params"]:
            groups.append(group)
    if not groups:
        raise PolarbearError(
            f"{type(method).__name__}.parameter_groups() has no trainable parameter: nothing "
            "would be learnt"
        )
    places = [id(parameter) for group in groups for parameter in group["params"]]
    there = {id(parameter) for parameter in (*method.model.parameters(), *method.parameters())}
    if not there.issuperset(places):
        raise PolarbearError(
            f"{type(method).__name__}.parameter_groups() has a parameter that is neither the "
            "model's nor the method's, so no checkpoint would hold it: make it or its module an "
            "attribute of the method"
        )
    if len(set(places)) < len(places):
        raise PolarbearError(
            f"{type(method).__name__}.parameter_groups() has a parameter twice: each belongs "
            "to one group"
        )
    return groups


def _trainable(group: Mapping[str, Any]) -> list[Tensor]:
    given = group.get("params", ())
    parameters = [given] if isinstance(given, Tensor) else list(given)
    for parameter in parameters:
        if not isinstance(parameter, nn.Parameter):
            raise PolarbearError(
                "the params of a parameter group must be nn.Parameters, such as "
                f"self.model.head.parameters(), not {type(parameter).__name__}"
            )
    return [parameter for parameter in parameters if parameter.requires_grad]
