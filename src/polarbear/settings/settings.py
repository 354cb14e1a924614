"""Everything that decides what a run does, with IIRC-CIFAR's published values as defaults."""

import math
from dataclasses import Field, asdict, dataclass, field, fields, replace
from itertools import chain, pairwise
from types import NoneType, UnionType
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from polarbear.base.errors import PolarbearError, unknown_name
from polarbear.base.files import plain

Precision = Literal["auto", "fp32", "tf32", "bf16"]
Optimiser = Literal["sgd", "adamw"]
RateSchedule = Literal["plateau", "cosine", "steps", "onecycle", "constant"]
ImagesWay = Literal["auto", "resident", "pinned", "streamed"]
Compile = bool | Literal["auto"]

#: Networks that are compiled on a GPU unless that is refused: large ones, without fused kernels.
WORTH_COMPILING = ("resnet18", "resnet50")

#: What a setting decides. A report tells runs of another arithmetic apart; none departs from the
#: paper by it.
Kind = Literal["run", "result", "arithmetic", "speed", "files"]
KINDS: dict[Kind, str] = {
    "run": "Which run it is, and how far it goes.",
    "result": "What is learnt, and so its scores.",
    "arithmetic": "How the same learner rounds.",
    "speed": "How fast it goes.",
    "files": "What is kept.",
}


def decides(
    kind: Kind, lowest: float | None = None, highest: float = math.inf, words: str = ""
) -> dict[str, Any]:
    """Return a setting's metadata: its kind, a number's limits, and how people call it.

    Without a highest, the benchmark has one.
    """
    return {"kind": kind, "lowest": lowest, "highest": highest, "words": words}


