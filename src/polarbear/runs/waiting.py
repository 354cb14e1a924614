"""Runs that nobody has begun: their folders hold what is asked for, ``asked.json``."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from polarbear.base.files import write_json
from polarbear.base.sealed import sealed, unsealed
from polarbear.runs.guards import reading, writing
from polarbear.settings.settings import Settings

NAME = "asked.json"


@dataclass(frozen=True)
class Waiting:
    """A run that waits, and what it is asked for; without ``threads`` it takes the usual number."""

    folder: Path
    settings: dict[str, Any]
    threads: int | None


def let_wait(folder: Path, settings: Settings, threads: int | None = None) -> None:
    """Note what is to be trained into a folder, if no run is there."""
    if not (folder / "manifest.json").exists():
        with writing(folder):
            asked = {"settings": settings.to_dict(), "threads": threads}
            write_json(folder / NAME, sealed(asked))


def asked_folders(root: Path) -> list[Path]:
    """Return the folders at or below one where runs wait, or did until just now."""
    return sorted(file.parent for file in root.rglob(NAME))


def waiting_in(folder: Path) -> Waiting | None:
    """Return the run that waits in a folder, None if there is none or it was begun."""
    file = folder / NAME
    if (folder / "manifest.json").exists():
        return None
    with reading(file):
        try:
            asked = unsealed(file.read_bytes(), required=True)
        except FileNotFoundError:  # never there, or begun meanwhile
            return None
        # Earlier versions did not say how many threads.
        return Waiting(folder, dict(asked["settings"]), asked.get("threads"))
