"""Images on their way to the device: all at once where they fit, else read ahead."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from polarbear.base.arrays import Ints
from polarbear.benchmark.source import Images

AHEAD = 4  # batches a reader prepares while the device works


class Pixels(Protocol):
    """Batches of uint8 images (n, h, w, 3) on the device, by row number."""

    def batches(self, rows: list[Ints]) -> Iterator[Tensor]:
        """Return one batch for each array of row numbers."""
        ...

    def __len__(self) -> int:
        """Count the images of the file."""
        ...


class ResidentPixels:
    """Images as uint8 on the device: a whole file or, with ``place``, some rows of it.

    ``place`` (rows of the file,) is where in ``data`` each row's image is, -1 if it is not there.
    """

    def __init__(self, images: Any, device: torch.device) -> None:
        """Copy the images of a whole file there."""
        self.data = torch.tensor(np.asarray(images), device=device)
        self.place: Tensor | None = None

    @classmethod
    def of_rows(cls, data: Tensor, place: Ints) -> "ResidentPixels":
        """Take images that are on the device already."""
        made = cls.__new__(cls)
        made.data, made.place = data, torch.tensor(place, device=data.device)
        return made

    def at(self, rows: Tensor) -> Tensor:
        """Return images by row numbers that are on the device, and ask nobody on the host."""
        return self.data[rows if self.place is None else self.place[rows]]

    def batches(self, rows: list[Ints]) -> Iterator[Tensor]:
        """Return one batch for each array of row numbers."""
        for part in rows:
            yield self.at(torch.from_numpy(np.array(part)).to(self.data.device))

    def __len__(self) -> int:
        """Count the images of the file."""
        return len(self.data if self.place is None else self.place)


class ResidentFeatures(ResidentPixels):
    """Features of a whole file (n, d, 1, 1) on the device, where a frozen network's images were."""

    def __init__(self, features: Tensor) -> None:
        """Take them as they are."""
        self.data, self.place = features, None


class StreamedPixels:
    """Images read on the host by threads, a few batches ahead of the device."""

    def __init__(self, images: Images, device: torch.device) -> None:
        """Remember where the images are."""
        self.images, self.device = images, device

    def batches(self, rows: list[Ints]) -> Iterator[Tensor]:
        """Return one batch for each array of row numbers, read ahead in order."""
        with ThreadPoolExecutor(max_workers=AHEAD) as pool:
            waiting: list[Future[Tensor]] = [pool.submit(self._read, r) for r in rows[:AHEAD]]
            for i in range(len(rows)):
                yield waiting.pop(0).result().to(self.device, non_blocking=True)
                if i + AHEAD < len(rows):
                    waiting.append(pool.submit(self._read, rows[i + AHEAD]))

    def __len__(self) -> int:
        """Count the images of the file."""
        return len(self.images)

    def _read(self, rows: Ints) -> Tensor:
        # PyTorch warns of arrays that may only be read; others are not copied.
        batch = torch.from_numpy(np.require(self.images[rows], requirements="W"))
        return batch.pin_memory() if self.device.type == "cuda" else batch


def place_pixels(images: Images, device: torch.device) -> Pixels:
    """Return images as the device likes them: resident if they are an array, else streamed."""
    if hasattr(images, "__array__"):
        return ResidentPixels(images, device)
    return StreamedPixels(images, device)
