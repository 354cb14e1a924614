"""Images and labels as arrays in one ``.npz`` file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polarbear.base.arrays import Ints, frozen
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
    arrays = _read(path)
    for name in ("train_images", "test_images"):
        _refuse_bad_images(path, name, arrays[name])
    train, test = (_leaves(path, hierarchy, arrays, f"{s}_labels") for s in ("train", "test"))
    return Source(
        hierarchy.leaves,
        frozen(arrays["train_images"]),
        train,
        frozen(arrays["test_images"]),
        test,
        str(path),
        f"sha256:{file_digest(path, 'sha256')}",
    )


def _read(path: Path) -> dict[str, NDArray[Any]]:
    remedy = (
        f"Needed is a whole file as np.savez writes it, with {', '.join(NEEDED)}; texts as arrays "
        "of str, not of object"
    )
    arrays = read_npz(path, (*NEEDED, "classes"), remedy=remedy)
    missing = [name for name in NEEDED if name not in arrays]
    if missing:
        raise DataError(f"{path} lacks {', '.join(missing)}: it needs {', '.join(NEEDED)}")
    return arrays


def _refuse_bad_images(path: Path, name: str, images: NDArray[Any]) -> None:
    kept = images.ndim == 4 and images.shape[-1] == 3 and 0 not in images.shape[1:]
    if images.dtype != np.uint8 or not kept:
        raise DataError(
            f"{path}: {name} must be uint8 of shape (n, height, width, 3); it is {images.dtype} of "
            f"shape {images.shape}. Grey images: np.repeat(images[..., None], 3, axis=-1); values "
            "from 0 to 1: (images * 255).round().astype('uint8')"
        )


def _leaves(
    path: Path, hierarchy: Hierarchy, arrays: Mapping[str, NDArray[Any]], name: str
) -> Ints:
    labels = arrays[name].reshape(-1) if arrays[name].shape[1:] == (1,) else arrays[name]
    rows = len(arrays[name.replace("labels", "images")])
    if labels.shape != (rows,):
        raise DataError(
            f"{path}: {name} must be one an image, ({rows},); their shape is {arrays[name].shape}. "
            "Of a matrix with a column a class: labels.argmax(axis=1)"
        )
    if np.issubdtype(labels.dtype, np.integer):
        labels = _named(path, labels, arrays.get("classes"), name)
    elif labels.dtype.kind != "U":
        raise DataError(f"{path}: {name} must be names or whole numbers, not {labels.dtype}")
    return number_leaves(str(path), labels.tolist(), hierarchy)


def _named(
    path: Path, labels: NDArray[Any], classes: NDArray[Any] | None, name: str
) -> NDArray[Any]:
    if classes is None or classes.dtype.kind != "U" or classes.ndim != 1:
        raise DataError(
            f"{path}: {name} are numbers, so an array classes must name them: class number i is "
            "classes[i]"
        )
    if labels.size and not 0 <= labels.min() <= labels.max() < len(classes):
        raise DataError(
            f"{path}: {name} has numbers {labels.min()} to {labels.max()}; classes names "
            f"0 to {len(classes) - 1}"
        )
    named: NDArray[Any] = classes[labels]
    return named
