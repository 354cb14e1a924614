"""Writing a packed file set from image files; :mod:`polarbear.data.packed` reads it."""

import hashlib
import io
import logging
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from functools import partial
from io import BufferedWriter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polarbear.base.errors import DataError, counted
from polarbear.base.files import write_json, write_whole
from polarbear.base.guarded import read_json
from polarbear.base.lock import alone
from polarbear.benchmark.source import Source
from polarbear.data.decode import (
    LARGEST,
    EncodedImages,
    LazyImages,
    in_order,
    in_turns,
    jpeg_pixels,
    reading,
    shrink,
    whole_or_opened,
    workers_or_default,
)
from polarbear.data.decoders import Decoders, decoders
from polarbear.data.filenames import FileNames
from polarbear.data.packed import HEADER, IMAGES, INDEX, Arrays, Header, content_checksum

log = logging.getLogger("polarbear")

# One bad file in a million should not hide the next; many mean that something else is wrong.
MOST_UNREADABLE = 20

Progress = Callable[[int, int], None]
Stored = tuple[bytes, tuple[int, int]]
"""One image as it goes into the set: its bytes, its height and width."""

BEGUN, WRITTEN = "begun.json", "written.bin"  # what a run that was cut off packed, and how far
RECORD = 3 * 8  # bytes that are noted of an image
NOTED_AT_ONCE = 4096  # images between two waits for the disk


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
    cut off leaves nothing that could be mistaken for a set, and the next one with the same images,
    size and quality goes on from there. While one process packs into a folder, another is refused.
    """
    if not 1 <= size <= LARGEST or not 1 <= quality <= 100:
        raise DataError(f"size is 1 to {LARGEST}, quality 1 to 100; they are {size} and {quality}")
    folder = Path(folder).absolute()
    files = [_files_of(source, split) for split in ("train", "test")]
    counts = [len(images) for images in files]
    with alone(folder, wait=False):
        part = _part(folder, {"data": source.checksum, "size": size, "quality": quality})
        before = Written.read(part)
        places = _Places(files)
        count = workers_or_default(workers)
        processes = decoders(count, sum(counts) - len(before))
        turns = in_turns(range(len(before), sum(counts)), processes)
        encode = partial(_stored, places, processes, size, quality)
        with closing(in_order(encode, turns, count)) as stored:
            images = chain.from_iterable(stored)
            written, digest = _write_images(part, before, images, sum(counts), progress)
        index = written.index([places.name(row) for row in range(sum(counts))])
        index["leaf"] = np.concatenate([source.train_leaf, source.test_leaf]).astype("<i4")
        index["leaves"] = np.frombuffer(FileNames.of(source.leaves).joined, np.uint8)
        write_whole(part / INDEX, lambda out: np.savez(out, allow_pickle=False, **index))
        end, sha256 = int(index["offsets"][-1]), content_checksum(digest, index)
        header = Header(counts[0], counts[1], end, size, quality, sha256)
        write_json(part / HEADER, asdict(header))
        for file in (BEGUN, WRITTEN):
            (part / file).unlink()
        if folder.exists():
            folder.rmdir()
        part.rename(folder)
    log.info("packed %d images into %s", sum(counts), folder)
    return folder


def _files_of(source: Source, split: str) -> EncodedImages:
    images = getattr(source, split)
    if not isinstance(images, LazyImages):
        raise DataError(
            f"only image files can be packed; the {split} images of {source.origin} are a "
            f"{type(images).__name__}, which needs no packing: it is read without being decoded"
        )
    return images.files


def _part(folder: Path, begun: dict[str, Any]) -> Path:
    """Return ``<folder>.part``: as an earlier run left it if that began the same, else empty."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise DataError(f"{folder} exists already: give another folder, or remove it")
    part = folder.with_name(f"{folder.name}.part")
    part.mkdir(parents=True, exist_ok=True)
    ours = (HEADER, IMAGES, INDEX, BEGUN, WRITTEN)
    strange = sorted(f.name for f in part.iterdir() if f.name not in ours)
    if strange:
        raise DataError(f"{part} holds {', '.join(strange[:5])}, not ours: move or remove it")
    with suppress(DataError):  # none, or one that was cut off itself
        # Data without a checksum could be others by now.
        if begun["data"] and read_json(part / BEGUN) == begun:
            return part
    for file in part.iterdir():
        log.info("removing %s of a run that was cut off", file)
        file.unlink()
    write_json(part / BEGUN, begun)
    return part


