"""Facts found out once and noted in the user's cache folder; without a note, they cost time again.

A note that cannot be read or written is no error.
"""

import json
import os
import secrets
from pathlib import Path
from typing import Any

from polarbear.base.errors import DataError
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
        file = cache_folder() / f"{name}.json"
        # A name of its own for each writer: several processes may find out the same at once.
        part = file.with_name(f".{name}-{secrets.token_hex(4)}.part")
        file.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(read_notes(name) | {key: value}, indent=1), encoding="utf-8")
        part.replace(file)
    except (OSError, RuntimeError):
        return
