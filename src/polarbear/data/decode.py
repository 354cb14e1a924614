"""Image files, decoded when they are asked for.

Needs Pillow, as the extra ``images`` has it.
"""

import io
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from polarbear.base.arrays import Ints, Pixels
from polarbear.base.errors import DataError, install_line
from polarbear.base.guarded import naming, read_bytes

if TYPE_CHECKING:
    from PIL.Image import Image


Item = TypeVar("Item")
Result = TypeVar("Result")

LARGEST = 2048  # pixels a side: a batch of 128 such images has 1.6 GB
LONGEST = 100  # sides to one: resizing a line of one pixel would make gigabytes of it


class EncodedImages(Protocol):
    """Encoded images by row number: a folder of files or one packed file."""

    def __len__(self) -> int:
        """Count the images."""
        ...

    def encoded(self, row: int) -> bytes:
        """Return an image as it is stored: JPEG, PNG or WebP."""
        ...

    def name(self, row: int) -> str:
        """Return an image's file name."""
        ...

    def where(self, row: int) -> str:
        """Say where an image is stored, for messages."""
        ...


class OnDisk(ABC):
    """Encoded images that are files of their own; whoever inherits says which."""

    @abstractmethod
    def path(self, row: int) -> Path:
        """Return an image's path."""

    def where(self, row: int) -> str:
        """Say where an image is stored, for messages."""
        return f"{self.path(row)} (row {row})"

    def encoded(self, row: int) -> bytes:
        """Return an image file's bytes."""
        return read_bytes(self.path(row), self.where(row))


@dataclass(frozen=True, eq=False)
class LazyImages:
    """Images by row number, decoded on access.

    With ``size`` s each image is resized until its short side is s and cut to the middle (s, s);
    without, images come at their own size, and a batch needs equal ones. ``workers`` threads
    decode a batch (default: one a processor, 16 at most).
    """

    files: EncodedImages
    size: int | None = None
    workers: int | None = None

    def __post_init__(self) -> None:
        """Refuse a size or a number of workers below 1, and a missing Pillow."""
        for name in ("size", "workers"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise DataError(f"{name} counts from 1; it is {value}")
        if self.size is not None and self.size > LARGEST:
            raise DataError(f"size is {LARGEST} pixels at most; it is {self.size}")
        need_pillow()

    def __len__(self) -> int:
        """Count the images."""
        return len(self.files)

    def __getitem__(self, rows: Any) -> Pixels:
        """Return images (n, h, w, 3) for (n,) row numbers or a slice; (h, w, 3) for one number."""
        if isinstance(rows, (int, np.integer)):
            return self._decoded(int(_row_numbers([rows], len(self))[0]))
        numbers = _row_numbers(rows, len(self))
        if not len(numbers):
            side = self.size or 0
            return np.empty((0, side, side, 3), np.uint8)
        return self._batch(numbers.tolist())

    def image(self, row: int) -> Pixels:
        """Return one image at its own size: (h, w, 3)."""
        return decode(self.files.encoded(row), self.files.where(row))

    def _decoded(self, row: int) -> Pixels:
        return decode(self.files.encoded(row), self.files.where(row), self.size)

    def _batch(self, rows: list[int]) -> Pixels:
        first = self._decoded(rows[0])
        batch = np.empty((len(rows), *first.shape), np.uint8)
        batch[0] = first

        def fill(position: int) -> None:
            image = self._decoded(rows[position])
            if image.shape != first.shape:
                raise DataError(
                    f"images of one batch need one size: {self.files.where(rows[0])} is "
                    f"{first.shape[:2]}, {self.files.where(rows[position])} is "
                    f"{image.shape[:2]} (height, width). Give size=…, in a benchmark.toml "
                    "image_size = N below [data]; or take them one by one"
                )
            batch[position] = image

        # A pool for each batch (0.1 ms a thread) survives a fork; a lasting one would not.
        with ThreadPoolExecutor(min(workers_or_default(self.workers), len(rows))) as pool:
            for _ in pool.map(fill, range(1, len(rows))):
                pass
        return batch


def in_order(
    work: Callable[[Item], Result], items: Iterable[Item], workers: int | None = None
) -> Generator[Result, None, None]:
    """Return the result of each item in their order, by many threads that are a few items ahead."""
    threads = workers_or_default(workers)
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(work, item))
                if len(waiting) > 8 * threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            # Whoever has had enough, or Ctrl-C, does not wait for what is ahead.
            pool.shutdown(wait=False, cancel_futures=True)


