"""Files written whole: there with all their bytes or not at all, even if the machine stops."""

import errno
import hashlib
import json
import math
import os
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np


def write_whole(
    path: Path, write: Callable[[BinaryIO], object], *, many_writers: bool = False
) -> None:
    """Write a file so that it is there whole or not at all, even if the machine stops.

    It is on the disk, and so is its name, when this comes back. Where there are ``many_writers``,
    several processes may write it at once.
    """
    missing = [one for one in path.parents if not one.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    for made in missing:
        sync_folder(made.parent)
    # Not tempfile: its files are the owner's alone, and a run folder is often a group's.
    writer = f"-{secrets.token_hex(4)}" if many_writers else ""
    temporary = path.with_name(f".{path.name}{writer}.part")
    temporary.unlink(missing_ok=True)  # what a killed process left, or a link
    try:
        with temporary.open("xb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Bring a folder's names to the disk: a file can be there and its name lost in a power cut."""
    try:
        opened = os.open(folder, os.O_RDONLY)
    except PermissionError:  # Windows opens no folder, and needs no such thing
        return
    try:
        os.fsync(opened)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that cannot
            raise
    finally:
        os.close(opened)


def write_json(path: Path, content: Mapping[str, Any], *, many_writers: bool = False) -> None:
    """Write JSON whole or not at all."""
    text = json.dumps(plain(content), indent=1, allow_nan=False) + "\n"
    write_whole(path, lambda file: file.write(text.encode()), many_writers=many_writers)


def file_digest(path: Path, algorithm: str) -> str:
    """Return the hexadecimal digest of a file."""
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def plain(value: Any) -> Any:
    """Turn arrays into lists and NaN into None, all the way down."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
