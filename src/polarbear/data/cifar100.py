"""CIFAR-100 from the official files, from one ``.npz`` file or from Hugging Face parquet."""

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile
from zlib import error as ZlibError  # noqa: N812

import numpy as np
from numpy.typing import NDArray

from polarbear.arrays import Ints, Pixels, frozen
from polarbear.data.source import Source
from polarbear.errors import DataError

log = logging.getLogger("polarbear")

FOLDER = "cifar-100-python"
SPLITS = ("train", "test")

CIFAR100_LEAVES: tuple[str, ...] = tuple(
    """
    apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus butterfly
    camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch crab crocodile
    cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard lamp
    lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse mushroom
    oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy porcupine
    possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper snail snake
    spider squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor
    train trout tulip turtle wardrobe whale willow_tree wolf woman worm
    """.split()
)


@dataclass(frozen=True)
class OfficialFile:
    """A file whose every byte is known; ``labels`` and ``pixels`` are offsets into it."""

    size: int
    md5: str
    sha256: str
    rows: int = 0
    labels: int = 0
    pixels: int = 0


OFFICIAL: Mapping[str, OfficialFile] = {
    "train": OfficialFile(
        size=155_249_918,
        md5="16019d7e3df5f24257cddd939b257f8d",
        sha256="735e79b04f092ca3d2e6d07f368c0a7d70d48c48d28865950cc24454cf45129b",
        rows=50_000,
        labels=1_449_531,
        pixels=1_649_914,
    ),
    "test": OfficialFile(
        size=31_049_707,
        md5="f0ef6b0ae62326f3e7ffdfab6717acfc",
        sha256="4b67687d9933c4db8f0831104447f15b93774f4f464bd0516f0f0f2ac83b7864",
        rows=10_000,
        labels=289_480,
        pixels=329_703,
    ),
    "meta": OfficialFile(
        size=1_473,
        md5="7973b15100ade9c7d40fb424638fde48",
        sha256="a5d4786345c961390f865e93b434dbd5c6904ce880667e0cb888c97d449f28b9",
    ),
}


@dataclass(frozen=True)
class PlanarImages:
    """Images that stay in a file as three planes each and come out as (n, 32, 32, 3) uint8.

    ``images[rows]`` takes row numbers, a slice, a mask or one number, and reads only those rows.
    """

    path: Path
    offset: int
    rows: int

    @cached_property
    def _planes(self) -> Pixels:
        shape = (self.rows, 3, 32, 32)
        return np.asarray(np.memmap(self.path, np.uint8, "r", self.offset, shape))

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Give (n, 32, 32, 3)."""
        return (self.rows, 32, 32, 3)

    @property
    def dtype(self) -> np.dtype[np.uint8]:
        """Give uint8."""
        return np.dtype(np.uint8)

    def __len__(self) -> int:
        """Count the images."""
        return self.rows

    def __getitem__(self, rows: Any, /) -> Pixels:
        """Give images (n, 32, 32, 3), or (32, 32, 3) for one number, as a new array."""
        planes = self._planes[rows]
        images = np.empty((*planes.shape[:-3], 32, 32, 3), np.uint8)
        # Plane by plane: 700,000 images/s in batches of 128, a transposed copy gives 130,000.
        for channel in range(3):
            images[..., channel] = planes[..., channel, :, :]
        return images

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Give all images as one array (n, 32, 32, 3)."""
        if copy is False:
            raise ValueError("images in planes cannot become an array without a copy")
        images = self[:]
        return images if dtype is None else images.astype(dtype, copy=False)

    def __reduce__(self) -> tuple[type["PlanarImages"], tuple[Path, int, int]]:
        """Let other processes map the file themselves: a mapped array would travel as a copy."""
        return PlanarImages, (self.path, self.offset, self.rows)


