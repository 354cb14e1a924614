"""CIFAR-100 from the official files, from one ``.npz`` file or from Hugging Face parquet."""

import hashlib
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polarbear.base.arrays import Ints, Pixels, frozen
from polarbear.base.errors import DataError, install_line
from polarbear.base.guarded import npz_names, opened, read_npz
from polarbear.benchmark.source import Source
from polarbear.data.cifar100_official import CIFAR100_LEAVES, FOLDER, SPLITS, from_official
from polarbear.data.decode import as_rgb, open_image, reading

log = logging.getLogger("polarbear")

MOST_BYTES = 1 << 30  # of one array; the training images as 32-bit numbers would have 614 million


def open_cifar100(root: str | Path, *, verify: bool = True) -> Source:
    """Return CIFAR-100 from what ``root`` holds: official files, ``cifar100.npz`` or parquet.

    ``root`` may also be the folder ``cifar-100-python`` itself or the path of a ``.npz`` file.
    ``verify=False`` skips the checksums of the official files, but not the sizes.
    """
    root = Path(root)
    if root.suffix == ".npz":
        return from_npz(root)
    for folder in (root / FOLDER, root):
        if any((folder / split).is_file() for split in SPLITS):
            return from_official(folder, verify=verify)
    if (root / "cifar100.npz").is_file():
        return from_npz(root / "cifar100.npz")
    for folder in _parquet_folders(root):
        if any(folder.glob("train-*.parquet")) or any(folder.glob("test-*.parquet")):
            return from_parquet(folder)
    there = f"{root} holds no CIFAR-100" if root.exists() else f"the folder {root} does not exist"
    raise DataError(
        f"{there}. Looked for: {places(root)}. "
        f"To get the official files: polarbear fetch cifar100 --root {root}"
    )


def _parquet_folders(root: Path) -> tuple[Path, ...]:
    return root, root / "data", root / "cifar100"


def places(root: Path) -> str:
    """Say which files :func:`open_cifar100` looks for, and where."""
    return (
        f"the official files train and test in {root / FOLDER} or {root}; "
        f"{root / 'cifar100.npz'}; train-*.parquet and test-*.parquet in "
        f"{', '.join(map(str, _parquet_folders(root)))}"
    )


def from_npz(path: str | Path) -> Source:
    """Return CIFAR-100 from one ``.npz`` file.

    It holds ``train_images`` and ``test_images``, (n, 32, 32, 3) uint8, ``train_labels`` and
    ``test_labels``, (n,) or (n, 1) official fine label numbers; ``x_train``, ``y_train``,
    ``x_test``, ``y_test`` serve as well. The checksum is over labels and pixels.
    """
    names = {
        f"{split}_{what}": f"{letter}_{split}"
        for split in SPLITS
        for what, letter in (("images", "x"), ("labels", "y"))
    }
    found = read_npz(path, (*names, *names.values()), most=MOST_BYTES)
    arrays = {name: found[key] for name in names for key in (names[name], name) if key in found}
    for name, other in names.items():
        if name not in arrays:
            there = ", ".join(sorted(npz_names(path))) or "nothing"
            raise DataError(f"{path} lacks {name} (or {other}); it has {there}")
    return _source(str(path), arrays)


def from_parquet(folder: str | Path) -> Source:
    """Return CIFAR-100 from Hugging Face's ``train-*.parquet`` and ``test-*.parquet``, decoded.

    Needs pyarrow and Pillow. The checksum is over labels and pixels.
    """
    folder = Path(folder)
    arrays: dict[str, NDArray[Any]] = {}
    for split in SPLITS:
        files = sorted(folder.glob(f"{split}-*.parquet"))
        if not files:
            raise DataError(f"{folder} has no {split}-*.parquet")
        log.info("decoding %s", ", ".join(map(str, files)))
        images, labels = zip(*(_read_parquet(file) for file in files), strict=True)
        arrays[f"{split}_images"] = np.concatenate(images) if len(images) > 1 else images[0]
        arrays[f"{split}_labels"] = np.concatenate(labels)
    return _source(str(folder), arrays)


def _read_parquet(path: Path) -> tuple[Pixels, NDArray[Any]]:
    try:
        import PIL.Image  # noqa: F401
        import pyarrow.parquet as pq
    except ImportError as error:
        raise DataError(
            f"to read {path}, pyarrow and Pillow are needed: {install_line('parquet')}"
        ) from error
    with opened(path, "parquet") as content, pq.ParquetFile(content) as file:
        columns = file.schema_arrow.names
        if missing := {"img", "fine_label"} - set(columns):
            raise DataError(
                f"{path} lacks the column {' and '.join(sorted(missing))}; "
                f"it has {', '.join(columns)}"
            )
        labels = file.read(["fine_label"]).column(0).to_numpy()
        # As many as there are labels: the number of rows is only what the file says of itself.
        images = np.empty((len(labels), 32, 32, 3), np.uint8)
        row = -1
        # 1,000 rows at a time: the encoded images of the whole file would take 120 MB.
        batches = (batch.column(0) for batch in file.iter_batches(1000, columns=["img"]))
        for row, encoded in enumerate(one for batch in batches for one in batch.to_pylist()):
            images[row] = _decode(encoded, f"{path}, row {row}")
        if row + 1 != len(labels):
            raise DataError(f"{path} has {len(labels)} labels but {row + 1} images")
    return images, labels


def _decode(encoded: Any, where: str) -> Pixels:
    content = encoded.get("bytes") if isinstance(encoded, dict) else encoded
    if not isinstance(content, bytes):
        raise DataError(f"{where}: img holds no bytes of an image")
    with reading(where):
        image = open_image(content)
        if image.size != (32, 32):
            raise DataError(f"{where}: the image is {image.width}×{image.height}, not 32×32")
        return np.asarray(as_rgb(image))


def _source(where: str, arrays: Mapping[str, NDArray[Any]]) -> Source:
    """Return the data source of ``train_images``, ``train_labels`` and the same for test."""
    train, test = (_checked(f"{where}: {split}", arrays, split) for split in SPLITS)
    checksum = _content_checksum(*train, *test)
    return Source(CIFAR100_LEAVES, *train, *test, where, checksum)


def _checked(what: str, arrays: Mapping[str, NDArray[Any]], split: str) -> tuple[Pixels, Ints]:
    images, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != (32, 32, 3):
        raise DataError(
            f"{what} images must be (n, 32, 32, 3) uint8; they are {images.shape} {images.dtype}"
        )
    rows = len(images)
    if not np.issubdtype(labels.dtype, np.integer) or labels.shape not in ((rows,), (rows, 1)):
        raise DataError(
            f"{what} labels must be whole numbers, ({rows},) or ({rows}, 1), one an image; "
            f"they are {labels.shape} {labels.dtype}"
        )
    if rows and not (labels.min() >= 0 and labels.max() < len(CIFAR100_LEAVES)):
        raise DataError(
            f"{what} labels are {labels.min()} to {labels.max()}; "
            "CIFAR-100's fine labels are 0 to 99"
        )
    return frozen(images), frozen(labels.reshape(-1).astype(np.intp))


def _content_checksum(*arrays: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.shape}".encode())
        # One byte a label, whatever the file's integer type, so that equal content agrees.
        digest.update(np.ascontiguousarray(array, dtype=np.uint8).data)
    return f"content=sha256:{digest.hexdigest()}"
