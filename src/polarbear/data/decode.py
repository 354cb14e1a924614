"""Image files, decoded when they are asked for.

Needs Pillow, as the extra ``images`` has it. With simplejpeg, the extra ``jpeg``, whole JPEGs are
decoded in two thirds of the time and to the same bytes; Pillow does all else, and knows the errors.
"""

import io
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from polarbear.base.arrays import Ints, Pixels
from polarbear.base.errors import DataError, install_line
from polarbear.base.guarded import naming, read_bytes
from polarbear.data.decoders import MOST, Decoders, decoders

if TYPE_CHECKING:
    from PIL.Image import Image


Item = TypeVar("Item")
Result = TypeVar("Result")

LARGEST = 2048  # pixels a side: a batch of 128 such images has 1.6 GB
LARGEST_JPEG = 50_000_000  # pixels: above, Pillow decides whether to trust a file
DRAFT = 2  # sizes: what a JPEG is decoded at, at least, where it is to be shrunk
A_TURN = 16  # images a process decodes before it is asked again
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
    decode a batch (default: one a processor) and, where many images are asked for, as many
    processes.
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

        def fill_some(positions: range) -> None:
            for position in self._by_a_process(rows, positions, batch, processes):
                fill(position)

        count = workers_or_default(self.workers)
        processes = decoders(count, len(rows))
        for _ in _threads(count).map(fill_some, in_turns(range(1, len(rows)), processes)):
            pass
        return batch

    def _by_a_process(
        self, rows: list[int], positions: range, batch: Pixels, processes: Decoders | None
    ) -> Sequence[int]:
        """Have images of a batch decoded by a process; returns the positions that it did not."""
        if processes is None:
            return positions
        encoded = [self.files.encoded(rows[position]) for position in positions]
        out = batch[positions.start : positions.stop]
        failed = processes.do(decode_into, out.shape, encoded, self.size, out=out)
        return positions if failed is None else [positions[i] for i in failed]


def decode_into(
    memory: Callable[[tuple[int, ...]], Pixels],
    shape: tuple[int, ...],
    encoded: Sequence[bytes],
    size: int | None,
) -> list[int]:
    """Decode images of one shape into memory (n, h, w, 3); returns those that do not fit there.

    These are left to whoever knows where they come from: to say what is wrong with them.
    """
    failed, out = [], memory(shape)
    for i, one in enumerate(encoded):
        try:
            image = decode(one, "", size)
        except DataError:
            failed.append(i)
            continue
        if image.shape == shape[1:]:
            out[i] = image
        else:  # NumPy would repeat a single pixel, or row, to fill the place
            failed.append(i)
    return failed


def in_turns(items: range, processes: Decoders | None) -> list[range]:
    """Return items as they are given away: one by one to threads, several at once to processes."""
    size = A_TURN if processes else 1
    return [items[i : i + size] for i in range(0, len(items), size)]


@cache
def _threads_of(process: int, count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count)


def _threads(count: int) -> ThreadPoolExecutor:
    """Return threads that stay; a forked process has its own."""
    return _threads_of(os.getpid(), count)


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
    """Return how many threads or processes decode: as asked, or one a processor of this process.

    Processes that train one run together share the processors of their machine.
    """
    if workers:
        return workers
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    together = os.environ.get("LOCAL_WORLD_SIZE", "1")  # as torchrun says it
    return max(1, min(MOST, own // max(1, int(together) if together.isdecimal() else 1)))


def decode(encoded: bytes, where: str, size: int | None = None) -> Pixels:
    """Return an encoded image as RGB (h, w, 3), or cut to (size, size) round its middle.

    A rotation noted in the file's EXIF is left alone, as everybody does on ImageNet.
    """
    with reading(where):
        whole = jpeg_pixels(encoded, size)
        if size is None:
            return np.array(as_rgb(open_image(encoded))) if whole is None else whole
        if whole is not None and min(whole.shape[:2]) == size:
            return _middle(whole, size)
        return _middle(np.asarray(shrink(whole_or_opened(encoded, whole), size)), size)


def _middle(image: Pixels, size: int) -> Pixels:
    top, left = (image.shape[0] - size) // 2, (image.shape[1] - size) // 2
    return image[top : top + size, left : left + size].copy()


def whole_or_opened(encoded: bytes, whole: Pixels | None) -> "Image":
    """Return a Pillow image of pixels, if they are known, else one that is not decoded yet."""
    from PIL.Image import fromarray

    return open_image(encoded) if whole is None else fromarray(whole)


def jpeg_pixels(encoded: bytes, size: int | None = None) -> Pixels | None:
    """Return a JPEG's pixels (h, w, 3) by simplejpeg, or None where Pillow should look at it.

    That is without simplejpeg, for anything that it complains of, and for images of which Pillow
    would decode less than all on the way to ``size``.
    """
    library = _simplejpeg()
    if library is None or not encoded.startswith(b"\xff\xd8"):
        return None
    try:
        height, width, colours, _ = library.decode_jpeg_header(encoded)
        reduced = size is not None and min(height, width) >= 2 * DRAFT * size
        if reduced or colours == "CMYK" or height * width > LARGEST_JPEG:
            return None
        found: Pixels = library.decode_jpeg(encoded)
    except ValueError:
        return None
    return found


@cache
def _simplejpeg() -> Any:
    try:
        import simplejpeg
    except ImportError:
        return None
    return simplejpeg


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
    image.draft("RGB", (DRAFT * target[0], DRAFT * target[1]))
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
