"""A view as a source for Grain, image by image or batch by batch."""

from dataclasses import dataclass
from typing import Any

from polarbear.adapters.samples import Samples
from polarbear.base.arrays import Ints
from polarbear.base.missing import needing
from polarbear.benchmark.stream import Stream, View

with needing("Grain", "jax"):
    import grain


class ViewSource(grain.MapDataset):
    """A ``grain.MapDataset``: ``source[i]`` is {"image": (h, w, 3) uint8, "label": (s,) float32}.

    Shuffle, map and batch it as it is, or give it to a ``grain.DataLoader`` as its
    ``data_source``. ``grain.MapDataset.source(ViewSource(stream, view))`` gives the same, half as
    fast: Grain then notes the bytes and the time of every image.

    >>> from polarbear import load
    >>> stream = load("iirc-shapes")
    >>> source = ViewSource(stream, stream[0].train)
    >>> source[0]["image"].shape, source.shuffle(seed=0).batch(64)[0]["label"].shape
    ((32, 32, 3), (64, 6))
    """

    def __init__(self, stream: Stream, view: View) -> None:
        """Make a view ready."""
        super().__init__()
        self.samples = Samples.of(stream, view)

    def __len__(self) -> int:
        """Count the images."""
        return len(self.samples)

    def __getitem__(self, index: int | slice) -> Any:
        """Return an image and its label; from the end on it begins anew, as Grain counts epochs."""
        if isinstance(index, slice):
            return self.slice(index)
        image, label = self.samples[index % len(self.samples)]
        return {"image": image, "label": label}

    def __repr__(self) -> str:
        """Name the source, as Grain's checkpoints want it."""
        return f"ViewSource({len(self)} images, {self.samples.table.shape[1]} classes)"


@dataclass(frozen=True, eq=False)
class BatchSource:
    """A random-access source of whole batches, shuffled by seed and epoch."""

    samples: Samples
    order: Ints
    size: int

    def __len__(self) -> int:
        """Count the batches."""
        return -(-len(self.order) // self.size)

    def __getitem__(self, number: int) -> dict[str, Any]:
        """Return a batch: images (n, h, w, 3) and labels (n, s)."""
        places = self.order[number * self.size : (number + 1) * self.size]
        images, labels = self.samples[places]
        return {"image": images, "label": labels}


def batches(source: ViewSource, size: int = 128, *, seed: int | None = None, epoch: int = 0) -> Any:
    """Return a ``grain.MapDataset`` of batches; many times as fast as ``.shuffle().batch()``.

    Grain handles every element in Python, so that here an element is a batch.

    >>> from polarbear import load
    >>> stream = load("iirc-shapes")
    >>> data = batches(ViewSource(stream, stream[0].train), 64, seed=0)
    >>> len(data), data[0]["label"].shape
    (10, (64, 6))
    """
    samples = source.samples
    return grain.MapDataset.source(BatchSource(samples, samples.order(seed, epoch), size))
