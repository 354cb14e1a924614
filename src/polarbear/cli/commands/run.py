"""``polarbear run``: train a method on a benchmark, one class order or several."""

import json
import os
from collections.abc import Sequence
from dataclasses import Field, asdict, dataclass, field, fields, make_dataclass, replace
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, get_args, get_type_hints

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Suppress, arg

from polarbear.base.errors import PolarbearError
from polarbear.base.files import plain
from polarbear.base.names import file_name
from polarbear.cli.shared.console import console
from polarbear.cli.shared.elsewhere import Elsewhere
from polarbear.cli.shared.on_ray import refuse_without_ray, train_on_ray
from polarbear.cli.shared.on_slurm import submit
from polarbear.cli.shared.options import AUTO_YES_NO, NAMED_VALUES, Partial, flag, in_full
from polarbear.cli.shared.outcome import print_outcome
from polarbear.cli.shared.several_runs import say_finished, train_all
from polarbear.cli.shared.sweep import Line, Several, asks_for_several, lines_of, parse_numbers
from polarbear.cli.shared.training import How, Wanted, engine
from polarbear.methods.presets import settings_for
from polarbear.methods.registry import make_options, resolve
from polarbear.named.registry import find, partial_name
from polarbear.runs.folder import RunFolder
from polarbear.runs.result import usual_folder
from polarbear.settings.settings import KINDS, Kind, RateSchedule, Settings, limits

if TYPE_CHECKING:
    from polarbear.engine.contract.method import Method

ABOUT = (
    "Train METHOD, a name that `polarbear methods` lists or the path package.module:Class of your "
    "own, on a benchmark. `polarbear run METHOD --benchmark NAME --help` shows the method's own "
    "options, and as defaults the preset's values for the two."
)


@dataclass(frozen=True)
class Flags(Settings):
    """Settings as flags; a preset's values are their defaults."""

    def __post_init__(self) -> None:
        """Leave it to Settings to refuse values: its errors are one line each."""


@dataclass(frozen=True)
class Preset:
    """What the other flags' defaults depend on."""

    benchmark: str = "iirc-cifar"
    preset: str = "paper"
    schedule: str | None = None


@dataclass(frozen=True)
class Where(Several, How, Elsewhere):
    """Preset, several runs, files and place."""

    preset: Annotated[str, flag("A preset, or a TOML file of your own like it.", "NAME")] = "paper"
    out: Annotated[
        Path | None,
        flag(
            "The run folder; of several runs, the folder for theirs.",
            "DIR",
            default="runs/BENCHMARK/METHOD/order-N-seed-S",
        ),
    ] = None
    partial: Partial = False
    threads: Annotated[
        int | None,
        flag(
            "CPU threads of PyTorch.", "INT", default="1 for the network small on a CPU, else all"
        ),
    ] = None

    def __post_init__(self) -> None:
        """Refuse numbers that cannot be."""
        super().__post_init__()
        most = 4 * (os.cpu_count() or 1)  # more only wait; with 100,000, PyTorch crashes
        if self.threads is not None and not 1 <= self.threads <= most:
            raise PolarbearError(
                f"--threads must be from 1 to {most}, four for each core here, not {self.threads}"
            )


class Asked(NamedTuple):
    """What the words of a command ask for."""

    settings: Settings
    where: Where
    orders: tuple[int, ...]
    line: Line | None = None

    def settings_of(self, order: int) -> Settings:
        """Return the settings of one order's run."""
        seed = self.settings.seed + order if self.where.own_seeds else self.settings.seed
        return replace(self.settings, order=order, seed=seed)

    def folder(self, order: int) -> Path:
        """Return the folder of one order's run, by what differs among those of a command."""
        usual, out = usual_folder(self.settings_of(order)), self.where.out
        line = self.line or Line(self.settings.method, ())
        if out is None:
            return usual.parent / line.apart / usual.name
        if self.line is None and self.where.orders is None:
            return out
        beside = map(file_name, line.beside)
        return out.joinpath(*beside, line.apart, usual.name)

    @property
    def beside(self) -> Path:
        """The folder that holds all runs of a command."""
        out, one = self.where.out, self.line is None and self.where.orders is None
        return Path("runs") if out is None else out.parent if one else out

    def name(self, order: int) -> str:
        """Return what tells one order's run from the others of a command."""
        told = [] if self.line is None else [self.line.name, f"seed {self.settings_of(order).seed}"]
        return " ".join(filter(None, [*told, f"order {order}"]))


