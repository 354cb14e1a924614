"""A view as a PyTorch ``Dataset``, and a ``DataLoader`` that takes whole batches from it."""

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from polarbear.adapters.samples import Samples
from polarbear.base.missing import needing
from polarbear.benchmark.stream import Stream, View

with needing("PyTorch", "torch"):
    import torch
    from torch import Tensor
    from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler

Transform = Callable[[Any], Any]
Sample = tuple[Any, Any]


class ViewDataset(Dataset[Sample]):
    """The images and labels of a view: ``dataset[i]`` is (image, target).

    An image is a uint8 tensor (3, h, w), a target float32 (s,), as binary cross-entropy takes it.
    ``transform`` gets the tensor, as torchvision's v2 transforms like it, or a Pillow image with
    ``pil=True``, as torchvision's own data sets give it. A list of numbers gives a whole batch,
    (n, 3, h, w) and (n, s): what :func:`loader` asks for. ``width`` fills targets up with zeros
    for classes still to come.

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
        width: int | None = None,
    ) -> None:
        """Look at a view of a stream that has images."""
        self.samples = Samples.of(stream, view, width)
        self.classes = view.classes
        self.transform = transform
        self.target_transform = target_transform
        self.pil = pil

    def __len__(self) -> int:
        """Count the images."""
        return len(self.samples)

    def __getitem__(self, index: Any) -> Sample:
        """Return (image, target) for a number, or a batch of them for a list of numbers."""
        if isinstance(index, (list, np.ndarray, Tensor)):
            return self._batch(torch.as_tensor(index))
        images, targets = self._tensors if self._tensors else self._read(int(index))
        place = index if self._tensors else 0
        return self._shown(images[place]), self._labelled(targets[place])

    def __getitems__(self, indices: list[int]) -> list[Sample]:
        """Return several samples at once, as a plain ``DataLoader(dataset, batch_size)`` asks."""
        images, targets = self._pixels(torch.as_tensor(indices))
        return [
            (self._shown(image), self._labelled(target))
            for image, target in zip(images.unbind(), targets.unbind(), strict=True)
        ]

    @property
    def targets(self) -> Tensor:
        """Label matrix: (n, s)."""
        return torch.from_numpy(self.samples.table[self.samples.leaf])

    @cached_property
    def _tensors(self) -> tuple[Tensor, Tensor] | None:
        """All images and targets, or None where they are read or decoded when asked for."""
        if not self.samples.in_memory:
            return None
        images, _ = self._read(slice(None))
        return images.contiguous(), self.targets

    def _read(self, index: Any) -> tuple[Tensor, Tensor]:
        where = np.atleast_1d(index) if not isinstance(index, slice) else index
        pixels, labels = self.samples[where]
        return torch.from_numpy(pixels).permute(0, 3, 1, 2), torch.from_numpy(labels)

    def _pixels(self, index: Tensor) -> tuple[Tensor, Tensor]:
        if self._tensors is None:
            return self._read(index.numpy())
        # NumPy's one thread: PyTorch would share these few bytes out among all cores, which on a
        # busy machine took 50 times as long.
        places = index.numpy()
        images, targets = (whole.numpy().take(places, axis=0) for whole in self._tensors)
        return torch.from_numpy(images), torch.from_numpy(targets)

    def _batch(self, index: Tensor) -> tuple[Tensor, Tensor]:
        images, targets = self._pixels(index)
        if self.transform is not None or self.pil:
            images = torch.stack([torch.as_tensor(self._shown(image)) for image in images])
        if self.target_transform is not None:
            targets = torch.stack([torch.as_tensor(self._labelled(one)) for one in targets])
        return images, targets

    def _shown(self, image: Tensor) -> Any:
        shown: Any = image
        if self.pil:
            with needing("Pillow", "images"):
                from PIL import Image
            shown = Image.fromarray(image.permute(1, 2, 0).contiguous().numpy())
        return shown if self.transform is None else self.transform(shown)

    def _labelled(self, target: Tensor) -> Any:
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
    """Return a DataLoader over whole batches; ``more`` goes to it: ``num_workers``, ``pin_memory``.

    >>> from polarbear import load
    >>> stream = load("iirc-shapes")
    >>> images, targets = next(iter(loader(ViewDataset(stream, stream[0].train), 64)))
    >>> images.shape, targets.dtype
    (torch.Size([64, 3, 32, 32]), torch.float32)
    """
    order = RandomSampler(dataset, generator=generator) if shuffle else SequentialSampler(dataset)
    sampler = BatchSampler(order, batch_size, drop_last)
    # Without a batch size of its own, the loader hands each list of numbers to the data set.
    return DataLoader(dataset, sampler=sampler, batch_size=None, **more)