def open_cifar100(root: str | Path, *, verify: bool = True) -> Source:
    """Give CIFAR-100 from what ``root`` holds: official files, ``cifar100.npz`` or parquet.

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
    raise DataError(_nothing_found(root))


def _parquet_folders(root: Path) -> tuple[Path, ...]:
    return root, root / "data", root / "cifar100"


def _nothing_found(root: Path) -> str:
    if not root.exists():
        found = f"the folder {root} does not exist"
    else:
        found = f"{root} holds no CIFAR-100"
    return (
        f"{found}. Looked for: the official files train and test in {root / FOLDER} or {root}; "
        f"{root / 'cifar100.npz'}; train-*.parquet and test-*.parquet in "
        f"{', '.join(map(str, _parquet_folders(root)))}. "
        f"To get the official files: polarbear fetch cifar100 --root {root}"
    )


def from_official(folder: str | Path, *, verify: bool = True) -> Source:
    """Give CIFAR-100 from the official ``train`` and ``test``, whose pixels stay in the files.

    No pickle is read: the files' bytes are known, so labels and pixels lie at known places.
    The checksum names the two files' SHA-256; it is empty with ``verify=False``.
    """
    folder = Path(folder)
    train, test = (folder / split for split in SPLITS)
    files = {split: OFFICIAL[split] for split in SPLITS}
    check_files(folder, files, sizes_only=not verify)
    return Source(
        CIFAR100_LEAVES,
        PlanarImages(train, files["train"].pixels, files["train"].rows),
        _official_labels(train, files["train"]),
        PlanarImages(test, files["test"].pixels, files["test"].rows),
        _official_labels(test, files["test"]),
        origin=str(folder),
        checksum=" ".join(f"{k}=sha256:{v.sha256}" for k, v in files.items()) if verify else "",
    )


def check_files(
    folder: Path, files: Mapping[str, OfficialFile] = OFFICIAL, *, sizes_only: bool = False
) -> None:
    """Refuse files in ``folder`` that are missing, truncated or altered."""
    for name, expected in files.items():
        _check_size(folder / name, expected)
    if sizes_only:
        return

    # The published checksums are md5, but SHA-256 of the same bytes is what is compared: CPUs have
    # instructions for it (the training file takes 0.09 s, md5 0.23 s). hashlib lets go of the
    # interpreter lock, so the files go side by side; read, not mapped, they add no memory.
    def check(name: str) -> None:
        _check_content(folder / name, files[name])

    with ThreadPoolExecutor(len(files)) as pool:
        list(pool.map(check, files))


def _check_size(path: Path, expected: OfficialFile) -> None:
    if not path.is_file():
        raise DataError(f"{path} is missing. {_remedy(path)}")
    size = path.stat().st_size
    if size != expected.size:
        what = "is truncated" if size < expected.size else "is too long"
        raise DataError(
            f"{path} {what}: it has {size:,} bytes, the official file {expected.size:,}. "
            f"{_remedy(path)}"
        )


def _check_content(path: Path, expected: OfficialFile) -> None:
    if file_digest(path, "sha256") != expected.sha256:
        raise DataError(
            f"{path} is altered: its md5 is {file_digest(path, 'md5')}, "
            f"that of the official file {expected.md5}. {_remedy(path)}"
        )


def _remedy(path: Path) -> str:
    root = path.parent.parent if path.parent.name == FOLDER else path.parent
    return f"To get it again: polarbear fetch cifar100 --root {root}"


def file_digest(path: Path, algorithm: str) -> str:
    """Give the hexadecimal digest of a file."""
    with path.open("rb", buffering=0) as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def _official_labels(path: Path, layout: OfficialFile) -> Ints:
    """Fine labels (n,): 1,000 at a time as '(', then 'K' and the number for each, then 'e'."""
    block = np.fromfile(path, np.uint8, layout.rows // 1000 * 2002, offset=layout.labels)
    pairs = block.reshape(-1, 2002)[:, 1:-1].reshape(-1, 2)
    if not np.all(pairs[:, 0] == ord("K")):
        raise DataError(f"{path} is altered: there are no labels in their place. {_remedy(path)}")
    return frozen(pairs[:, 1].astype(np.intp))


def from_npz(path: str | Path) -> Source:
    """Give CIFAR-100 from one ``.npz`` file.

    It holds ``train_images`` and ``test_images``, (n, 32, 32, 3) uint8, ``train_labels`` and
    ``test_labels``, (n,) or (n, 1) official fine label numbers; ``x_train``, ``y_train``,
    ``x_test``, ``y_test`` serve as well. The checksum is over labels and pixels.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"there is no file {path}")
    try:
        arrays = _read_npz(path)
    except (OSError, EOFError, BadZipFile, ZlibError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} cannot be read as .npz: {error}. Is it complete?") from error
    return _arrays_source(str(path), **arrays)