def run(words: Sequence[str]) -> None:
    """Train a method on a benchmark, one class order or several, or a sweep over settings."""
    asked = plan(words)
    engine()
    first = asked[0]
    runs = {one.name(order): (one, order) for one in asked for order in one.orders}
    if first.where.on == "slurm":
        left = filter(None, (_left_to_do(*pair) for pair in runs.values()))
        submit(list(left), first.where, first.where, first.beside)
        return
    if first.where.on == "here" and first.line is None and first.where.orders is None:
        _train_one(first)
        return
    folders = [one.folder(order) for one, order in runs.values()]
    several = {name: partial(_left_to_do, *pair) for name, pair in runs.items()}
    if first.where.on == "ray":
        refuse_without_ray()
        train_all(several, folders, first.where, partial(train_on_ray, asked=first.where))
        return
    train_all(several, folders, first.where)


def plan(words: Sequence[str]) -> list[Asked]:
    """Read the words of a command: one combination of what differs after another."""
    if not asks_for_several(words) or {"-h", "--help"} & set(words):
        return [parse(words)]
    lines = lines_of(words)
    read = cache(lambda *words: parse(words))  # a tenth of a second each
    found = [_with_seed(read(line.method, *line.words), line) for line in lines]
    seen: dict[str, Asked] = {}
    for one in found:
        twin = seen.setdefault(json.dumps(plain(one.settings.to_dict()), sort_keys=True), one)
        if twin is not one:
            names = " and ".join(each.name(each.orders[0]) for each in (twin, one))
            raise PolarbearError(f"two runs of the sweep would be the same: {names}")
    return found


def _with_seed(asked: Asked, line: Line) -> Asked:
    seed = asked.settings.seed if line.seed is None else line.seed
    return asked._replace(settings=replace(asked.settings, seed=seed), line=line)


def _train_one(asked: Asked) -> None:
    """Do what is left of the one run that is asked for; what a finished one found is shown."""
    from polarbear.engine.world import the_world

    order = asked.settings.order
    if (wanted := _left_to_do(asked, order)) is not None:
        wanted.train(asked.where)
    elif the_world().is_first:
        print_outcome(console(), RunFolder(asked.folder(order)))


def _left_to_do(asked: Asked, order: int) -> Wanted | None:
    """Return an order's run, None if it is finished; one of other settings is refused."""
    from polarbear.engine.world import the_world
    from polarbear.launch.left_to_do import standing

    settings, folder = asked.settings_of(order), asked.folder(order)
    if standing(settings, folder) != "finished":
        return Wanted(asked.name(order), folder, settings, threads=threads_of(asked))
    if the_world().is_first:
        say_finished(folder)
    return None


def threads_of(asked: Asked) -> int | None:
    """Return the threads asked for, or one where more would only wait for each other.

    On which device is not known yet where another machine trains.
    """
    from polarbear.launch.prepare import usual_threads

    if asked.where.on != "here":
        return asked.where.threads
    return asked.where.threads or usual_threads(asked.settings)


def parse(words: Sequence[str]) -> Asked:
    """Read the words of a command: METHOD and flags."""
    if words and not words[0].startswith("-"):
        return _parse(words[0], resolve(words[0]), words[1:])
    if not {"-h", "--help"} & set(words):
        raise PolarbearError(
            "which method? It comes first: polarbear run METHOD …; `polarbear methods` lists them"
        )
    return _parse("METHOD", None, words)


