"""Writing a packed file set from image files; :mod:`polarbear.data.packed` reads it."""

import hashlib
import io
import logging
import os
from collections.abc import Callable, Iterable
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from polarbear.base.errors import DataError, counted
from polarbear.base.files import write_json, write_whole
from polarbear.base.lock import alone
from polarbear.benchmark.source import Source
from polarbear.data.decode import (
    LARGEST,
    EncodedImages,
    LazyImages,
    in_order,
    open_image,
    reading,
    shrink,
)
from polarbear.data.filenames import FileNames
from polarbear.data.packed import HEADER, IMAGES, INDEX, Arrays, Header, content_checksum

log = logging.getLogger("polarbear")

# One bad file in a million should not hide the next; many mean that something else is wrong.
MOST_UNREADABLE = 20

Progress = Callable[[int, int], None]
Stored = tuple[bytes, str, tuple[int, int]]
"""One image as it goes into the set: its bytes, its name, its height and width."""


def pack(
    source: Source,
    folder: str | Path,
    *,
    size: int = 256,
    quality: int = 90,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Path:
    """Write a source's images into one packed file set and give its folder.

    Images whose short side is above ``size`` are resized to it and stored as JPEG of this
    ``quality``; the others keep their bytes. ``progress(done, total)`` is called now and then.
    All is written into ``<folder>.part``, which gets its name when it is whole: a run that was
    cut off leaves nothing that could be mistaken for a set, and the next run starts afresh. While
    one process packs into a folder, another is refused.
    """
    if not 1 <= size <= LARGEST or not 1 <= quality <= 100:
        raise DataError(f"size is 1 to {LARGEST}, quality 1 to 100; they are {size} and {quality}")
    folder = Path(folder).absolute()
    files = [_files_of(source, split) for split in ("train", "test")]
    total = sum(map(len, files))
    rows = ((images, row) for images in files for row in range(len(images)))
    encode = partial(_stored, size=size, quality=quality)
    with alone(folder, wait=False), closing(in_order(encode, rows, workers)) as stored:
        part = _fresh_part(folder)
        digest, index = _write_images(part / IMAGES, stored, total, progress)
        index["leaf"] = np.concatenate([source.train_leaf, source.test_leaf]).astype("<i4")
        index["leaves"] = np.frombuffer(FileNames.of(source.leaves).joined, np.uint8)
        write_whole(part / INDEX, lambda out: np.savez(out, allow_pickle=False, **index))
        end, sha256 = int(index["offsets"][-1]), content_checksum(digest, index)
        header = Header(len(files[0]), len(files[1]), end, size, quality, sha256)
        write_json(part / HEADER, asdict(header))
        if folder.exists():
            folder.rmdir()
        part.rename(folder)
    log.info("packed %d images into %s", total, folder)
    return folder


def _files_of(source: Source, split: str) -> EncodedImages:
    images = getattr(source, split)
    if not isinstance(images, LazyImages):
        raise DataError(
            f"only image files can be packed; the {split} images of {source.origin} are a "
            f"{type(images).__name__}: open them with open_folders or open_imagenet"
        )
    return images.files


def _fresh_part(folder: Path) -> Path:
    """An empty ``<folder>.part``; what an earlier run left in it is removed."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise DataError(f"{folder} exists already: give another folder, or remove it")
    part = folder.with_name(f"{folder.name}.part")
    part.mkdir(parents=True, exist_ok=True)
    strange = sorted(f.name for f in part.iterdir() if f.name not in (HEADER, IMAGES, INDEX))
    if strange:
        raise DataError(f"{part} holds {', '.join(strange[:5])}, not ours: move or remove it")
    for file in part.iterdir():
        log.info("removing %s of a run that was cut off", file)
        file.unlink()
    return part


def _write_images(
    path: Path, images: Iterable[Stored | DataError], total: int, progress: Progress | None
) -> tuple[Any, Arrays]:
    """Write every image; give the running sha256 and where each one lies."""
    digest, offsets, shapes, names = hashlib.sha256(), [0], [], []
    unreadable: list[DataError] = []
    with path.open("wb") as out:
        for done, stored in enumerate(images, start=1):
            if isinstance(stored, DataError):
                unreadable.append(stored)
                if len(unreadable) == MOST_UNREADABLE:
                    break
                continue
            encoded, name, shape = stored
            out.write(encoded)
            digest.update(encoded)
            offsets.append(offsets[-1] + len(encoded))
            shapes.append(shape)
            names.append(name)
            if progress and (done % 64 == 0 or done == total):
                progress(done, total)
        out.flush()
        os.fsync(out.fileno())
    if unreadable:
        raise DataError(
            f"{counted(len(unreadable), 'image')} cannot be packed:\n"
            + "\n".join(map(str, unreadable))
        )
    index: Arrays = {
        "offsets": np.array(offsets, "<i8"),
        "shapes": np.array(shapes, "<i4").reshape(-1, 2),
        "names": np.frombuffer(FileNames.of(names).joined, np.uint8),
    }
    return digest, index


def _stored(place: tuple[EncodedImages, int], size: int, quality: int) -> Stored | DataError:
    files, row = place
    try:
        encoded = files.encoded(row)
        with reading(files.where(row)):
            image = open_image(encoded)
            if min(image.size) <= size:
                image.load()  # damage shows only here
            else:
                image = shrink(image, size)
                out = io.BytesIO()
                image.save(out, "JPEG", quality=quality)
                encoded = out.getvalue()
            return encoded, files.name(row), (image.height, image.width)
    except DataError as error:
        return error