@dataclass(frozen=True, eq=False)
class Written:
    """What is in ``images.bin`` so far: bytes, height and width of each image, (n, 3)."""

    records: NDArray[np.int64]

    @classmethod
    def read(cls, part: Path) -> "Written":
        """Read how far an earlier run came; what it had not noted yet is cut off."""
        content = (part / WRITTEN).read_bytes() if (part / WRITTEN).exists() else b""
        whole = len(content) // RECORD * RECORD
        records = np.frombuffer(content[:whole], "<i8").reshape(-1, 3)
        # A power cut may leave zeros at the end of a file.
        records = records[: np.argmin(np.append(records[:, 0] > 0, False))]
        there = (part / IMAGES).stat().st_size if (part / IMAGES).exists() else 0
        known = cls(records[: np.searchsorted(np.cumsum(records[:, 0]), there, side="right")])
        for name, size in ((IMAGES, known.bytes), (WRITTEN, RECORD * len(known))):
            with (part / name).open("ab") as file:
                file.truncate(size)
        return known

    def __len__(self) -> int:
        """Count the images."""
        return len(self.records)

    @property
    def bytes(self) -> int:
        """Count the bytes."""
        return int(self.records[:, 0].sum())

    def index(self, names: Sequence[str]) -> Arrays:
        """Return what an index says of the images."""
        return {
            "offsets": np.concatenate([[0], np.cumsum(self.records[:, 0])]).astype("<i8"),
            "shapes": self.records[:, 1:].astype("<i4"),
            "names": np.frombuffer(FileNames.of(names).joined, np.uint8),
        }


def _write_images(
    part: Path,
    before: Written,
    images: Iterable[Stored | DataError],
    total: int,
    progress: Progress | None,
) -> tuple[Written, Any]:
    """Write every image after those of ``before``; returns all, and their running sha256."""
    digest, new, noted = _hashed(part / IMAGES), list[tuple[int, int, int]](), 0
    unreadable: list[DataError] = []
    with (part / IMAGES).open("ab") as out, (part / WRITTEN).open("ab") as notes:
        try:
            for done, stored in enumerate(images, start=len(before) + 1):
                if isinstance(stored, DataError):
                    unreadable.append(stored)
                    if len(unreadable) == MOST_UNREADABLE:
                        break
                elif not unreadable:  # the next run begins with the first of those
                    encoded, shape = stored
                    out.write(encoded)
                    digest.update(encoded)
                    new.append((len(encoded), *shape))
                if len(new) - noted >= NOTED_AT_ONCE:
                    noted = _note(out, notes, new, noted)
                if progress and (done % 64 == 0 or done == total):
                    progress(done, total)
        finally:
            _note(out, notes, new, noted)
    if unreadable:
        raise DataError(
            f"{counted(len(unreadable), 'image')} cannot be packed:\n"
            + "\n".join(map(str, unreadable))
        )
    records = np.array(new, np.int64).reshape(-1, 3)
    return Written(np.concatenate([before.records, records])), digest


def _note(
    out: BufferedWriter, notes: BufferedWriter, new: list[tuple[int, int, int]], noted: int
) -> int:
    """Note the images that are not noted yet, once they are on the disk; returns how many are."""
    out.flush()
    os.fsync(out.fileno())
    notes.write(np.array(new[noted:], "<i8").tobytes())
    notes.flush()
    return len(new)


def _hashed(path: Path) -> Any:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256")


@dataclass(frozen=True, eq=False)
class _Places:
    """The image files of several splits, one after another."""

    files: Sequence[EncodedImages]

    def at(self, row: int) -> tuple[EncodedImages, int]:
        for images in self.files:
            if row < len(images):
                return images, row
            row -= len(images)
        raise IndexError(row)

    def name(self, row: int) -> str:
        images, own = self.at(row)
        return images.name(own)


def _stored(
    places: _Places, processes: Decoders | None, size: int, quality: int, rows: range
) -> list[Stored | DataError]:
    """Return some images as they are to be stored, or what is wrong with them."""
    here = [places.at(row) for row in rows]
    encoded: list[bytes | DataError] = []
    for files, row in here:
        try:
            encoded.append(files.encoded(row))
        except DataError as error:
            encoded.append(error)
    found: list[Stored | None] | None = None
    if processes is not None and not any(isinstance(one, DataError) for one in encoded):
        found = processes.do(shrink_all, encoded, size, quality)
    results: list[Stored | DataError] = []
    for (files, row), one, done in zip(here, encoded, found or [None] * len(here), strict=True):
        try:
            if isinstance(one, DataError):
                raise one
            results.append(done or _shrunk(one, files.where(row), size, quality))
        except DataError as error:
            results.append(error)
    return results


def shrink_all(_: object, encoded: Sequence[bytes], size: int, quality: int) -> list[Stored | None]:
    """Return images as they are to be stored, in a process; None for those that are damaged."""
    found: list[Stored | None] = []
    for one in encoded:
        try:
            found.append(_shrunk(one, "", size, quality))
        except DataError:
            found.append(None)  # whoever knows where it comes from says what is wrong
    return found


def _shrunk(encoded: bytes, where: str, size: int, quality: int) -> Stored:
    with reading(where):
        whole = jpeg_pixels(encoded, size)
        image = whole_or_opened(encoded, whole)
        if min(image.size) <= size:
            image.load()  # damage shows only here
        else:
            image = shrink(image, size)
            out = io.BytesIO()
            image.save(out, "JPEG", quality=quality)
            encoded = out.getvalue()
        return encoded, (image.height, image.width)
