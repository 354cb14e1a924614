"""Images and labels as arrays in one ``.npz`` file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polarbear.base.arrays import Ints, Pixels, frozen
from polarbear.base.errors import DataError
from polarbear.base.files import file_digest
from polarbear.base.guarded import read_npz
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.labels import number_leaves
from polarbear.benchmark.source import Source

NEEDED = ("train_images", "train_labels", "test_images", "test_labels")


def open_npz(path: str | Path, hierarchy: Hierarchy) -> Source:
    """Open a ``.npz`` file with images and labels as a data source.

    ``train_images`` and ``test_images`` are uint8 (n, h, w, 3). ``train_labels`` and
    ``test_labels`` (n,) are names of leaves; or whole numbers, if an array ``classes`` says
    which name each number stands for. The file is read whole, and nothing in it is executed.
    """
    path = Path(path)
    remedy = (
        f"Needed is a whole file as np.savez writes it, with {', '.join(NEEDED)}; texts as arrays "
        "of str, not of object"
    )
    arrays = read_npz(path, (*NEEDED, "classes"), remedy=remedy)
    missing = [name for name in NEEDED if name not in arrays]
    if missing:
        raise DataError(f"{path} lacks {', '.join(missing)}: it needs {', '.join(NEEDED)}")
    train, test = (_split(path, split, arrays, hierarchy) for split in ("train", "test"))
    checksum = f"sha256:{file_digest(path, 'sha256')}"
    return Source(hierarchy.leaves, *train, *test, str(path), checksum)


def _split(
    path: Path, split: str, arrays: Mapping[str, NDArray[Any]], hierarchy: Hierarchy
) -> tuple[Pixels, Ints]:
    images, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
    kept = images.ndim == 4 and images.shape[-1] == 3 and 0 not in images.shape[1:]
    if images.dtype != np.uint8 or not kept:
        raise DataError(
            f"{path}: {split}_images must be uint8 of shape (n, height, width, 3); it is "
            f"{images.dtype} of shape {images.shape}. Grey images: np.repeat(images[..., None], 3, "
            "axis=-1); values from 0 to 1: (images * 255).round().astype('uint8')"
        )
    what = f"{path}: {split}_labels"
    if labels.shape not in ((len(images),), (len(images), 1)):
        raise DataError(
            f"{what} must be one an image, ({len(images)},); their shape is {labels.shape}. Of a "
            "matrix with a column a class: labels.argmax(axis=1)"
        )
    labels = labels.reshape(-1)
    if np.issubdtype(labels.dtype, np.integer):
        labels = _named(what, labels, arrays.get("classes"))
    elif labels.dtype.kind != "U":
        raise DataError(f"{what} must be names or whole numbers, not {labels.dtype}")
    return frozen(images), number_leaves(str(path), labels.tolist(), hierarchy)


def _named(what: str, labels: NDArray[Any], classes: NDArray[Any] | None) -> NDArray[Any]:
    if classes is None or classes.dtype.kind != "U" or classes.ndim != 1:
        raise DataError(
            f"{what} are numbers, so an array classes must name them: class number i is classes[i]"
        )
    if labels.size and not 0 <= labels.min() <= labels.max() < len(classes):
        raise DataError(
            f"{what} has numbers {labels.min()} to {labels.max()}; classes names "
            f"0 to {len(classes) - 1}"
        )
    named: NDArray[Any] = classes[labels]
    return named
