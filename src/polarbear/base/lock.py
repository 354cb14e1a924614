"""One process at a time: what two would spoil if both did it at once.

The locks are the system's, on Unix and Windows alike: a process that is killed lets go of them.
"""

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from polarbear.base.errors import DataError, install_line

log = logging.getLogger("polarbear")


def take(file: BinaryIO, *, wait: bool = False) -> bool:
    """Take the lock of an open file until it is closed; False where somebody else has it.

    Where there are no locks, or no filelock is installed, it is an OSError.
    """
    try:
        # Not its FileLock: on a file system without locks it makes do with a file that a killed
        # process leaves behind.
        from filelock import lock_descriptor
    except ImportError as error:
        raise OSError(f"filelock 3.30 or later is not installed: {install_line('cli')}") from error
    return lock_descriptor(file.fileno(), blocking=wait)


@contextmanager
def alone(path: Path, *, wait: bool) -> Iterator[None]:
    """Let no other process make ``path`` meanwhile; one that does is waited for, or refused.

    ``<path>.lock`` is there as long.
    """
    lock = path.with_name(f"{path.name}.lock")
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = _held(lock, wait)
    except OSError as error:
        raise DataError(f"{path} cannot be made: {error.strerror}") from error
    if file is None:
        raise DataError(
            f"{path} is being made by another process: wait for its end, or give another folder"
        )
    with file:
        try:
            yield
        finally:
            with suppress(PermissionError):  # Windows removes no open file; an empty one stays
                lock.unlink(missing_ok=True)


def _held(lock: Path, wait: bool) -> BinaryIO | None:
    """Open the lock and take it, anew if whoever held it before has removed it meanwhile."""
    while True:
        with ExitStack() as stack:
            file = stack.enter_context(lock.open("ab"))
            if not _taken(file, wait):
                return None
            if lock.exists() and os.path.samestat(lock.stat(), os.fstat(file.fileno())):
                stack.pop_all()
                return file


def _taken(file: BinaryIO, wait: bool) -> bool:
    try:
        if (taken := take(file)) or not wait:
            return taken
        log.warning("another process holds %s: waiting for its end", file.name)
        return take(file, wait=True)
    except OSError as error:  # a file system without locks
        log.warning("%s cannot be locked: %s", file.name, error)
        return True
