"""A task's images, decoded once when the task begins and kept as bytes while it lasts."""

import logging
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
import torch
from torch import Tensor

from polarbear.base.arrays import Ints
from polarbear.base.arrays import Pixels as Array
from polarbear.benchmark.source import Images
from polarbear.engine.images.feed import Feed
from polarbear.engine.images.pixels import Pixels, ResidentPixels, StreamedPixels
from polarbear.engine.images.room import free_bytes, free_host_bytes
from polarbear.settings.settings import ImagesWay

log = logging.getLogger("polarbear")

SHARE = 0.5  # of what is free: the rest is for the network, its steps, and other runs to come
AT_ONCE = 256  # images decoded between two places where a run may be left for a while
PAGE = 4096  # bytes that a host gives at once, when they are first written to


@dataclass(frozen=True, eq=False)
class HostImages:
    """Some rows of a file, decoded, in the host's memory; see :class:`ResidentPixels`."""

    data: Tensor
    place: Ints

    def __len__(self) -> int:
        """Count the images of the file."""
        return len(self.place)

    def __getitem__(self, rows: Ints) -> Array:
        """Return images (n, h, w, 3) of row numbers that are there."""
        found: Array = self.data.index_select(0, torch.from_numpy(self.place[rows])).numpy()
        return found


class TaskPixels:
    """A file of encoded images, of which a task's own are kept decoded where there is room.

    Rows that are not kept are read from the file, ahead of the device.
    """

    def __init__(
        self, images: Images, device: torch.device, way: ImagesWay = "auto", sharers: int = 1
    ) -> None:
        """Keep none yet; ``sharers`` processes have the host's memory together."""
        self.images, self.device, self.way, self.sharers = images, device, way, sharers
        self.streamed = StreamedPixels(images, device)
        self.kept: Pixels | None = None
        self._data: Tensor | None = None
        self._place = np.full(len(images), -1, dtype=np.intp)
        self._asked: Ints | None = None
        self._said = ""

    def __len__(self) -> int:
        """Count the images of the file."""
        return len(self.images)

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Shape of an image: (h, w, 3), as the file's first has it."""
        return np.shape(self.images[:1])[1:]

    def batches(self, rows: list[Ints]) -> Iterator[Tensor]:
        """Return one batch for each array of row numbers: of what is kept, or of the file."""
        if self.kept is not None and all((self._place[part] >= 0).all() for part in rows):
            return self.kept.batches(rows)
        return self.streamed.batches(rows)

    def keep(self, rows: Ints) -> Iterator[None]:
        """Decode rows and keep them in place of those before; yields where a run may be left.

        Images that were kept already are not decoded again. ``rows`` are ascending, none twice.
        """
        if self._asked is not None and np.array_equal(rows, self._asked):
            return
        old = self._taken_out(rows)
        shape = (len(rows), *self.shape)
        data, way, room = self._room_for(shape)
        self._tell(way, shape, room)
        if data is not None:
            yield from self._fill(data, rows, old)
            self._place[rows] = np.arange(len(rows))
            self._data = data
            if way == "resident":
                self.kept = ResidentPixels.of_rows(data, self._place)
            else:
                self.kept = StreamedPixels(HostImages(data, self._place.copy()), self.device)
        self._asked = rows

    def _taken_out(self, rows: Ints) -> tuple[Ints, Tensor] | None:
        """Let go of what is kept, but for images of these rows: their positions, and the images."""
        known, data = np.flatnonzero(self._place[rows] >= 0), self._data
        found = None
        if data is not None and known.size:
            found = known, data[torch.from_numpy(self._place[rows[known]]).to(data.device)]
        self.kept = self._data = self._asked = None
        self._place[:] = -1
        return found

    def _fill(self, data: Tensor, rows: Ints, old: tuple[Ints, Tensor] | None) -> Iterator[None]:
        if data.device.type == "cpu":
            for some in torch.split(data, AT_ONCE):  # taken now, lest other runs count it as free
                some.view(-1)[::PAGE] = 0
                yield
        new = np.ones(len(rows), dtype=bool)
        if old is not None:
            known, images = old
            new[known] = False
            data[torch.from_numpy(known).to(data.device)] = images.to(data.device)
        missing = np.flatnonzero(new)
        parts = [missing[i : i + AT_ONCE] for i in range(0, len(missing), AT_ONCE)]
        read = StreamedPixels(self.images, data.device).batches([rows[part] for part in parts])
        for part, images in zip(parts, read, strict=True):
            data[torch.from_numpy(part).to(data.device)] = images
            yield

    def _room_for(self, shape: tuple[int, ...]) -> tuple[Tensor | None, ImagesWay, int]:
        """Return memory for images of this shape, what it is called, and what was free there."""
        wanted, host = int(np.prod(shape)), free_host_bytes() // self.sharers
        own = host if self.device.type == "cpu" else free_bytes(self.device)
        rooms: dict[ImagesWay, tuple[torch.device, int]] = {
            "resident": (self.device, own),
            "pinned": (torch.device("cpu"), host),
        }
        for way, (device, free) in rooms.items():
            if self.way == way:
                return torch.empty(shape, dtype=torch.uint8, device=device), way, free
            if self.way == "auto" and wanted <= SHARE * free:
                with suppress(torch.OutOfMemoryError):  # others were faster
                    return torch.empty(shape, dtype=torch.uint8, device=device), way, free
        return None, "streamed", max(free for _, free in rooms.values())

    def _tell(self, way: ImagesWay, shape: tuple[int, ...], room: int) -> None:
        """Say where the images will be, before they are decoded, once for each place."""
        if way == self._said:
            return
        self._said = way
        size = f"{shape[0]:,} take {np.prod(shape) / 1e9:.2g} GB of {room / 1e9:.3g} GB free"
        where = {
            "resident": "in memory" if self.device.type == "cpu" else "on the GPU",
            "pinned": "in the host's memory, copied ahead of the steps",
        }
        if way == "streamed":
            why = "as asked" if self.way == way else f"a task's {size}"
            log.warning("images are decoded again at every epoch: %s", why)
        else:
            log.warning("images are decoded once per task and kept %s: %s", where[way], size)


def feed_of(pixels: Pixels, size: int, device: torch.device) -> Feed | None:
    """Return what brings batches of images to captured steps, or None if these are on the device.

    They come from the host's memory or, where they are not kept there, from the file.
    """
    if resident(pixels) is not None:
        return None
    task = cast(TaskPixels, pixels)
    found = cast(StreamedPixels, task.kept or task.streamed)
    return Feed(found.images, (size, *task.shape), device)


def image_shape(pixels: Pixels) -> tuple[int, ...]:
    """Return the shape of an image of a file, wherever it is."""
    if isinstance(pixels, TaskPixels):
        return pixels.shape
    return cast(ResidentPixels, pixels).data.shape[1:]


def resident(pixels: Pixels) -> ResidentPixels | None:
    """Return the images that are on the device, if those that steps take are."""
    found = pixels.kept if isinstance(pixels, TaskPixels) else pixels
    return found if isinstance(found, ResidentPixels) else None
