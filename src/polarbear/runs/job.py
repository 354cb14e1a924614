"""Which job of a cluster a run was given to, and where its log is: ``job.json``.

Nothing of the run depends on it: it has no checksum, and one that cannot be read is as good as
none.
"""

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from polarbear.base.files import write_json
from polarbear.runs.guards import writing

NAME = "job.json"


@dataclass(frozen=True)
class Job:
    """A task of a job by its name and number; its log is told from the run folder."""

    name: str
    task: int
    log: str


def give_to(folder: Path, name: str, task: int, log: Path) -> None:
    """Note the job that a run was given to; of several, the last one counts."""
    with writing(folder):
        job = Job(name, task, Path(os.path.relpath(log, folder)).as_posix())
        write_json(folder / NAME, asdict(job))


def take_from_job(folder: Path) -> None:
    """Forget the job of a run: it was refused."""
    (folder / NAME).unlink(missing_ok=True)


def last_job(folder: Path) -> Job | None:
    """Return the job that a run was given to last; None if there was none, or nobody can tell."""
    with suppress(OSError, ValueError, TypeError, RecursionError):
        job = Job(**json.loads((folder / NAME).read_bytes()))
        if isinstance(job.name, str) and isinstance(job.task, int) and isinstance(job.log, str):
            return job
    return None


def log_of(folder: Path) -> str | None:
    """Return where the log of a run's last job is, seen from where its folder is."""
    job = last_job(folder)
    return None if job is None else os.path.normpath(folder / job.log)
