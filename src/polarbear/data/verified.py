"""Files whose content has been checked, so that an unchanged one is not read again.

A file counts as unchanged while its place, size, inode and both of its times are the same. Any
write sets the change time, which programs cannot set back, so an altered file is read again.
"""

import time
from pathlib import Path

from polarbear.base.notes import read_notes, write_note

SETTLED_NS = 2_000_000_000  # a file written just now could be written again within a clock tick


def was_verified(path: Path, digest: str) -> bool:
    """Whether this file, as it is now, was found to have this digest before."""
    return bool(read_notes("verified").get(str(path.resolve())) == _marks(path, digest))


def remember_verified(path: Path, digest: str) -> None:
    """Note that this file has this digest; where no note can be kept, it is checked anew."""
    if time.time_ns() - path.stat().st_ctime_ns >= SETTLED_NS:
        write_note("verified", str(path.resolve()), _marks(path, digest))


def _marks(path: Path, digest: str) -> list[int | str]:
    s = path.stat()
    return [digest, s.st_size, s.st_dev, s.st_ino, s.st_mtime_ns, s.st_ctime_ns]