@dataclass(frozen=True)
class Settings:
    """One run: with the same settings, versions and data, a CPU gives the same bytes of scores."""

    method: str = field(metadata=decides("run"))
    """Name of a method, or the dotted path of a class of your own (``package.module:Class``)."""
    benchmark: str = field(default="iirc-cifar", metadata=decides("run"))
    """Name of a benchmark."""
    order: int = field(default=0, metadata=decides("run", 0))
    """Published class order."""
    seed: int = field(default=100, metadata=decides("run", 0, 2**64 - 1))  # what PyTorch takes
    """Seed of weights, shuffling, augmentation and memory."""

    epochs: int = field(default=140, metadata=decides("result", 1, 1_000_000))
    """Epochs per task."""
    first_task_factor: float = field(default=2.0, metadata=decides("result", 0.01, 1_000))
    """Task 0 trains this many times as long."""
    batch_size: int = field(default=128, metadata=decides("result", 1, 1_000_000))
    """Images per step; the last, partial batch of an epoch is kept."""
    accumulate: int = field(default=1, metadata=decides("result", 1, 1_000_000))
    """Take each step's images in this many parts, one after the other: a large batch on a small
    GPU. Gradients are those of the batch, but batch norm sees one part at a time."""
    learning_rate: float = field(default=1.0, metadata=decides("result", 1e-12, 1_000_000))
    """Highest rate of a task; each begins anew. AdamW needs a far lower one than SGD."""
    optimiser: Optimiser = field(default="sgd", metadata=decides("result"))
    """sgd, or adamw, whose decay is apart from the gradient."""
    momentum: float = field(default=0.9, metadata=decides("result", 0, 0.9999))
    """Momentum of SGD; AdamW's first beta (the second is 0.999)."""
    nesterov: bool = field(default=False, metadata=decides("result"))
    """Let SGD look ahead along its momentum."""
    weight_decay: float = field(default=1e-5, metadata=decides("result", 0, 100))
    """Decay of every parameter."""
    clip: float | None = field(default=None, metadata=decides("result", 1e-12, 1_000_000))
    """Largest norm of a step's gradient, over all parameters together; None leaves it alone."""
    schedule: RateSchedule = field(default="plateau", metadata=decides("result"))
    """How the rate goes: plateau (falls without progress), cosine, steps, onecycle or constant."""
    warm_up: float = field(default=0, metadata=decides("result", 0, 1_000_000))
    """Epochs in which the rate rises to its highest, at the start of every task."""
    rate_steps: tuple[float, ...] = field(default=(0.5, 0.75), metadata=decides("result"))
    """With the schedule steps: the parts of a task after which the rate falls."""
    rate_factor: float = field(default=0.1, metadata=decides("result", 0, 1))
    """With the schedule steps: what the rate is multiplied with at each of them."""
    plateau_patience: int = field(default=10, metadata=decides("result", 0, 1_000_000))
    """Epochs without a better in-task validation score before the rate falls."""
    plateau_factor: float = field(default=0.1, metadata=decides("result", 0, 1))
    """What the rate is multiplied with then."""
    plateau_threshold: float = field(default=1e-3, metadata=decides("result", 0, 1))
    """How much better counts as better (absolute)."""

    network: str = field(default="resnet32", metadata=decides("result"))
    """Name of a network, or the dotted path of a factory of your own."""
    network_options: dict[str, Any] = field(default_factory=dict, metadata=decides("result"))
    """What a network of your own is made with: its factory's arguments."""
    frozen: bool = field(default=False, metadata=decides("result"))
    """Leave the network as it is made: features of each image, not augmented, are worked out once,
    and the head or the method learns from these."""
    preparation: str | None = field(default=None, metadata=decides("result"))
    """Augmentation and normalisation: cifar, cifar-bright, imagenet, plain or package.module:thing
    (an ImageTransform, or a function that returns one); None takes the benchmark's."""
    preparation_options: dict[str, Any] = field(default_factory=dict, metadata=decides("result"))
    """What a preparation of your own is called with, where it is a function: its arguments."""
    memory_per_class: int | None = field(default=20, metadata=decides("result", 1, 10**9, "memory"))
    """Replay images kept for each class; None keeps all."""
    memory_total: int | None = field(
        default=None, metadata=decides("result", 1, 10**9, "total memory")
    )
    """Replay images kept in all, shared by the seen classes; replaces memory_per_class.

    A reservoir has as many slots; without it, memory_per_class for each class of the stream."""
    decision: str | None = field(default=None, metadata=decides("result"))
    """Rule that turns scores of images into labels: threshold, top1, top1-parent (the likeliest
    class and what the method takes for its parents), expected (the highest expected pw-JS),
    top1-per-level and expected-tree (oracles: they are told the hierarchy), own (the method's) or
    package.module:rule; None takes the method's own where it has one, else threshold."""
    options: dict[str, Any] = field(default_factory=dict, metadata=decides("result"))
    """The method's own settings."""

    device: str = field(default="auto", metadata=decides("speed"))
    """auto (a GPU where there is one), cpu, cuda or cuda:N."""
    precision: Precision = field(default="auto", metadata=decides("arithmetic"))
    """auto (bf16 on a GPU, fp32 on a CPU), fp32, tf32 or bf16; weights are always fp32."""
    graph: bool = field(default=True, metadata=decides("speed"))
    """Capture a task's steps as CUDA graphs, on a GPU."""
    fused: bool = field(default=True, metadata=decides("arithmetic"))
    """Use fused kernels, on a GPU in bf16, for the networks that have them: resnet20 to 56."""
    compile: Compile = field(default="auto", metadata=decides("speed"))
    """Whether torch.compile makes the network faster, which takes about a minute before the first
    step: auto (on a GPU, for resnet18 and resnet50), yes (instead of fused kernels) or no."""
    images: ImagesWay = field(default="auto", metadata=decides("speed"))
    """Where a task's decoded images are kept: resident (on the device), pinned (in memory of the
    host, copied ahead of the device), streamed (nowhere: decoded again at every epoch), auto (the
    first of these that has room). Arrays, such as CIFAR's, are always resident."""
    features_in: str | None = field(default=None, metadata=decides("speed"))
    """Folder that keeps a frozen network's features for later runs; None keeps them in memory, for
    the runs of one command."""
    keep_scores: bool = field(default=False, metadata=decides("files"))
    """Keep raw test scores as float16, for other decision rules and metrics later."""
    tasks: int | None = field(default=None, metadata=decides("run", 1))
    """Stop after this many tasks; None goes through all."""

    def __post_init__(self) -> None:
        """Refuse values no run can have."""
        for name, hint in get_type_hints(type(self)).items():
            if not fits(getattr(self, name), hint):
                _refuse(name, getattr(self, name), hint)
        if self.memory_per_class == 0 or self.memory_total == 0:
            raise PolarbearError(
                "a memory of 0 images replays nothing: use the method 'finetune' for that, "
                "or give memory_per_class a number from 1 (None keeps all)"
            )
        for one in fields(Settings):
            _refuse_beyond(one, getattr(self, one.name))
        given = (self.options, self.network_options, self.preparation_options)
        for name, value in chain.from_iterable(options.items() for options in given):
            if isinstance(value, float) and not math.isfinite(value):
                raise PolarbearError(f"the option {name} must be a finite number, not {value!r}")
        self._refuse_what_would_mean_nothing()

    def _refuse_what_would_mean_nothing(self) -> None:
        """Refuse settings that say nothing together."""
        for what in ("network", "preparation"):
            name = getattr(self, what) or "the benchmark's"
            if getattr(self, f"{what}_options") and ":" not in name:
                raise PolarbearError(
                    f"{what}_options are for a {what} of your own, package.module:function, "
                    f"not {name!r}: leave them out, or name a function"
                )
        if self.nesterov and self.optimiser != "sgd":
            raise PolarbearError(
                f"nesterov is for the optimiser sgd, not {self.optimiser}: leave it out"
            )
        if self.nesterov and not self.momentum:
            raise PolarbearError(
                "nesterov looks ahead along a momentum, and momentum is 0: leave nesterov out, or "
                "give momentum a number such as 0.9"
            )
        if self.accumulate > max(1, self.batch_size // 2):
            raise PolarbearError(
                f"accumulate must be at most {max(1, self.batch_size // 2)}, so that each part of "
                f"a batch of {self.batch_size} has two images, not {self.accumulate}"
            )
        if self.warm_up and self.schedule == "onecycle":
            raise PolarbearError("the schedule onecycle has a rise of its own: leave warm_up out")
        shortest = min(self.epochs_of(task) for task in range(min(self.tasks or 2, 2)))
        if self.warm_up > shortest:
            raise PolarbearError(
                f"warm_up must be at most {shortest}, the epochs of the shortest task, "
                f"not {self.warm_up!r}"
            )
        self._refuse_rate_steps()

    def _refuse_rate_steps(self) -> None:
        given = self.rate_steps
        between = all(a < b for a, b in pairwise((0, *given, 1)))  # nan is no number's neighbour
        if not given or not between:
            raise PolarbearError(
                "rate_steps must be parts of a task between 0 and 1, the lowest first, such as "
                f"0.5 and 0.75, not {given!r}; for a rate that never falls, schedule constant"
            )
        usual = (Settings.rate_steps, Settings.rate_factor)
        if self.schedule != "steps" and (given, self.rate_factor) != usual:
            raise PolarbearError(
                f"rate_steps and rate_factor are for the schedule steps, not {self.schedule}: "
                "leave them out, or set schedule to steps"
            )

    def epochs_of(self, task: int) -> int:
        """Return the number of epochs of a task."""
        return max(1, round(self.epochs * self.first_task_factor)) if task == 0 else self.epochs

    def refuse_more_tasks(self, there: int) -> None:
        """Refuse to go through more tasks than the benchmark has."""
        if self.tasks is not None and self.tasks > there:
            raise PolarbearError(
                f"tasks must be from 1 to {there}, the tasks of {self.benchmark}, not {self.tasks}"
            )

    def as_fast_as(self, other: "Settings") -> "Settings":
        """Return these settings with all that decides speed alone taken from others.

        >>> Settings("er", seed=8).as_fast_as(Settings("lucir", images="streamed")).images
        'streamed'
        """
        return replace(self, **{name: getattr(other, name) for name in deciding("speed")})

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for a manifest."""
        return {name: plain(value) for name, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Settings":
        """Build from plain data; an unknown key is an error that names the nearest one."""
        names = [f.name for f in fields(cls)]
        for key in values:
            if key not in names:
                raise unknown_name("setting", key, names)
        if "method" not in values:
            raise PolarbearError("a run needs a method: name one, such as 'er'")
        # JSON and TOML know lists alone.
        lists = {key: tuple(value) for key, value in values.items() if isinstance(value, list)}
        return cls(**values | lists)


def deciding(*kinds: Kind) -> frozenset[str]:
    """Return the names of the settings of these kinds.

    >>> sorted(deciding("files", "arithmetic"))
    ['fused', 'keep_scores', 'precision']
    """
    return frozenset(one.name for one in fields(Settings) if one.metadata["kind"] in kinds)


def fits(value: object, hint: Any) -> bool:
    """Whether a value is of a type: a plain one, a union, a ``Literal`` or a container.

    >>> fits(3, float), fits(True, int), fits(None, int | None), fits("fp8", Precision)
    (True, False, True, False)
    >>> fits(3, Any), fits((0.5, 1), tuple[float, ...]), fits((0.5, "1"), tuple[float, ...])
    (True, True, False)
    """
    if hint is Any:
        return True
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(fits(value, one) for one in args)
    if origin is Literal:
        return value in args
    if origin is tuple and args[1:] == (...,):
        return isinstance(value, tuple) and all(fits(one, args[0]) for one in value)
    if hint in (int, float):
        allowed = int if hint is int else (int, float)
        return isinstance(value, allowed) and not isinstance(value, bool)
    kind = NoneType if hint is None else origin or hint
    # What cannot be asked of a value, such as a TypeVar, is true of all.
    return not isinstance(kind, type) or isinstance(value, kind)


def limits(setting: "Field[Any]") -> str:
    """Return a setting's limits in words, empty where it has none.

    >>> limits(fields(Settings)[2]), limits(fields(Settings)[4]), limits(fields(Settings)[0])
    ('at least 0', 'from 1 to 1,000,000', '')
    """
    lowest, highest = setting.metadata["lowest"], setting.metadata["highest"]
    if lowest is None:
        return ""
    return f"at least {lowest}" if highest == math.inf else f"from {lowest:,} to {highest:,}"


def _refuse_beyond(setting: "Field[Any]", value: float | None) -> None:
    lowest, highest = setting.metadata["lowest"], setting.metadata["highest"]
    if lowest is None or value is None:
        return
    if not lowest <= value <= highest:  # nan is neither
        raise PolarbearError(f"{setting.name} must be {limits(setting)}, not {value!r}")


def _refuse(name: str, value: object, hint: Any) -> NoReturn:
    if get_origin(hint) is Literal:
        raise unknown_name(name, value, get_args(hint))
    shown = hint.__name__ if isinstance(hint, type) else str(hint)
    shown = "True, False or 'auto'" if hint == Compile else shown
    raise PolarbearError(f"{name} must be {shown}, not {value!r}")
