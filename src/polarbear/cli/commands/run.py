"""``polarbear run``: train a method on a benchmark, one class order or several."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, make_dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import tyro
from tyro.conf import FlagCreatePairsOff, OmitArgPrefixes, Suppress, arg

from polarbear.base.errors import PolarbearError
from polarbear.base.files import plain
from polarbear.cli.shared.several_runs import (
    Wanted,
    refuse_failed,
    say_failed,
    say_finished,
    train_all,
)
from polarbear.cli.shared.training import How, engine
from polarbear.methods.presets import settings_for
from polarbear.methods.registry import make_options, resolve
from polarbear.named.registry import find
from polarbear.runs.folder import RunError, RunFolder
from polarbear.runs.result import usual_folder
from polarbear.settings.settings import Settings

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

    method: Suppress[str]
    options: Suppress[dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Leave it to Settings to refuse values: its errors are one line each."""

    def settings(self, **changes: Any) -> Settings:
        """Return the settings."""
        return Settings(**{f.name: getattr(self, f.name) for f in fields(Settings)} | changes)


@dataclass(frozen=True)
class Preset:
    """What the other flags' defaults depend on."""

    benchmark: str = "iirc-cifar"
    preset: str = "paper"


@dataclass(frozen=True)
class Where(How):
    """Preset, class orders and files."""

    preset: Annotated[
        str, arg(metavar="NAME", help="A preset, or a TOML file of your own like it.")
    ] = "paper"
    orders: Annotated[
        str | None,
        arg(
            metavar="LIST",
            help="Several class orders, a run each: 0-9 or 0,3,5.",
            help_behavior_hint="",
        ),
    ] = None
    out: Annotated[
        Path | None,
        arg(
            metavar="DIR",
            help="The run folder; with --orders, the folder for the run folders.",
            help_behavior_hint="(default: runs/BENCHMARK/METHOD/order-N-seed-S)",
        ),
    ] = None
    threads: Annotated[
        int | None,
        arg(
            metavar="INT",
            help="CPU threads of PyTorch.",
            help_behavior_hint="(default: 1 for the network small on a CPU, else all)",
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

    def folder(self, order: int) -> Path:
        """Return the folder of one order's run."""
        usual, out = usual_folder(replace(self.settings, order=order)), self.where.out
        if out is None:
            return usual
        return out if self.where.orders is None else out / usual.name


def run(words: Sequence[str]) -> None:
    """Train a method on a benchmark, one class order or several."""
    asked = parse(words)
    engine()
    _set_threads(asked)
    if asked.where.orders is None:
        folder = asked.folder(asked.settings.order)
        Wanted(str(folder), folder, asked.settings).train(asked.where)
        return
    wanted: list[Wanted] = []
    failed: list[str] = []
    for order in asked.orders:
        try:
            wanted += _left_to_do(asked, order)
        except PolarbearError as error:
            failed.append(f"order {order}")
            say_failed(f"order {order}", error)
    refuse_failed([*failed, *train_all(wanted, asked.where)], len(asked.orders))


def _set_threads(asked: Asked) -> None:
    """Take as many threads as asked for, or one where more would only wait for each other."""
    import torch

    from polarbear.launch.prepare import usual_threads

    threads = asked.where.threads or usual_threads(asked.settings)
    if threads is not None:
        torch.set_num_threads(threads)


def _left_to_do(asked: Asked, order: int) -> Iterator[Wanted]:
    """Return an order's run unless it is finished; one of other settings is refused."""
    settings, there = replace(asked.settings, order=order), RunFolder(asked.folder(order))
    begun = (there.path / "manifest.json").exists() and not there.left_empty()
    if begun and (others := _differing(there, settings)):
        raise RunError(
            f"{there.path} holds a run already, of other settings ({', '.join(others)}): choose "
            "another folder (--out DIR)"
        )
    if begun and there.finished:
        say_finished(there.path)
    else:
        yield Wanted(f"order {order}", there.path, settings, begun)


def _differing(there: RunFolder, settings: Settings) -> list[str]:
    """Name the settings in which the run of a folder is not the one asked for."""
    from polarbear.launch.prepare import as_written

    settings = as_written(settings)
    found = Settings.from_dict(there.manifest()["settings"]).to_dict()
    # A run that was begun in Python may leave a method's usual options unsaid.
    usual = make_options(resolve(settings.method), found["options"])
    found["options"] = plain(asdict(usual))
    return [name for name, value in plain(settings.to_dict()).items() if found[name] != value]


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
    if _has(words, "--order") and _has(words, "--orders"):
        raise PolarbearError("--order or --orders, not both: --orders 0,3,5 takes single ones too")
    # The two flags that the others' defaults depend on come first.
    known = [word for word in words if word not in ("-h", "--help")]
    chosen, _ = tyro.cli(Preset, prog="polarbear run", args=known, return_unknown_args=True)
    defaults = settings_for(name, chosen.benchmark, chosen.preset)
    options = make_options(method, defaults.options) if method else None
    given = tyro.cli(
        _arguments(Flags(**vars(defaults)), options),
        prog=f"polarbear run {name}",
        description=ABOUT,
        args=list(words),
    )
    settings = given.settings.settings(options=asdict(given.options) if options else {})
    return Asked(settings, given.run, _orders(settings, given.run.orders))


def _has(words: Sequence[str], flag: str) -> bool:
    return any(word.partition("=")[0] == flag for word in words)


def _arguments(flags: Flags, options: Any) -> type[Any]:
    """Make the class of all flags: of the run, of the settings, and the method's own."""
    parts: list[tuple[str, Any, Any]] = [
        # The settings' switches come in pairs: presets turn them on or off, and with --no-graph
        # alone the help would say what it does not do.
        ("run", FlagCreatePairsOff[OmitArgPrefixes[Where]], field(default=Where())),
        ("settings", OmitArgPrefixes[Flags], field(default=flags)),
    ]
    if options is not None:
        parts.append(("options", type(options), field(default=options)))
    return make_dataclass("Arguments", parts, frozen=True)


def _orders(settings: Settings, several: str | None) -> tuple[int, ...]:
    benchmark = find(settings.benchmark)
    asked = (
        [range(settings.order, settings.order + 1)] if several is None else parse_orders(several)
    )
    for orders in asked:
        benchmark.schedule(orders[-1])  # before a list is made of them: there may be billions
    found = tuple(dict.fromkeys(chain(*asked)))
    for order in found:
        settings.refuse_more_tasks(len(benchmark.schedule(order)))
    return found


def parse_orders(text: str) -> list[range]:
    """Read a list of class orders.

    >>> parse_orders("0-2,5")
    [range(0, 3), range(5, 6)]
    """
    found = []
    for part in text.split(","):
        limits = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", part.strip())
        if not limits:
            raise PolarbearError(f"--orders {text!r} is no list of orders: write 0-9 or 0,3,5")
        first, last = int(limits[1]), int(limits[2] or limits[1])
        if last < first:
            raise PolarbearError(f"--orders {text!r}: write the lower order first, as in 0-9")
        found.append(range(first, last + 1))
    return found
