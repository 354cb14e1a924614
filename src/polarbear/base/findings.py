"""What the checkers find, and the error that carries it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from polarbear.base.errors import PolarbearError


@dataclass(frozen=True)
class Finding:
    """Something odd: an ``error`` spoils scores, a ``warning`` changes what they mean."""

    level: Literal["error", "warning"]
    message: str

    def __str__(self) -> str:
        """Write it in one line."""
        return f"{self.level}: {self.message}"


class CheckError(PolarbearError):
    """A hierarchy or stream with errors; ``findings`` has these and the warnings."""

    def __init__(self, what: str, findings: Sequence[Finding]) -> None:
        """Make one message of all findings, errors first."""
        self.findings = tuple(sorted(findings, key=lambda finding: finding.level))
        errors = sum(finding.level == "error" for finding in findings)
        lines = [f"{what}: {errors} error{'s' * (errors != 1)}", *map(str, self.findings)]
        super().__init__("\n  ".join(lines))


def report(what: str, found: tuple[Finding, ...], *, strict: bool) -> tuple[Finding, ...]:
    """Return what was found; with ``strict``, errors are raised, and the warnings with them."""
    if strict and any(finding.level == "error" for finding in found):
        raise CheckError(what, found)
    return found


def warning(message: str) -> Finding:
    """Return a finding that changes what scores mean."""
    return Finding("warning", message)


def error(message: str) -> Finding:
    """Return a finding that spoils scores."""
    return Finding("error", message)


def listed(names: Iterable[str], most: int = 5, write: Callable[[str], str] = repr) -> str:
    """Write names, the first of many.

    >>> listed(["bear", "lamp", "bus"], most=2)
    "'bear', 'lamp', … (3 in all)"
    """
    shown = [write(name) for name in names]
    more = f", … ({len(shown)} in all)" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more
