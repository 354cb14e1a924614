"""A view as a PyTorch ``Dataset``, and a ``DataLoader`` that takes whole batches from it."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from polarbear.adapters.missing import missing
from polarbear.stream import Stream, View

try:
    import torch
    from torch import Tensor
    from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler
except ImportError as error:
    raise missing("PyTorch", "torch") from error

Transform = Callable[[Any], Any]
Sample = tuple[Any, Tensor]


class ViewDataset(Dataset[Sample]):
    """The images and labels of a view: ``dataset[i]`` is (image, target).

    An image is a uint8 tensor (3, h, w), a target float32 (s,), as binary cross-entropy takes it.
    ``transform`` gets the tensor, as torchvision's v2 transforms like it, or a Pillow image with
    ``pil=True``, as torchvision's own data sets give it. A list of numbers gives a whole batch,
    (n, 3, h, w) and (n, s): that is what :func:`loader` asks for, many times as fast as one by
    one.

    >>> from polarbear import load
    >>> stream = load("iirc-shapes")
    >>> dataset = ViewDataset(stream, stream[0].train)
    >>> image, target = dataset[0]
    >>> image.shape, target.shape, dataset[[0, 1, 2]][0].shape
    (torch.Size([3, 32, 32]), torch.Size([6]), torch.Size([3, 3, 32, 32]))
    """

    def __init__(
        self,
        stream: Stream,
        view: View,
        transform: Transform | None = None,
        target_transform: Transform | None = None,
        *,
        pil: bool = False,
    ) -> None:
        """Look at a view of a stream that has images."""
        self.images = stream.images(view.split)
        self.view = view
        self.classes = view.classes
        self.transform = transform
        self.target_transform = target_transform
        self.pil = pil
        self._table = torch.from_numpy(view.label_table.astype(np.float32))

    def __len__(self) -> int:
        """Count the images."""
        return len(self.view)

    def __getitem__(self, index: Any) -> Sample:
        """Give (image, target) for a number, or a batch of them for a list of numbers."""
        if isinstance(index, (list, np.ndarray, Tensor)):
            return self._batch(np.asarray(index))
        target: Any = self._table[self.view.leaf[index]]
        pixels = self.images[self.view.rows[index]]
        return self._image(pixels), self._target(target)

    @property
    def targets(self) -> Tensor:
        """Label matrix: (n, s)."""
        return self._table[torch.from_numpy(self.view.leaf.copy())]

    def _batch(self, index: Any) -> Sample:
        pixels = self.images[self.view.rows[index]]
        target = self._table[torch.from_numpy(self.view.leaf[index])]
        if self.target_transform is not None:
            target = torch.stack([torch.as_tensor(self.target_transform(one)) for one in target])
        if self.transform is None and not self.pil:
            return _channels_first(pixels), target
        return torch.stack([torch.as_tensor(self._image(one)) for one in pixels]), target

    def _image(self, pixels: Any) -> Any:
        image = _pillow(pixels) if self.pil else _channels_first(pixels)
        return image if self.transform is None else self.transform(image)

    def _target(self, target: Tensor) -> Any:
        return target if self.target_transform is None else self.target_transform(target)


def loader(
    dataset: ViewDataset,
    batch_size: int = 128,
    *,
    shuffle: bool = False,
    generator: torch.Generator | None = None,
    drop_last: bool = False,
    **more: Any,
) -> "DataLoader[Sample]":
    """Give a DataLoader over whole batches; ``more`` goes to it: ``num_workers``, ``pin_memory``.

    >>> from polarbear import load
    >>> stream = load("iirc-shapes")
    >>> images, targets = next(iter(loader(ViewDataset(stream, stream[0].train), 64)))
    >>> images.shape, targets.dtype
    (torch.Size([64, 3, 32, 32]), torch.float32)
    """
    numbers: Sequence[int] | Any = range(len(dataset))
    order = RandomSampler(numbers, generator=generator) if shuffle else SequentialSampler(numbers)
    sampler = BatchSampler(order, batch_size, drop_last)
    # Without a batch size of its own, the loader hands each list of numbers to the data set.
    return DataLoader(dataset, sampler=sampler, batch_size=None, **more)


def _channels_first(pixels: Any) -> Tensor:
    # Stored images may be read-only, which torch warns of; a batch is a new array already.
    own = pixels if pixels.flags.writeable else pixels.copy()
    return torch.from_numpy(own).movedim(-1, -3)


def _pillow(pixels: Any) -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise missing("Pillow", "images") from error
    return Image.fromarray(np.ascontiguousarray(pixels))
