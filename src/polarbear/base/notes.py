"""Facts found out once and noted in the user's cache folder; without a note, they cost time again.

A note that cannot be read or written is no error.
"""

import os
from pathlib import Path
from typing import Any

from polarbear.base.errors import DataError
from polarbear.base.files import write_json
from polarbear.base.guarded import read_json


def cache_folder() -> Path:
    """Return the user's folder for what can be found out or made again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "polarbear"


def read_notes(name: str) -> dict[str, Any]:
    """Return the notes of a name, key by key."""
    try:
        return read_json(cache_folder() / f"{name}.json")
    except (DataError, RuntimeError):  # RuntimeError: a user without a home
        return {}


def write_note(name: str, key: str, value: Any) -> None:
    """Add a note, or replace the one of its key."""
    try:
        # Several processes may find out the same at once.
        notes = read_notes(name) | {key: value}
        write_json(cache_folder() / f"{name}.json", notes, many_writers=True)
    except (OSError, RuntimeError):
        return
