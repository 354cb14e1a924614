"""Many runs in one command: every combination of methods, values of settings, seeds and orders."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import chain, product
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import tyro
from tyro.conf import UseAppendAction

from polarbear.base.errors import PolarbearError, unknown_name
from polarbear.base.guarded import read_toml
from polarbear.base.names import file_name
from polarbear.cli.shared.options import flag
from polarbear.methods.registry import resolve
from polarbear.settings.settings import Settings

#: Settings that have a word of their own for several values.
OWN_WORDS = {"method": "--methods", "order": "--orders", "seed": "--seeds"}
FROM = "--from"
SWITCHES = {one.name for one in fields(Settings) if one.type is bool}
MOST = 10_000  # runs of one command: more are a slip of the finger


@dataclass(frozen=True)
class Several:
    """Which runs, where there are several: one for every combination."""

    methods: Annotated[
        str | None, flag("Several methods, in place of METHOD: er,lucir.", "LIST")
    ] = None
    orders: Annotated[
        str | None, flag("Several class orders, one run for each: 0-9 or 0,3,5.", "LIST")
    ] = None
    seeds: Annotated[str | None, flag("Several seeds: 1-3 or 1,7.", "LIST")] = None
    own_seeds: Annotated[
        bool, flag("A seed of its own for each order: order N has the seed SEED + N.")
    ] = False
    sweep: Annotated[
        UseAppendAction[tuple[str, ...]],
        flag("Several values of a setting, or of options.NAME; may be repeated.", "NAME=A,B"),
    ] = ()
    source: Annotated[
        Path | None, flag("A TOML file with the same words.", "FILE", name=FROM[2:])
    ] = None


@dataclass(frozen=True)
class Line:
    """One combination: its method, what the command would say, and the folder of what differs."""

    method: str
    words: tuple[str, ...]
    apart: str = ""
    beside: tuple[str, ...] = ()
    seed: int | None = None  # no word: what is said besides is read once for all seeds

    @property
    def name(self) -> str:
        """What tells it from the others."""
        return " ".join(filter(None, (*self.beside, self.apart)))


def lines_of(words: Sequence[str]) -> list[Line]:
    """Return the combinations that METHOD and flags ask for, all orders of each in one.

    >>> for line in lines_of(["er", "--epochs", "2", "--seeds", "1-2", "--sweep", "clip=1,None"]):
    ...     print(*line.words, "in", line.apart, "with seed", line.seed)
    --epochs 2 --clip 1 in clip=1 with seed 1
    --epochs 2 --clip 1 in clip=1 with seed 2
    --epochs 2 --clip None in clip=None with seed 1
    --epochs 2 --clip None in clip=None with seed 2
    """
    named, flags = _first_word(_with_file(list(words)))
    chosen, rest = tyro.cli(Several, prog="polarbear run", args=flags, return_unknown_args=True)
    methods = _methods(named, chosen.methods)
    values = dict(map(_values, chosen.sweep))
    _refuse_twice(values, chosen, rest)
    seeds = _seeds(chosen.seeds)
    if chosen.own_seeds and len(seeds) > 1:
        raise PolarbearError(
            f"--own-seeds takes one seed, order 0's: the orders of --seeds {chosen.seeds} "
            "would share some"
        )
    orders = [] if chosen.orders is None else ["--orders", chosen.orders]
    orders += ["--own-seeds"] if chosen.own_seeds else []
    lines = []
    for method, picked in [(one, each) for one in methods for each in _combined(one, values)]:
        said = [*rest, *chain.from_iterable(_as_flag(name, value) for name, value in picked)]
        apart = ",".join(f"{n}={file_name(v)}" for n, v in picked if n != "benchmark")
        beside = [v for n, v in picked if n == "benchmark"]
        beside += [method] if chosen.methods is not None else []
        lines += [Line(method, (*said, *orders), apart, tuple(beside), seed) for seed in seeds]
    return lines


def asks_for_several(words: Sequence[str]) -> bool:
    """Whether a command has any of the words for several runs, but for several orders alone."""
    given = {word.partition("=")[0] for word in words}
    return bool(given & {"--methods", "--seeds", "--sweep", FROM})


def _first_word(words: list[str]) -> tuple[str | None, list[str]]:
    return (words[0], words[1:]) if words and not words[0].startswith("-") else (None, words)


def _methods(named: str | None, several: str | None) -> list[str]:
    if (named is None) == (several is None):
        raise PolarbearError(
            "which methods? One comes first, polarbear run METHOD …; several are --methods er,lucir"
        )
    return [named] if named is not None else _parts(f"--methods {several}", several or "")


def _combined(
    method: str, values: Mapping[str, Sequence[str]]
) -> list[tuple[tuple[str, str], ...]]:
    """Return every combination of values, each with its name; the method has its own switches."""
    hints = get_type_hints(resolve(method).Options)
    switches = SWITCHES | {f"options.{name}" for name, hint in hints.items() if hint is bool}
    taken = [_as_switch(name, of) if name in switches else of for name, of in values.items()]
    return [tuple(zip(values, picked, strict=True)) for picked in product(*taken)]


def _seeds(text: str | None) -> list[int | None]:
    """Return the seeds; None for the one that goes without saying."""
    if text is None:
        return [None]
    found = parse_numbers("--seeds", text)
    if sum(part[-1] - part[0] for part in found) > MOST:  # before a list is made of them
        raise PolarbearError(f"--seeds {text} are more than {MOST:,} runs")
    return list(dict.fromkeys(chain(*found)))


def _values(word: str) -> tuple[str, list[str]]:
    name, equals, text = word.partition("=")
    name = name.strip().replace("-", "_")
    known = [one.name for one in fields(Settings) if one.name not in ("options", *OWN_WORDS)]
    if name in OWN_WORDS:
        raise PolarbearError(f"--sweep {word}: for several of these write {OWN_WORDS[name]} A,B")
    if name not in known and not name.startswith("options."):
        raise unknown_name("setting to sweep over", name, [*known, "options.NAME"])
    if not equals:
        raise PolarbearError(f"--sweep {word} has no values: write --sweep {name}=A,B")
    return name, _parts(f"--sweep {word}", text)


def _as_switch(name: str, values: Sequence[str]) -> list[str]:
    """Return a switch's values in small letters: Python writes them with capitals."""
    if not {value.lower() for value in values} <= {"true", "false"}:
        raise PolarbearError(f"--sweep {name}={','.join(values)}: a switch is true or false")
    return list(dict.fromkeys(value.lower() for value in values))


