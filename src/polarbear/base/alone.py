"""One process at a time: what two would spoil if both did it at once."""

import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import ModuleType
from typing import BinaryIO

from polarbear.base.errors import DataError

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None

log = logging.getLogger("polarbear")


@contextmanager
def alone(path: Path, *, wait: bool) -> Iterator[None]:
    """Let no other process make ``path`` meanwhile; one that does is waited for, or refused.

    ``<path>.lock`` is there as long. The system lets go of it for a process that is killed.
    """
    if fcntl is None:
        yield
        return
    lock = path.with_name(f"{path.name}.lock")
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = _held(lock, wait, fcntl)
    except BlockingIOError as error:
        raise DataError(
            f"{path} is being made by another process: wait for its end, or give another folder"
        ) from error
    except OSError as error:
        raise DataError(f"{path} cannot be made: {error.strerror}") from error
    with file:
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)


def _held(lock: Path, wait: bool, locks: ModuleType) -> BinaryIO:
    """Open the lock and take it, anew if whoever held it before has removed it meanwhile."""
    while True:
        with ExitStack() as stack:
            file = stack.enter_context(lock.open("ab"))
            _take(file, wait, locks)
            if lock.exists() and os.path.samestat(lock.stat(), os.fstat(file.fileno())):
                stack.pop_all()
                return file


def _take(file: BinaryIO, wait: bool, locks: ModuleType) -> None:
    try:
        locks.flock(file, locks.LOCK_EX | locks.LOCK_NB)
    except BlockingIOError:
        if not wait:
            raise
        log.warning("another process holds %s: waiting for its end", file.name)
        locks.flock(file, locks.LOCK_EX)
    except OSError as error:  # a file system without locks
        log.warning("%s cannot be locked: %s", file.name, error)