def workers_or_default(workers: int | None) -> int:
    """Return the number of decoding threads: as asked, or one a processor and 16 at most."""
    return workers or min(16, os.cpu_count() or 1)


def decode(encoded: bytes, where: str, size: int | None = None) -> Pixels:
    """Return an encoded image as RGB (h, w, 3), or cut to (size, size) round its middle.

    A rotation noted in the file's EXIF is left alone, as everybody does on ImageNet.
    """
    with reading(where):
        image = open_image(encoded)
        if size is None:
            return np.array(as_rgb(image))
        image = shrink(image, size)
        left, top = (image.width - size) // 2, (image.height - size) // 2
        return np.array(image.crop((left, top, left + size, top + size)))


def reading(where: str) -> AbstractContextManager[None]:
    """Turn whatever goes wrong with one image into an error that names it."""
    return naming(where, "an image", remedy="Replace the file by a whole copy, or remove it")


def open_image(encoded: bytes) -> "Image":
    """Return a Pillow image whose pixels are not decoded yet."""
    from PIL import Image, UnidentifiedImageError

    try:
        return Image.open(io.BytesIO(encoded))
    except UnidentifiedImageError:  # whose message names a place in memory
        raise ValueError("it is no image of a kind that Pillow knows") from None


def as_rgb(image: "Image") -> "Image":
    """Return the image decoded, in RGB."""
    if image.mode.startswith(("I", "F")):
        # Pillow would cut their values off at 255, and leave most images white.
        raise ValueError(f"its pixels have more than 8 bits (mode {image.mode})")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")  # Pillow warns when it has to drop both in one step
    return image.convert("RGB")


def shrink(image: "Image", size: int) -> "Image":
    """Return the image in RGB, resized until its short side is ``size``."""
    from PIL.Image import Resampling

    width, height = image.size
    short = min(width, height)
    if max(width, height) > LONGEST * short:
        raise ValueError(f"it is {width}×{height}, too narrow to be cut to a square")
    target = (size * width // short, size * height // short)
    # A JPEG decodes at 1/2, 1/4 or 1/8 for less work; from twice the wanted size on, this does
    # not show: on ImageNet's usual 500×375 it never happens.
    image.draft("RGB", (2 * target[0], 2 * target[1]))
    return as_rgb(image).resize(target, Resampling.BILINEAR)


def _row_numbers(rows: Any, count: int) -> Ints:
    """Rows as an array would take them: a slice, (n,) numbers, negative ones, a (count,) mask."""
    if isinstance(rows, slice):
        return np.arange(*rows.indices(count))
    numbers = np.asarray(rows)
    if not numbers.size:
        return np.empty(0, np.intp)
    if numbers.dtype == bool and numbers.shape == (count,):
        return np.flatnonzero(numbers)
    if numbers.ndim != 1 or not np.issubdtype(numbers.dtype, np.integer):
        raise DataError(
            f"rows are (n,) whole numbers or a ({count},) mask; "
            f"these are {numbers.dtype} of shape {numbers.shape}"
        )
    if numbers.min() < -count or numbers.max() >= count:
        wrong = numbers.min() if numbers.min() < -count else numbers.max()
        # IndexError as arrays raise it: Python ends a loop over the images by it.
        raise IndexError(f"row {wrong} of {count} images: rows are 0 to {count - 1}")
    return numbers.astype(np.intp) % count


def need_pillow() -> None:
    """Refuse to go on without Pillow, naming the extra that brings it."""
    try:
        import PIL.Image  # noqa: F401
    except ImportError as error:
        raise DataError(f"reading image files needs Pillow: {install_line('images')}") from error