def _read_npz(path: Path) -> dict[str, NDArray[Any]]:
    with path.open("rb") as file:
        archive = np.load(file, allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise DataError(f"{path} holds one array; needed is a .npz with images and labels")
        return {
            f"{split}_{what}": _npz_array(archive, path, f"{split}_{what}", f"{letter}_{split}")
            for split in SPLITS
            for what, letter in (("images", "x"), ("labels", "y"))
        }


def _npz_array(archive: Mapping[str, NDArray[Any]], path: Path, *names: str) -> NDArray[Any]:
    for name in names:
        if name in archive:
            return archive[name]
    raise DataError(
        f"{path} lacks {' (or '.join(names)}); it has {', '.join(sorted(archive)) or 'nothing'}"
    )


def from_parquet(folder: str | Path) -> Source:
    """Give CIFAR-100 from Hugging Face's ``train-*.parquet`` and ``test-*.parquet``, decoded.

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
    return _arrays_source(str(folder), **arrays)


def _read_parquet(path: Path) -> tuple[Pixels, NDArray[Any]]:
    try:
        import PIL.Image  # noqa: F401
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise DataError(
            f"to read {path}, pyarrow and Pillow are needed: pip install 'polarbear[parquet]'"
        ) from error
    try:
        with pq.ParquetFile(path) as file:
            _check_columns(path, file.schema_arrow)
            images = np.empty((file.metadata.num_rows, 32, 32, 3), np.uint8)
            for row, encoded in enumerate(_column(file, "img")):
                images[row] = _decode(encoded, f"{path}, row {row}")
            labels = file.read(["fine_label"]).column(0).to_numpy()
    except pa.ArrowException as error:
        raise DataError(f"{path} cannot be read as parquet: {error}. Is it complete?") from error
    return images, labels


def _check_columns(path: Path, schema: Any) -> None:
    missing = {"img", "fine_label"} - set(schema.names)
    if missing:
        raise DataError(
            f"{path} lacks the column {' and '.join(sorted(missing))}; "
            f"it has {', '.join(schema.names)}"
        )


def _column(file: Any, name: str) -> Iterator[Any]:
    # 1,000 rows at a time: the encoded images of the whole file would take 120 MB.
    for batch in file.iter_batches(1000, columns=[name]):
        yield from batch.column(0).to_pylist()


def _decode(encoded: Any, where: str) -> Pixels:
    from PIL import Image

    content = encoded.get("bytes") if isinstance(encoded, dict) else encoded
    if not isinstance(content, bytes):
        raise DataError(f"{where}: img holds no bytes of an image")
    try:
        pixels = np.asarray(Image.open(BytesIO(content)).convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:
        raise DataError(f"{where}: the image cannot be decoded: {error}") from error
    if pixels.shape != (32, 32, 3):
        raise DataError(f"{where}: the image is {pixels.shape[1]}×{pixels.shape[0]}, not 32×32")
    return pixels


def _arrays_source(
    where: str,
    train_images: NDArray[Any],
    train_labels: NDArray[Any],
    test_images: NDArray[Any],
    test_labels: NDArray[Any],
) -> Source:
    checked = (
        _checked_images(f"{where}: train images", train_images),
        _checked_labels(f"{where}: train labels", train_labels, len(train_images)),
        _checked_images(f"{where}: test images", test_images),
        _checked_labels(f"{where}: test labels", test_labels, len(test_images)),
    )
    return Source(CIFAR100_LEAVES, *checked, origin=where, checksum=_content_checksum(*checked))


def _checked_images(what: str, images: NDArray[Any]) -> Pixels:
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[1:] != (32, 32, 3):
        raise DataError(
            f"{what} must be (n, 32, 32, 3) uint8; they are {images.shape} {images.dtype}"
        )
    return frozen(images)


def _checked_labels(what: str, labels: NDArray[Any], rows: int) -> Ints:
    if not np.issubdtype(labels.dtype, np.integer) or labels.shape not in ((rows,), (rows, 1)):
        raise DataError(
            f"{what} must be whole numbers, ({rows},) or ({rows}, 1), one an image; "
            f"they are {labels.shape} {labels.dtype}"
        )
    if rows and not (labels.min() >= 0 and labels.max() < len(CIFAR100_LEAVES)):
        raise DataError(
            f"{what} are {labels.min()} to {labels.max()}; CIFAR-100's fine labels are 0 to 99"
        )
    return frozen(labels.reshape(-1).astype(np.intp))


def _content_checksum(*arrays: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        # One byte a label, whatever the file's integer type, so that equal content agrees.
        digest.update(np.ascontiguousarray(array, dtype=np.uint8))
    return f"content=sha256:{digest.hexdigest()}"
