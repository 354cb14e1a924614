"""A folder index kept on disk, so that 1.28 million files need listing once."""

import hashlib
import logging
import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from polarbear.arrays import Ints

log = logging.getLogger("polarbear")

VERSION = 1
SETTLED_NS = 2_000_000_000


def cache_file(folder: Path, cache: bool | str | Path = True) -> Path | None:
    """Give the file that holds the index of ``folder``: beside it, or in a cache folder."""
    if cache is False:
        return None
    name = folder.resolve().name
    if cache is True:
        beside = folder.resolve().parent / f"polarbear-index-{name}.npz"
        if beside.exists() or os.access(beside.parent, os.W_OK):
            return beside
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        cache = Path(home) / "polarbear"
    key = hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:12]
    return Path(cache) / f"polarbear-index-{name}-{key}.npz"


def read_cache(file: Path, changed: Mapping[str, int]) -> tuple[Ints, bytes] | None:
    """Give files a class (c,) and their names, or None where the cache does not hold.

    ``changed`` is class folder → time of its last change, as the folders are now.
    """
    if not file.is_file():
        return None
    try:
        with file.open("rb") as opened, np.load(opened, allow_pickle=False) as content:
            if content["version"] != VERSION or not _same(content, changed):
                log.info("%s is out of date: indexing again", file)
                return None
            counts, names = content["counts"].astype(np.intp), content["names"].tobytes()
        if counts.shape != (len(changed),) or names.count(b"\0") != counts.sum():
            raise ValueError("its parts do not fit together")
    except Exception as error:  # a damaged archive raises almost anything; the folders are there
        log.warning("%s is damaged (%s): indexing again", file, error)
        return None
    return counts, names


def write_cache(file: Path, changed: Mapping[str, int], counts: Ints, names: bytes) -> None:
    """Keep an index; where that fails, log it and go on without."""
    # Another file could still come within the same tick of the folder's clock, unseen.
    if time.time_ns() - max(changed.values()) < SETTLED_NS:
        log.info("the folders changed just now: %s is not written yet", file)
        return
    content = {
        "version": np.array(VERSION),
        "classes": _as_bytes(changed),
        "changed": np.array(list(changed.values()), np.int64),
        "counts": counts,
        "names": np.frombuffer(names, np.uint8),
    }
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # A name of its own for each writer: many processes may index at once.
        with tempfile.NamedTemporaryFile(
            dir=file.parent, prefix=".polarbear-", delete=False
        ) as part:
            np.savez(part, allow_pickle=False, **content)
        Path(part.name).replace(file)
    except OSError as error:
        log.warning("the index could not be kept in %s: %s", file, error)


def _same(content: Mapping[str, np.ndarray], changed: Mapping[str, int]) -> bool:
    return bool(
        np.array_equal(content["classes"], _as_bytes(changed))
        and np.array_equal(content["changed"], list(changed.values()))
    )


def _as_bytes(names: Mapping[str, int]) -> np.ndarray:
    return np.frombuffer(os.fsencode("\0".join(names)), np.uint8)
