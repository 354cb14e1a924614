"""A folder index kept on disk, so that 1.28 million files need listing once."""

import hashlib
import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from polarbear.base.arrays import Ints
from polarbear.base.errors import DataError
from polarbear.base.files import write_whole
from polarbear.base.guarded import naming, read_npz
from polarbear.base.notes import cache_folder

log = logging.getLogger("polarbear")

VERSION = 1
SETTLED_NS = 2_000_000_000


def cache_files(folder: Path, cache: bool | str | Path = True) -> tuple[Path, ...]:
    """Return the files that may hold the index of ``folder``: beside it, then in a cache folder."""
    if cache is False:
        return ()
    folder = folder.resolve()
    key = hashlib.sha256(os.fsencode(folder)).hexdigest()[:12]
    apart = f"polarbear-index-{folder.name}-{key}.npz"
    if cache is not True:
        return (Path(cache) / apart,)
    return folder.parent / f"polarbear-index-{folder.name}.npz", cache_folder() / apart


def read_cache(file: Path, changed: Mapping[str, int]) -> tuple[Ints, bytes] | None:
    """Return files a class (c,) and their names, or None where the cache does not hold.

    ``changed`` is class folder → time of its last change, as the folders are now.
    """
    if not os.path.lexists(file):
        return None
    try:
        with naming(file, "an index", remedy=""):
            key = _key(changed)
            content = read_npz(file, (*key, "counts", "names"))
            if not all(np.array_equal(content[name], key[name]) for name in key):
                log.info("%s is out of date: indexing again", file)
                return None
            counts, names = content["counts"].astype(np.intp), content["names"].tobytes()
            if counts.shape != (len(changed),) or names.count(b"\0") != counts.sum():
                raise ValueError("its parts do not fit together")
    except DataError as error:  # the folders are there
        log.warning("indexing again: %s", error)
        return None
    return counts, names


def write_cache(
    files: Sequence[Path], changed: Mapping[str, int], counts: Ints, names: bytes
) -> None:
    """Keep an index in the first file that can be written; if none can, log it and go on."""
    file = next((f for f in files if os.access(f.parent, os.W_OK)), files[-1])
    # Another file could still come within the same tick of the folder's clock, unseen.
    if time.time_ns() - max(changed.values()) < SETTLED_NS:
        log.info("the folders changed just now: %s is not written yet", file)
        return
    content = _key(changed) | {"counts": counts, "names": np.frombuffer(names, np.uint8)}
    try:
        write_whole(
            file, lambda out: np.savez(out, allow_pickle=False, **content), many_writers=True
        )
    except OSError as error:
        log.warning("the index could not be kept in %s: %s", file, error)


def _key(changed: Mapping[str, int]) -> dict[str, np.ndarray]:
    """What an index must agree with to hold."""
    return {
        "version": np.array(VERSION),
        "classes": np.frombuffer(os.fsencode("\0".join(changed)), np.uint8),
        "changed": np.array(list(changed.values()), np.int64),
    }
