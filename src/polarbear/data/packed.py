"""Many image files as one packed file set, for fast random reads.

A set is a folder of three files: ``images.bin``, the encoded images one after another, training
rows first; ``index.npz``, where each begins, its height and width, its class and file name; and
``polarbear-packed.json``, what the set holds. Images larger than asked are resized and stored as
JPEG (ImageNet at short side 256: about 26 KB each, 34 GB in all); others keep their bytes.
"""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polarbear.base.arrays import Ints
from polarbear.base.errors import DataError
from polarbear.base.guarded import naming, read_json, read_npz
from polarbear.benchmark.source import Source
from polarbear.data.decode import LARGEST, LazyImages
from polarbear.data.filenames import FileNames

FORMAT, VERSION = "polarbear-packed", 1
HEADER, IMAGES, INDEX = "polarbear-packed.json", "images.bin", "index.npz"

AGAIN = "Pack the images again"

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Header:
    """What a packed file set holds: its images, bytes, and the checksum of images and labels."""

    train: int
    test: int
    bytes: int
    size: int
    quality: int
    sha256: str
    format: str = FORMAT
    version: int = VERSION

    def __post_init__(self) -> None:
        """Refuse numbers that no set has."""
        limits = {"train": 2**40, "test": 2**40, "bytes": 2**60, "size": LARGEST, "quality": 100}
        for name, most in limits.items():
            value, least = getattr(self, name), int(name in ("size", "quality"))
            if type(value) is not int or not least <= value <= most:
                raise DataError(f"{name} is a whole number from {least} to {most}, not {value!r}")
        if not isinstance(self.sha256, str):
            raise DataError(f"sha256 is a text, not {self.sha256!r}")


@dataclass(frozen=True, eq=False)
class PackedImages:
    """Encoded images of one split inside ``images.bin``; ``offsets`` is (n + 1,).

    ``shapes`` (n, 2) is each image's height and width. Each read opens the file anew (10 µs in
    all; decoding takes 80 times as long), so that threads, forks and pickles do no harm.
    """

    file: Path
    offsets: Ints = field(repr=False)
    shapes: NDArray[np.int32] = field(repr=False)
    names: FileNames = field(repr=False)

    def __len__(self) -> int:
        """Count the images."""
        return len(self.shapes)

    def encoded(self, row: int) -> bytes:
        """Return an image as it is stored."""
        begin, end = int(self.offsets[row]), int(self.offsets[row + 1])
        try:
            with self.file.open("rb", buffering=0) as file:
                file.seek(begin)
                content = file.read(end - begin)
        except OSError as error:
            raise DataError(f"{self.where(row)} cannot be read: {error.strerror}") from error
        if len(content) != end - begin:
            raise DataError(f"{self.where(row)} is cut off: {self.file} became shorter")
        return content

    def name(self, row: int) -> str:
        """Return the file name an image had."""
        return self.names[row]

    def where(self, row: int) -> str:
        """Say where an image is stored, for messages."""
        return f"{self.name(row)} in {self.file} (row {row})"


def is_packed(folder: str | Path) -> bool:
    """Whether a folder holds a packed file set."""
    return (Path(folder) / HEADER).is_file()


def open_packed(
    folder: str | Path, *, size: int | None = None, workers: int | None = None
) -> Source:
    """Open a packed file set as a data source; ``images[rows]`` is (n, size, size, 3).

    ``size`` is by default the one it was packed with. Header and file sizes are checked here,
    every byte by :func:`verify_packed`.
    """
    folder = Path(folder)
    header = read_header(folder)
    index = _read_index(folder, header)
    names = FileNames(index["names"].tobytes())
    leaf = index["leaf"].astype(np.intp)

    def part(first: int, end: int) -> tuple[LazyImages, Ints]:
        offsets, shapes = index["offsets"][first : end + 1], index["shapes"][first:end]
        files = PackedImages(folder / IMAGES, offsets, shapes, names.part(first, end))
        return LazyImages(files, size or header.size, workers), leaf[first:end]

    leaves = tuple(FileNames(index["leaves"].tobytes()))
    train, test = part(0, header.train), part(header.train, header.train + header.test)
    return Source(leaves, *train, *test, str(folder), f"sha256:{header.sha256}")


def verify_packed(folder: str | Path) -> None:
    """Read a whole packed file set and refuse it if any byte changed since it was written."""
    folder = Path(folder)
    header = read_header(folder)
    index = _read_index(folder, header)
    with (folder / IMAGES).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    if content_checksum(digest, index) != header.sha256:
        raise _damaged(folder, f"its content no longer has the sha256 {header.sha256}")


def content_checksum(images: Any, index: Arrays) -> str:
    """Return the sha256 of the images' bytes, already hashed, and of the index after them."""
    digest = images.copy()
    for name in sorted(index):
        digest.update(index[name].tobytes())
    return str(digest.hexdigest())


def read_header(folder: Path) -> Header:
    """Read and check what a set says about itself."""
    if not is_packed(folder):
        part = folder.with_name(f"{folder.name}.part")
        hint = f" ({part.name} is one that was never finished)" if part.exists() else ""
        raise DataError(f"{folder} holds no packed images: {HEADER} is missing{hint}")
    with naming(folder / HEADER, "a header", remedy=AGAIN):
        content = read_json(folder / HEADER, "a header", remedy=AGAIN)
        if content["format"] != FORMAT or content["version"] != VERSION:
            raise DataError(
                f"its format is {content['format']!r} version {content['version']}, "
                f"this polarbear reads {FORMAT!r} version {VERSION}. {AGAIN}"
            )
        return Header(**content)


def _read_index(folder: Path, header: Header) -> Arrays:
    count = header.train + header.test
    there = (folder / IMAGES).stat().st_size if (folder / IMAGES).is_file() else 0
    if there != header.bytes:
        raise _damaged(folder, f"{IMAGES} has {there:,} bytes instead of {header.bytes:,}")
    # Names of files have 255 bytes at most, those that a table lists have their folders too.
    most = 4096 * (count + 1) + (1 << 20)
    kinds = {
        "leaf": ("<i4", (count,)),
        "leaves": ("u1", None),
        "names": ("u1", None),
        "offsets": ("<i8", (count + 1,)),
        "shapes": ("<i4", (count, 2)),
    }
    index = read_npz(folder / INDEX, kinds, remedy=AGAIN, most=most)
    whole = all(
        name in index and index[name].dtype == dtype and shape in (None, index[name].shape)
        for name, (dtype, shape) in kinds.items()
    )
    if not whole or not _fits(index, header):
        raise _damaged(folder, f"{INDEX} does not fit {HEADER} ({count} images)")
    return index


def _fits(index: Arrays, header: Header) -> bool:
    offsets, leaf = index["offsets"], index["leaf"]
    leaves = len(FileNames(index["leaves"].tobytes()))
    return bool(
        len(FileNames(index["names"].tobytes())) == header.train + header.test
        and (offsets[0], offsets[-1]) == (0, header.bytes)
        and np.all(np.diff(offsets) >= 0)
        and np.all((leaf >= 0) & (leaf < leaves))
    )


def _damaged(folder: Path, what: str) -> DataError:
    return DataError(f"the packed images in {folder} cannot be used: {what}. {AGAIN}")