def _parts(said: str, text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise PolarbearError(f"{said} is no list: write A,B without gaps")
    return list(dict.fromkeys(parts))


def _refuse_twice(values: Mapping[str, object], chosen: Several, rest: Sequence[str]) -> None:
    given = {word.partition("=")[0] for word in rest}
    names = [*values, *(["seed"] if chosen.seeds is not None else [])]
    for name in names:
        if {_flag(name), _flag(name, "no-")} & given:
            raise PolarbearError(f"{name} is to have several values and one: leave out one of them")
    if len(values) < len(chosen.sweep):
        raise PolarbearError("--sweep names a setting twice: give all its values at once")


def _flag(name: str, prefix: str = "") -> str:
    group, dot, own = name.replace("_", "-").rpartition(".")
    return f"--{group}{dot}{prefix}{own}"


def _as_flag(name: str, value: str) -> list[str]:
    """Return the words for one value; a switch has none, a list several.

    >>> _as_flag("frozen", "false"), _as_flag("rate_steps", "0.3 0.6")
    (['--no-frozen'], ['--rate-steps', '0.3', '0.6'])
    """
    if value in ("true", "false"):
        return [_flag(name, "" if value == "true" else "no-")]
    return [_flag(name), *value.split()]


def parse_numbers(said: str, text: str) -> list[range]:
    """Read a list of numbers from 0 upwards.

    >>> parse_numbers("--orders", "0-2,5")
    [range(0, 3), range(5, 6)]
    """
    found = []
    for part in text.split(","):
        ends = re.fullmatch(r"(\d{1,20})(?:-(\d{1,20}))?", part.strip())
        if not ends:
            raise PolarbearError(f"{said} {text!r} is no list of {said[2:]}: write 0-9 or 0,3,5")
        first, last = int(ends[1]), int(ends[2] or ends[1])
        if last < first:
            raise PolarbearError(f"{said} {text!r}: write the lower one first, as in 0-9")
        found.append(range(first, last + 1))
    return found


def _with_file(words: list[str]) -> list[str]:
    """Put the words of a TOML file into a command; what the command says itself counts."""
    places = [i for i, word in enumerate(words) if word.partition("=")[0] == FROM]
    if not places:
        return words
    at = places[0]
    _, equals, file = words[at].partition("=")
    if len(places) > 1 or not (equals or at + 1 < len(words)):
        raise PolarbearError(f"{FROM} takes one file: polarbear run {FROM} sweep.toml")
    file, after = (file, at + 1) if equals else (words[at + 1], at + 2)
    own = [*words[:at], *words[after:]]
    said = {word.partition("=")[0] for word in own}
    named, _ = _first_word(own)
    found: list[str] = []
    for name, value in _flat(read_toml(file, PolarbearError)):
        flags = {_flag(name), _flag(name, "no-")}
        if not flags & said and not (name == "methods" and named):
            found += _words_for(name, value)
    return [*own[: bool(named)], *found, *own[bool(named) :]]


def _flat(content: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return names and values; those of a table ``options`` have its name before theirs."""
    found: list[tuple[str, Any]] = []
    for name, value in content.items():
        if name == "options" and isinstance(value, dict):
            found += [(f"options.{key}", one) for key, one in value.items()]
        elif name == "sweep" and isinstance(value, dict):
            found.append((name, dict(_swept(value))))
        else:
            found.append((name, value))
    return [("methods" if name == "method" else name, value) for name, value in found]


def _swept(content: Mapping[str, Any]) -> list[tuple[str, list[Any]]]:
    found: list[tuple[str, list[Any]]] = []
    for name, value in content.items():
        if isinstance(value, dict):
            found += [(f"{name}.{key}", one) for key, one in value.items()]
        else:
            found.append((name, value))
    for name, value in found:
        if not isinstance(value, list) or not value:
            raise PolarbearError(f"the sweep's {name} must be a list of values, not {value!r}")
    return found


def _words_for(name: str, value: Any) -> list[str]:
    if name == "sweep":
        lists = ((key, ",".join(map(_text, of))) for key, of in value.items())
        return [word for key, text in lists for word in ("--sweep", f"{key}={text}")]
    if name in ("methods", "orders", "seeds") and isinstance(value, list):
        return [_flag(name), ",".join(map(str, value))]
    if isinstance(value, bool):
        return [_flag(name, "" if value else "no-")]
    if isinstance(value, dict):
        return [_flag(name), *(f"{key}={json.dumps(one)}" for key, one in value.items())]
    return [_flag(name), *(map(str, value) if isinstance(value, list) else [str(value)])]


def _text(value: Any) -> str:
    """Return a value of a sweep as ``--sweep`` has it."""
    if isinstance(value, list):
        return " ".join(map(str, value))
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if "," in text:
        raise PolarbearError(f"a value of a sweep has no comma in it, as {text!r} has")
    return text
