"""Every image file of a data source looked at, so that none of them ends a training hours later."""

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from polarbear.base.errors import DataError
from polarbear.benchmark.source import Source
from polarbear.data.decode import LazyImages, OnDisk, in_order
from polarbear.data.verified import SETTLED_NS, remember_verified, was_verified

MOST_LISTED = 20

Progress = Callable[[int, int], None]
Place = tuple[LazyImages, int]
Shape = tuple[int, ...]


def refuse_bad_images(source: Source, progress: Progress | None = None) -> None:
    """Decode every image file and refuse those that are damaged or of another size, all at once.

    ``progress(done, total)`` is called now and then. Files found whole are not read again while
    they are unchanged. Arrays are left alone: all of their images are alike.
    """
    lazy = [images for images in (source.train, source.test) if isinstance(images, LazyImages)]
    places = [(images, row) for images in lazy for row in range(len(images))]
    marks = _marks(places) if places else None
    if marks and was_verified(Path(source.origin), marks):
        return
    damaged, shapes = [], []
    for done, (place, seen) in enumerate(zip(places, in_order(_shape, places), strict=True), 1):
        if isinstance(seen, DataError):
            damaged.append(str(seen))
        else:
            shapes.append((place, seen))
        if progress and (done % 64 == 0 or done == len(places)):
            progress(done, len(places))
    wrong = [*_said_of_sizes(shapes)]
    if damaged:
        said = f"{len(damaged):,} of {len(places):,} images cannot be read:"
        wrong = [said, *_listed(damaged), *wrong]
    if wrong:
        raise DataError("\n".join(wrong))
    if marks:
        remember_verified(Path(source.origin), marks)


def _shape(place: Place) -> Shape | DataError:
    images, row = place
    try:
        return images[row].shape[:2]
    except DataError as error:
        return error


def _said_of_sizes(shapes: Sequence[tuple[Place, Shape]]) -> Iterator[str]:
    found = Counter(shape for _, shape in shapes)
    if len(found) < 2:
        return
    [(usual, count)] = found.most_common(1)
    odd = [(place, shape) for place, shape in shapes if shape != usual]
    yield (
        f"{len(odd):,} of {len(shapes):,} images are not {usual[0]}×{usual[1]} (height × width), "
        f"as {count:,} are. Add --image-size N to resize and cut all to N × N, or leave them out:"
    )
    yield from _listed([f"{i.files.where(row)} is {h}×{w}" for (i, row), (h, w) in odd])


def _listed(lines: Sequence[str]) -> Iterator[str]:
    yield from (f"  {line}" for line in lines[:MOST_LISTED])
    if len(lines) > MOST_LISTED:
        yield f"  and {len(lines) - MOST_LISTED:,} more"


def _marks(places: Sequence[Place]) -> str | None:
    """Return a digest by which files are known again; None of other data and of new files."""
    digest, latest = hashlib.sha256(), 0
    for images, row in places:
        if not isinstance(images.files, OnDisk):
            return None
        path = images.files.path(row)
        try:
            s = path.stat()
        except OSError:
            return None
        marks = (str(path), images.size, s.st_size, s.st_ino, s.st_mtime_ns, s.st_ctime_ns)
        digest.update(repr(marks).encode(errors="surrogateescape"))
        latest = max(latest, s.st_ctime_ns)
    return digest.hexdigest() if time.time_ns() - latest > SETTLED_NS else None
