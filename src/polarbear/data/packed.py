"""Many image files as one packed file set, for fast random reads.

A set is a folder of three files: ``images.bin``, the encoded images one after another, training
rows first; ``index.npz``, where each begins, its height and width, its class and file name; and
``polarbear-packed.json``, what the set holds. Images larger than asked are resized and stored as
JPEG (ImageNet at short side 256: about 26 KB each, 34 GB in all); others keep their bytes.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polarbear.arrays import Ints
from polarbear.data.decode import LazyImages
from polarbear.data.filenames import FileNames
from polarbear.data.source import Source
from polarbear.errors import DataError

FORMAT, VERSION = "polarbear-packed", 1
HEADER, IMAGES, INDEX = "polarbear-packed.json", "images.bin", "index.npz"

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

    def to_json(self) -> str:
        """Write it as text."""
        return json.dumps(asdict(self), indent=2) + "\n"


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
        """Give an image as it is stored."""
        begin, end = int(self.offsets[row]), int(self.offsets[row + 1])
        with self.file.open("rb", buffering=0) as file:
            file.seek(begin)
            content = file.read(end - begin)
        if len(content) != end - begin:
            raise DataError(f"{self.where(row)} is cut off: {self.file} became shorter")
        return content

    def name(self, row: int) -> str:
        """Give the file name an image had."""
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

    def images(first: int, end: int) -> LazyImages:
        offsets, shapes = index["offsets"][first : end + 1], index["shapes"][first:end]
        files = PackedImages(folder / IMAGES, offsets, shapes, names.part(first, end))
        return LazyImages(files, size or header.size, workers)

    return Source(
        tuple(FileNames(index["leaves"].tobytes())),
        images(0, header.train),
        leaf[: header.train],
        images(header.train, header.train + header.test),
        leaf[header.train :],
        origin=str(folder),
        checksum=f"sha256:{header.sha256}",
    )


def verify_packed(folder: str | Path) -> None:
    """Read a whole packed file set and refuse it if any byte changed since it was written."""
    folder = Path(folder)
    header = read_header(folder)
    index = _read_index(folder, header)
    digest = hashlib.sha256()
    with (folder / IMAGES).open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    if content_checksum(digest, index) != header.sha256:
        raise _damaged(folder, f"its content no longer has the sha256 {header.sha256}")


def content_checksum(images: Any, index: Arrays) -> str:
    """Give the sha256 of the images' bytes, already hashed, and of the index after them."""
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
    try:
        content = json.loads((folder / HEADER).read_text(encoding="utf-8"))
        if content["format"] != FORMAT or content["version"] != VERSION:
            raise _damaged(
                folder,
                f"its format is {content['format']!r} version {content['version']}, "
                f"this polarbear reads {FORMAT!r} version {VERSION}",
            )
        return Header(**content)
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, DataError):
            raise
        raise _damaged(folder, f"{HEADER} cannot be read: {error}") from error


def _read_index(folder: Path, header: Header) -> Arrays:
    count = header.train + header.test
    there = (folder / IMAGES).stat().st_size if (folder / IMAGES).exists() else 0
    if there != header.bytes:
        raise _damaged(folder, f"{IMAGES} has {there:,} bytes instead of {header.bytes:,}")
    try:
        with (folder / INDEX).open("rb") as file, np.load(file, allow_pickle=False) as stored:
            index = {
                name: stored[name] for name in ("leaf", "leaves", "names", "offsets", "shapes")
            }
    except Exception as error:  # a damaged archive raises almost anything
        raise _damaged(folder, f"{INDEX} cannot be read: {error}") from error
    lengths = [len(index["leaf"]), len(index["shapes"]), len(index["offsets"]) - 1]
    lengths.append(len(FileNames(index["names"].tobytes())))
    offsets = index["offsets"]
    if set(lengths) != {count} or offsets[-1] != header.bytes or np.any(np.diff(offsets) < 0):
        raise _damaged(folder, f"{INDEX} does not fit {HEADER} ({count} images)")
    return index


def _damaged(folder: Path, what: str) -> DataError:
    return DataError(f"the packed images in {folder} cannot be used: {what}. Pack them again")
