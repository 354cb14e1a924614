"""Two Hugging Face ``datasets.Dataset`` as a data source: images and leaf labels."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from polarbear.base.arrays import frozen
from polarbear.base.errors import DataError, unknown_name
from polarbear.base.missing import needing
from polarbear.benchmark.source import Images, Source
from polarbear.data.decode import LazyImages


def source(
    train: Any,
    test: Any,
    *,
    image: str = "image",
    label: str = "label",
    size: int | None = None,
    in_memory: bool = False,
) -> Source:
    """Return the data source of a training and a test ``datasets.Dataset``, such as CIFAR-100's.

    ``image`` names an Image column and ``label`` a ClassLabel column, whose names are the leaves
    of the hierarchy. Images are decoded when they are asked for, cut to ``size`` where given; with
    ``in_memory`` all at once, as small ones should be.
    """
    leaves = _leaves(train, label)
    if _leaves(test, label) != leaves:
        raise DataError(
            f"the column {label!r} of the test set has other classes than the train set"
        )
    images = [LazyImages(DatasetFiles.of(part, image), size) for part in (train, test)]
    shown: list[Images] = [frozen(part[:]) for part in images] if in_memory else [*images]
    checksum = f"datasets={train._fingerprint},{test._fingerprint}"
    leaf = [
        frozen(np.asarray(part.with_format("numpy")[label][:], dtype=np.intp))
        for part in (train, test)
    ]
    return Source(leaves, shown[0], leaf[0], shown[1], leaf[1], "datasets", checksum)


@dataclass(frozen=True, eq=False)
class DatasetFiles:
    """The encoded images of a column."""

    column: Any
    name_of: str

    @classmethod
    def of(cls, part: Any, image: str) -> "DatasetFiles":
        """Take an Image column."""
        hub = library()
        _refuse_unknown(part, image)
        if not isinstance(part.features[image], hub.Image):
            raise DataError(f"the column {image!r} is {part.features[image]}; an Image is needed")
        undecoded = part.with_format(None).select_columns([image])
        return cls(undecoded.cast_column(image, hub.Image(decode=False)), image)

    def __len__(self) -> int:
        """Count the images."""
        return len(self.column)

    def encoded(self, row: int) -> bytes:
        """Return an image as it is stored."""
        stored = self.column[row][self.name_of]
        return stored["bytes"] if stored["bytes"] else Path(stored["path"]).read_bytes()

    def name(self, row: int) -> str:
        """Return an image's file name."""
        return Path(self.column[row][self.name_of]["path"] or f"row-{row}").name

    def where(self, row: int) -> str:
        """Say where an image is stored, for messages."""
        return f"row {row} of the column {self.name_of!r}"


def _leaves(part: Any, label: str) -> tuple[str, ...]:
    _refuse_unknown(part, label)
    if not isinstance(part.features[label], library().ClassLabel):
        raise DataError(
            f"the column {label!r} is {part.features[label]}; a ClassLabel is needed: "
            f"dataset.class_encode_column({label!r}) makes one"
        )
    return tuple(part.features[label].names)


def _refuse_unknown(part: Any, column: str) -> None:
    if column not in part.column_names:
        raise unknown_name("column", column, part.column_names)


def library() -> Any:
    """Return the library, or say what to install."""
    with needing("Hugging Face datasets", "datasets"):
        import datasets
    return datasets
