"""The few exceptions polarbear raises itself.

Every message says what came, what is allowed, the nearest valid name and the remedy.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral
from pathlib import Path
from shlex import quote

#: What pip calls us: on the package index, the name ``polarbear`` is a stranger's.
DISTRIBUTION = "polarbear-iirc"


class PolarbearError(ValueError):
    """Anything polarbear refuses: catch this to catch them all."""


class UnknownNameError(PolarbearError):
    """A name that is in no list: of a benchmark, class, method, metric or setting."""


class HierarchyError(PolarbearError):
    """Class names and parents that do not form a forest."""


class ScheduleError(PolarbearError):
    """Tasks that do not fit their hierarchy."""


class DataError(PolarbearError):
    """Files or arrays that are missing, damaged or of the wrong shape."""


class PartialDataError(DataError):
    """Data that lack images of a published benchmark."""


class PredictionError(PolarbearError):
    """Predictions that do not fit the images they are for."""


def counted(number: int, what: str, several: str | None = None) -> str:
    """Return a number of things.

    >>> counted(1, "order"), counted(1200, "class", "classes")
    ('1 order', '1,200 classes')
    """
    return f"{number:,} {what if number == 1 else several or what + 's'}"


def refuse_below(least: int, **given: int) -> None:
    """Refuse what is no whole number from ``least`` upwards, by its name."""
    for name, value in given.items():
        if not isinstance(value, Integral) or value < least:
            raise DataError(f"{name} must be a whole number from {least} upwards, not {value!r}")


def unknown_name(kind: str, name: object, valid: Iterable[str]) -> UnknownNameError:
    """Return the error for a wrong name, with the nearest valid one and the list.

    >>> print(unknown_name("benchmark", "irc-cifar", ["iirc-cifar", "iirc-shapes"]))
    unknown benchmark 'irc-cifar': did you mean 'iirc-cifar'? Valid: iirc-cifar, iirc-shapes
    """
    names = sorted(valid)
    lower = {n.lower(): n for n in names}
    near = get_close_matches(str(name).lower(), lower, n=1, cutoff=0.5)
    hint = f"did you mean {lower[near[0]]!r}? " if near else ""
    shown = ", ".join(names[:20]) + (f", … ({len(names)} in all)" if len(names) > 20 else "")
    return UnknownNameError(f"unknown {kind} {name!r}: {hint}Valid: {shown}")


def install_line(extra: str, package: Path = Path(__file__).parents[1]) -> str:
    """Return the command that installs an extra: in a checkout its path, else the name pip knows.

    >>> install_line("torch", Path("lib/site-packages/polarbear"))
    "pip install 'polarbear-iirc[torch]'"
    """
    checkout = package.parents[1]
    project = checkout / "pyproject.toml"
    if project.is_file() and f'name = "{DISTRIBUTION}"' in project.read_text(encoding="utf-8"):
        return f"pip install -e {quote(f'{checkout}[{extra}]')}"
    return f"pip install {quote(f'{DISTRIBUTION}[{extra}]')}"
