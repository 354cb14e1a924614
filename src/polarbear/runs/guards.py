"""What guards the files of a run: against damage, against links, and against a second process."""

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

from polarbear.base.errors import PolarbearError
from polarbear.base.guarded import undamaged
from polarbear.base.lock import take
from polarbear.runs import process

log = logging.getLogger("polarbear")

#: What a run writes into its folder: none of it may be a link, or files elsewhere would change.
OWN = (
    *("manifest.json", "epochs.jsonl", "scores.jsonl", "finished.json", "lock"),
    *("predictions", "raw", "checkpoint", process.NAME, "job.json"),
)


class RunError(PolarbearError):
    """A run folder that is missing, of another version, or already in use."""


class InUseError(RunError):
    """A run folder that a process trains into now: later it may be free."""


def reading(file: Path, line: int | None = None) -> AbstractContextManager[None]:
    """Turn whatever is wrong with a file into an error that names it."""
    where = file if line is None else f"{file}, line {line}"
    return undamaged(where, RunError, ": put back a copy of it, or begin a new run")


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn a write that fails into an error that says what to do; never write through a link."""
    refuse_links(folder)
    try:
        yield
    except OSError as error:
        raise RunError(
            f"no more can be written to {folder}: {error}. What is there is kept; make room, "
            f"then `polarbear resume {folder}`"
        ) from error


def refuse_links(folder: Path) -> None:
    """Refuse links to files or folders of the run's own; the run folder itself may be one."""
    for name in OWN:
        if (folder / name).is_symlink():
            raise RunError(
                f"{folder / name} is a link, and a run changes no files outside its folder: put "
                "the file or folder itself there, or move the whole run folder and link that"
            )


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Let nobody else train into a folder meanwhile; a killed process lets go by itself."""
    # A file of its own, open for writing: network file systems lock no other, and some let nobody
    # read a locked one.
    with writing(folder):
        file = (folder / "lock").open("ab")
    with file:
        try:
            if not take(file):
                raise InUseError(
                    f"{folder} is being trained into by this or another process: wait for its "
                    "end, or stop it"
                )
        except OSError as error:  # a file system without locks
            log.warning("%s cannot be locked: %s", folder, error)
        with ExitStack() as stack:
            with writing(folder):
                stack.enter_context(process.announced(folder))
            yield


def is_held(folder: Path) -> bool | None:
    """Whether a process trains into a folder; None where nobody can tell."""
    try:
        with (folder / "lock").open("ab") as file:
            return not take(file)
    except OSError:  # not ours, or a file system without locks
        return None
