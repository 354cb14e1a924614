"""Runs of a sweep that nobody has begun: their folders hold what is asked for, ``asked.json``."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polarbear.base.files import write_json
from polarbear.base.sealed import sealed, unsealed
from polarbear.runs.guards import reading, writing
from polarbear.settings.settings import Settings

NAME = "asked.json"


def let_wait(folder: Path, settings: Settings) -> None:
    """Note what is to be trained into a folder, if no run is there."""
    if not (folder / "manifest.json").exists():
        with writing(folder):
            write_json(folder / NAME, sealed({"settings": settings.to_dict()}))


def find_waiting(root: str | Path) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Go through the folders at or below one whose runs wait, with what they are asked for."""
    for file in sorted(Path(root).rglob(NAME)):
        if not (file.parent / "manifest.json").exists():
            with reading(file):
                settings = dict(unsealed(file.read_bytes(), required=True)["settings"])
            yield file.parent, settings
