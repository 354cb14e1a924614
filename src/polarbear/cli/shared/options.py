"""Flags: how they are shown, and those that several commands share."""

import json
import os
from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import arg
from tyro.constructors import PrimitiveConstructorSpec

from polarbear.settings.settings import Compile

#: Processes that read and draw many runs.
JOBS = min(4, os.cpu_count() or 1)


def flag(
    says: str, metavar: str | None = None, *, default: str = "", name: str | None = None
) -> object:
    """Return how ``--help`` shows a flag; ``default`` says what happens where None is given.

    ``name`` is the flag's, where no parameter can be called so.
    That a flag is not given, or a switch is off, goes without saying.
    """

    def hint(found: str) -> str:
        shown = default or found
        return "" if shown in ("", "None", "False") else f"(default: {shown})"

    return arg(name=name, metavar=metavar, help=says, help_behavior_hint=hint)


#: Words that JSON has too, as Python writes them: as text, ``False`` would be true.
_AS_PYTHON: Mapping[str, bool | None] = {"True": True, "False": False, "None": None}


def _named_values(words: list[str]) -> dict[str, Any]:
    """Read values by name: JSON, what Python writes for its words, or text as it stands.

    >>> _named_values(["side=64", "scale=[0.2, 1]", "colour=red", "frozen=False"])
    {'side': 64, 'scale': [0.2, 1], 'colour': 'red', 'frozen': False}
    """
    found: dict[str, Any] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not (equals and name.isidentifier()):
            raise ValueError(f"{word!r} is no NAME=VALUE, such as side=64")
        try:
            found[name] = json.loads(text)
        except ValueError:
            found[name] = _AS_PYTHON.get(text, text)
    return found


#: A flag with values by name: ``--preparation-options side=64 pad=2``.
NAMED_VALUES: PrimitiveConstructorSpec[dict[str, Any]] = PrimitiveConstructorSpec(
    nargs="*",
    metavar="NAME=VALUE …",
    instance_from_str=_named_values,
    is_instance=lambda value: isinstance(value, dict),
    str_from_instance=lambda values: [f"{k}={json.dumps(v)}" for k, v in values.items()],
)

_CHOICES: Mapping[str, Compile] = {"auto": "auto", "yes": True, "no": False}


def _choice(words: list[str]) -> Compile:
    if words[0] not in _CHOICES:
        raise ValueError(f"{words[0]!r} is none of {', '.join(_CHOICES)}")
    return _CHOICES[words[0]]


#: A flag that may also choose by itself: ``--compile auto|yes|no``.
AUTO_YES_NO: PrimitiveConstructorSpec[Compile] = PrimitiveConstructorSpec(
    nargs=1,
    metavar="|".join(_CHOICES),
    instance_from_str=_choice,
    is_instance=lambda value: value in _CHOICES.values(),
    str_from_instance=lambda value: [next(k for k, v in _CHOICES.items() if v == value)],
)


def in_full(words: Sequence[str]) -> list[str]:
    """Return words in which ``--compile``, a switch once, has its value.

    >>> in_full(["--compile", "--no-compile", "--compile", "auto"])
    ['--compile', 'yes', '--compile', 'no', '--compile', 'auto']
    """
    full: list[str] = []
    for word, after in zip_longest(words, words[1:], fillvalue="-"):
        if word == "--no-compile":
            full += ["--compile", "no"]
        elif word == "--compile" and after.startswith("-"):
            full += ["--compile", "yes"]
        else:
            full.append(word)
    return full


Root = Annotated[
    Path | None, flag("Folder with the data.", "DIR", default="$POLARBEAR_DATA, else data")
]
Partial = Annotated[
    bool, flag("Take data that lack images of the published ones; every result then says so.")
]
RunsRoot = Annotated[
    Path | None,
    flag(
        "Folder with the data, for images and labels.", "DIR", default="where the runs found them"
    ),
]
Json = Annotated[bool, flag("Print JSON, for programs.")]
Results = Annotated[
    tuple[Path, ...], flag("Run folders or result summaries, or folders above them.", "RUNS…")
]