def _parse(name: str, method: "type[Method] | None", words: Sequence[str]) -> Asked:
    if {"--order", "--orders"} <= {word.partition("=")[0] for word in words}:
        raise PolarbearError("--order or --orders, not both: --orders 0,3,5 takes single ones too")
    words = in_full(words)
    # The flags that the others' defaults depend on come first.
    known = [word for word in words if word not in ("-h", "--help")]
    chosen, _ = tyro.cli(Preset, prog="polarbear run", args=known, return_unknown_args=True)
    known_one = chosen.schedule in get_args(RateSchedule)  # any other is refused below
    asked = {"schedule": chosen.schedule} if known_one else {}
    defaults = settings_for(name, chosen.benchmark, chosen.preset, **asked)
    options = make_options(method, defaults.options) if method else None
    given = tyro.cli(
        _arguments(defaults, options),
        prog=f"polarbear run {name}",
        description=ABOUT,
        args=list(words),
    )
    given.command.refuse_what_cannot_be()
    values = {f.name: getattr(getattr(given, f.metadata["kind"]), f.name) for f in fields(Settings)}
    settings = Settings(**values | {"options": asdict(given.options) if options else {}})
    if given.command.partial:
        settings = replace(settings, benchmark=partial_name(settings.benchmark))
    return Asked(settings, given.command, _orders(settings, given.command.orders))


def _arguments(defaults: Settings, options: Any) -> type[Any]:
    """Make the class of all flags: of the command, of the settings, and the method's own."""
    # The settings' switches come in pairs: presets turn them on or off, and with --no-graph alone
    # the help would say what it does not do.
    where = FlagCreatePairsOff[OmitArgPrefixes[Where]]
    parts: list[tuple[str, Any, Any]] = [("command", where, field(default=Where()))]
    for kind in KINDS:
        flags = _flags(kind)
        default = field(default=flags(**vars(defaults)))
        parts.append((kind, Annotated[flags, OmitArgPrefixes], default))
    if options is not None:
        parts.append(("options", type(options), field(default=options)))
    return make_dataclass("Arguments", parts, frozen=True)


def _flags(kind: Kind) -> Any:
    """Make the class of the flags that decide one thing; the others are there, and hidden."""

    def hint(setting: "Field[Any]", default: str) -> str:
        allowed = limits(setting).replace(",", "")  # where tyro would break the line
        usual = f"default: {default or 'none'}"
        return f"({allowed}; {usual})" if allowed else f"({usual})"

    parts: list[tuple[str, Any, Any]] = []
    types = get_type_hints(Settings)
    for one in fields(Settings):
        hidden = one.metadata["kind"] != kind or one.name in ("method", "options")
        how = Suppress if hidden else arg(help_behavior_hint=partial(hint, one))
        kind_of: Any = Annotated[types[one.name], how]
        if one.name in ("network_options", "preparation_options"):
            kind_of = Annotated[kind_of, NAMED_VALUES]
        if one.name == "compile":
            kind_of = Annotated[kind_of, AUTO_YES_NO]
        parts.append((one.name, kind_of, field(default=None)))
    about = {"__doc__": KINDS[kind]}
    return make_dataclass(kind, parts, bases=(Flags,), namespace=about, frozen=True)


def _orders(settings: Settings, several: str | None) -> tuple[int, ...]:
    benchmark = find(settings.benchmark)
    one = range(settings.order, settings.order + 1)
    asked = [one] if several is None else parse_numbers("--orders", several)
    for orders in asked:
        benchmark.schedule(orders[-1])  # before a list is made of them: there may be billions
    found = tuple(dict.fromkeys(chain(*asked)))
    for order in found:
        settings.refuse_more_tasks(len(benchmark.schedule(order)))
    return found
