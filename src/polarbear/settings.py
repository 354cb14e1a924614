"""Everything that decides what a run does, with IIRC-CIFAR's published values as defaults."""

from dataclasses import asdict, dataclass, field, fields
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from polarbear.errors import PolarbearError, unknown_name

Precision = Literal["auto", "fp32", "tf32", "bf16"]


@dataclass(frozen=True)
class Settings:
    """One run: with the same settings, versions and data, a CPU gives the same bytes of scores."""

    method: str
    """Name of a method, or the dotted path of a class of your own (``package.module:Class``)."""
    benchmark: str = "iirc-cifar"
    """Name of a benchmark."""
    order: int = 0
    """Published class order."""
    seed: int = 100
    """Seed of weights, shuffling, augmentation and memory."""

    epochs: int = 140
    """Epochs a task."""
    first_task_factor: float = 2.0
    """The first task trains this many times as long."""
    batch_size: int = 128
    """Images a step; the last, partial batch of an epoch is kept."""
    learning_rate: float = 1.0
    """Rate at the start of every task."""
    momentum: float = 0.9
    """Momentum of SGD, without Nesterov."""
    weight_decay: float = 1e-5
    """Decay of every parameter."""
    plateau_patience: int = 10
    """Epochs without a better in-task validation score before the rate falls."""
    plateau_factor: float = 0.1
    """What the rate is multiplied with then."""
    plateau_threshold: float = 1e-3
    """How much better counts as better (absolute)."""

    network: str = "resnet32"
    """Name of a network, or the dotted path of a factory of your own."""
    preparation: str | None = None
    """Augmentation and normalisation: cifar, imagenet or plain; None takes the benchmark's."""
    memory_per_class: int | None = 20
    """Replay images kept for each class; None keeps all."""
    memory_total: int | None = None
    """Replay images kept in all, shared by the seen classes; replaces memory_per_class."""
    decision: str = "threshold"
    """Rule that turns scores into labels: threshold, top1 or top1-per-level."""
    options: dict[str, Any] = field(default_factory=dict)
    """The method's own settings."""

    device: str = "auto"
    """auto (a GPU where there is one), cpu, cuda or cuda:N."""
    precision: Precision = "auto"
    """auto (bf16 on a GPU, fp32 on a CPU), fp32, tf32 or bf16; weights are always fp32."""
    graph: bool = True
    """Capture a task's steps as CUDA graphs, on a GPU."""
    fused: bool = True
    """Use fused kernels, on a GPU in bf16, for the networks that have them: resnet20 to 56."""
    compile: bool = False
    """Compile the network (torch.compile, half a minute), instead of using fused kernels."""
    keep_scores: bool = False
    """Keep test scores as float16, for other decision rules and metrics later."""
    tasks: int | None = None
    """Stop after this many tasks; None goes through all."""

    def __post_init__(self) -> None:
        """Refuse values no run can have."""
        for name, hint in get_type_hints(type(self)).items():
            if not fits(getattr(self, name), hint):
                _refuse(name, getattr(self, name), hint)
        for name, low in _AT_LEAST.items():
            value = getattr(self, name)
            if value is not None and not value >= low:
                raise PolarbearError(f"{name} must be at least {low}, not {value!r}")
        if self.memory_per_class == 0 or self.memory_total == 0:
            raise PolarbearError(
                "a memory of 0 images replays nothing: use the method 'finetune' for that, "
                "or give memory_per_class a number from 1 (None keeps all)"
            )

    def epochs_of(self, task: int) -> int:
        """Give the number of epochs of a task."""
        return max(1, round(self.epochs * self.first_task_factor)) if task == 0 else self.epochs

    def to_dict(self) -> dict[str, Any]:
        """Give plain data for a manifest."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Settings":
        """Build from plain data; an unknown key is an error that names the nearest one."""
        names = [f.name for f in fields(cls)]
        for key in values:
            if key not in names:
                raise unknown_name("setting", key, names)
        if "method" not in values:
            raise PolarbearError("a run needs a method: name one, such as 'er'")
        return cls(**values)


_AT_LEAST = {
    "order": 0,
    "seed": 0,
    "epochs": 1,
    "first_task_factor": 0.01,
    "batch_size": 1,
    "learning_rate": 0.0,
    "momentum": 0.0,
    "weight_decay": 0.0,
    "plateau_patience": 0,
    "plateau_factor": 0.0,
    "plateau_threshold": 0.0,
    "memory_per_class": 0,
    "memory_total": 0,
    "tasks": 1,
}


def fits(value: object, hint: Any) -> bool:
    """Whether a value is of a type: a plain one, a union, a ``Literal`` or a container.

    >>> fits(3, float), fits(True, int), fits(None, int | None), fits("fp8", Precision)
    (True, False, True, False)
    >>> fits(3, Any)
    True
    """
    if hint is Any:
        return True
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in args)
    if origin is Literal:
        return value in args
    if hint in (int, float):
        allowed = int if hint is int else (int, float)
        return isinstance(value, allowed) and not isinstance(value, bool)
    kind = NoneType if hint is None else origin or hint
    # What cannot be asked of a value, such as a TypeVar, is true of all.
    return not isinstance(kind, type) or isinstance(value, kind)


def _refuse(name: str, value: object, hint: Any) -> NoReturn:
    if get_origin(hint) is Literal:
        raise unknown_name(name, value, get_args(hint))
    shown = hint.__name__ if isinstance(hint, type) else str(hint)
    raise PolarbearError(f"{name} must be {shown}, not {value!r}")
