"""What every data source gives: images by row number and the leaf class of each row."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from polarbear.base.arrays import Ints, Pixels
from polarbear.base.errors import DataError

FileName = Literal["train", "test"]


class Images(Protocol):
    """Images by row number; a uint8 array (n, h, w, 3) is one.

    Sources that decode or map a file give the same, one batch at a time.
    """

    def __len__(self) -> int:
        """Count the images."""
        ...

    def __getitem__(self, rows: Any, /) -> Pixels:
        """Return images (n, h, w, 3) for (n,) row numbers or a slice; (h, w, 3) for one number."""
        ...


@dataclass(frozen=True, eq=False)
class Source:
    """Images and leaf labels of the training and the test file.

    ``train_leaf`` and ``test_leaf`` number ``leaves``: row i of the training file shows an image
    of class ``leaves[train_leaf[i]]``. ``file_order``, where given, is the order of the training
    rows the split follows (default: row number). ``checksum`` names the content in a manifest.
    """

    leaves: tuple[str, ...]
    train: Images
    train_leaf: NDArray[Any]
    test: Images
    test_leaf: NDArray[Any]
    origin: str = "arrays"
    checksum: str = ""
    file_order: Ints | None = None

    def __post_init__(self) -> None:
        """Refuse labels that do not fit the images or the leaves."""
        for split in ("train", "test"):
            images, leaf = getattr(self, split), getattr(self, f"{split}_leaf")
            if np.ndim(leaf) != 1 or not np.issubdtype(np.asarray(leaf).dtype, np.integer):
                raise DataError(
                    f"{self.origin}: {split}_leaf must be a (n,) array of whole numbers"
                )
            if len(images) != len(leaf):
                raise DataError(
                    f"{self.origin}: {split} has {len(images)} images but {len(leaf)} leaf labels"
                )
            if len(leaf) and not (leaf.min() >= 0 and leaf.max() < len(self.leaves)):
                raise DataError(
                    f"{self.origin}: {split}_leaf has numbers {leaf.min()} to {leaf.max()}; "
                    f"{len(self.leaves)} leaves are numbered 0 to {len(self.leaves) - 1}"
                )

    def images(self, file: FileName) -> Images:
        """Return the images of a file."""
        return self.train if file == "train" else self.test
