"""Who trains into a run folder, and how it ended there: ``process.json``.

The lock says whether a process is at work, this file which one. Nothing depends on it but what
people are told: it has no checksum, and one that cannot be read is as good as none.
"""

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from polarbear.base.files import write_json
from polarbear.base.names import readable

NAME = "process.json"
LONGEST = 300  # signs of an error


@dataclass(frozen=True)
class Process:
    """The last process that trained into a folder, and what came of it: running, stopped, failed.

    One that was killed could not say so: it is still told to be running.
    """

    host: str
    pid: int
    state: str
    error: str | None = None


@contextmanager
def announced(folder: Path) -> Iterator[None]:
    """Say who trains into a folder meanwhile and, unless the run is finished then, how it ended."""
    _write(folder, "running")
    try:
        yield
    except Exception as error:
        _end(folder, "failed", f"{type(error).__name__}: {error}")
        raise
    except BaseException:  # Ctrl-C, or a fleet that lets go of its runs
        _end(folder, "stopped")
        raise
    else:
        _end(folder, "stopped")


def last_process(folder: Path) -> Process | None:
    """Return who trained into a folder last; None if it is finished, or nobody said."""
    with suppress(OSError, ValueError, TypeError, RecursionError):
        content = json.loads((folder / NAME).read_bytes())
        told = Process(**content)
        if isinstance(told.pid, int) and isinstance(told.host, str):
            return told
    return None


def _end(folder: Path, state: str, error: str | None = None) -> None:
    with suppress(OSError):  # a full disk: what went wrong is told elsewhere, too
        if (folder / "finished.json").exists():
            (folder / NAME).unlink(missing_ok=True)
        else:
            _write(folder, state, error)


def _write(folder: Path, state: str, error: str | None = None) -> None:
    told = None if error is None else readable(error, LONGEST)
    write_json(folder / NAME, asdict(Process(socket.gethostname(), os.getpid(), state, told)))
