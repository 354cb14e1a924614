"""What the program's exit code says to a scheduler: hopeless, or worth another try."""

import errno
import re
import sys
from collections.abc import Iterator

from polarbear.base.errors import PolarbearError
from polarbear.base.out_of_memory import OutOfMemoryError
from polarbear.runs.guards import InUseError

REFUSED = 2
TRY_AGAIN = 75  # EX_TEMPFAIL of sysexits.h

#: Errors of disks, networks and busy machines, by the names that this system has of them.
PASSING = {
    getattr(errno, name)
    for name in (
        *("ENOSPC", "EDQUOT", "EIO", "ESTALE", "EAGAIN", "EBUSY", "EINTR", "ENOLCK", "EREMOTEIO"),
        *("EMFILE", "ENFILE", "ENODEV", "ENXIO", "ETIMEDOUT", "ECONNREFUSED", "ECONNRESET"),
        *("ECONNABORTED", "EHOSTDOWN", "EHOSTUNREACH", "ENETDOWN", "ENETUNREACH", "ENETRESET"),
        *("ESHUTDOWN", "ENOTCONN"),
    )
    if hasattr(errno, name)
}


class ElsewhereError(PolarbearError):
    """What went wrong in another process, and whether it may go well another time."""

    def __init__(self, said: str, passing: bool) -> None:
        """Take the words of the other process."""
        super().__init__(said)
        self.passing = passing


def exit_code(error: BaseException) -> int:
    """Return 75 where the same command may well succeed later, else 2.

    >>> exit_code(OSError(errno.ENOSPC, "No space left on device"))
    75
    >>> exit_code(FileNotFoundError(errno.ENOENT, "No such file or directory"))
    2
    """
    return TRY_AGAIN if may_pass(error) else REFUSED


def may_pass(error: BaseException) -> bool:
    """Whether what went wrong, or what lies behind it, may go well another time."""
    return any(_passing(one) for one in _causes(error))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:  # `raise error from error` is its own cause
        seen.add(id(error))
        yield error
        error = error.__cause__


def _passing(error: BaseException) -> bool:
    if isinstance(error, ElsewhereError):
        return error.passing
    if isinstance(error, OutOfMemoryError):
        return _taken_by_others(str(error))
    return isinstance(error, InUseError) or (isinstance(error, OSError) and error.errno in PASSING)


def _taken_by_others(message: str) -> bool:
    """Whether it was a GPU's memory that did not suffice, of which others hold a good part."""
    if "cuda" not in message.lower() or "torch" not in sys.modules:
        return False
    from polarbear.launch.gpu_memory import held_by_others

    named = re.search(r"GPU (\d+)", message)  # as PyTorch has it
    return held_by_others(int(named[1]) if named else 0)
