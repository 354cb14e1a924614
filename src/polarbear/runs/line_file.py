"""Files that grow by a line of sealed JSON: a line counts once it is whole."""

import json
import os
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from polarbear.base.files import plain
from polarbear.base.sealed import sealed, unsealed
from polarbear.runs.guards import RunError, reading


def append(file: Path, record: Mapping[str, Any]) -> None:
    """Add a line; a last one that a killed process has left without its end is cut off."""
    line = json.dumps(sealed(plain(record)), allow_nan=False) + "\n"
    with file.open("ab+") as opened:
        if size := opened.seek(0, os.SEEK_END):
            opened.seek(size - 1)
            if opened.read() != b"\n":
                opened.seek(0)
                opened.truncate(opened.read().rfind(b"\n") + 1)
        opened.write(line.encode())


def records(file: Path, *, required: bool, may_be_torn: bool) -> Iterator[dict[str, Any]]:
    """Go through the whole lines, each with its checksum where that is ``required``."""
    if not file.is_file():
        return
    with reading(file):
        *lines, torn = file.read_bytes().split(b"\n")
        if torn and not may_be_torn:
            raise ValueError("its last line is cut off")
    for number, line in enumerate(lines, start=1):
        with reading(file, number):
            record = unsealed(line, required=required)
        yield record


def size_on_disk(file: Path) -> int:
    """Return a file's length once all of it is on the disk."""
    if not file.exists():
        return 0
    with file.open("ab") as opened:
        os.fsync(opened.fileno())
        return opened.tell()


def cut(file: Path, size: int, *, required: bool) -> None:
    """Drop what came after the first ``size`` bytes, which must be there and whole."""
    there = file.stat().st_size if file.exists() else 0
    if there < size:
        raise RunError(
            f"{file} lacks lines this run has written: it has {there} bytes, the checkpoint counts "
            f"on {size}. Put the file back"
        )
    if there > size:
        os.truncate(file, size)
    deque(records(file, required=required, may_be_torn=False), maxlen=0)
