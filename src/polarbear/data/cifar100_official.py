"""The official CIFAR-100 files, read in place and without a pickle: every byte of them is known."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polarbear.base.arrays import Ints, Pixels, frozen
from polarbear.base.errors import DataError
from polarbear.base.files import file_digest
from polarbear.benchmark.source import Source
from polarbear.data.verified import remember_verified, was_verified

FOLDER = "cifar-100-python"
SPLITS = ("train", "test")

# Images turned from planes to pixels at once. 32 are 98 kB, which allocators hand out without new
# pages and which stay in the cache: 670,000 images/s in batches of 128; 240,000 with 64 at once,
# 125,000 as one transposed copy of the batch.
BLOCK = 32

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
    """.split()  # noqa: SIM905
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

    @cached_property
    def _numbers(self) -> Ints:
        return np.arange(self.rows)

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Return (n, 32, 32, 3)."""
        return (self.rows, 32, 32, 3)

    @property
    def dtype(self) -> np.dtype[np.uint8]:
        """Return uint8."""
        return np.dtype(np.uint8)

    def __len__(self) -> int:
        """Count the images."""
        return self.rows

    def __getitem__(self, rows: Any, /) -> Pixels:
        """Return images (n, 32, 32, 3), or (32, 32, 3) for one number, as a new array."""
        numbers = self._numbers[rows]
        flat = numbers.reshape(-1)
        images = np.empty((len(flat), 32, 32, 3), np.uint8)
        for start in range(0, len(flat), BLOCK):
            block = slice(start, start + BLOCK)
            planes = self._planes[flat[block]]
            for channel in range(3):
                images[block, ..., channel] = planes[:, channel]
        return images.reshape(*numbers.shape, 32, 32, 3)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return all images as one array (n, 32, 32, 3)."""
        if copy is False:
            raise ValueError("images in planes cannot become an array without a copy")
        images = self[:]
        return images if dtype is None else images.astype(dtype, copy=False)

    def __reduce__(self) -> tuple[type["PlanarImages"], tuple[Path, int, int]]:
        """Let other processes map the file themselves: a mapped array would travel as a copy."""
        return PlanarImages, (self.path, self.offset, self.rows)


def from_official(folder: str | Path, *, verify: bool = True) -> Source:
    """Return CIFAR-100 from the official ``train`` and ``test``, whose pixels stay in the files.

    No pickle is read: the files' bytes are known, so labels and pixels lie at known places.
    The checksum names the two files' SHA-256; it is empty with ``verify=False``.
    """
    folder = Path(folder)
    files = {split: OFFICIAL[split] for split in SPLITS}
    check_files(folder, files, sizes_only=not verify)
    train, test = (_images_and_labels(folder / split, files[split]) for split in SPLITS)
    checksum = " ".join(f"{split}=sha256:{file.sha256}" for split, file in files.items())
    return Source(CIFAR100_LEAVES, *train, *test, str(folder), checksum if verify else "")


def check_files(
    folder: Path, files: Mapping[str, OfficialFile] = OFFICIAL, *, sizes_only: bool = False
) -> None:
    """Refuse files in ``folder`` that are missing, truncated or altered.

    Content that was checked before is not read again while the file is unchanged.
    """
    for path, expected in ((folder / name, files[name]) for name in files):
        if not path.is_file():
            raise DataError(f"{path} is missing. {_remedy(path)}")
        size = path.stat().st_size
        if size != expected.size:
            what = "is truncated" if size < expected.size else "is too long"
            raise DataError(
                f"{path} {what}: it has {size:,} bytes, the official file {expected.size:,}. "
                f"{_remedy(path)}"
            )
    if sizes_only:
        return
    unknown = [n for n, f in files.items() if not was_verified(folder / n, f.sha256)]
    if not unknown:
        return

    # The published checksums are md5, but SHA-256 of the same bytes is what is compared: CPUs have
    # instructions for it (the training file takes 0.09 s, md5 0.23 s). hashlib lets go of the
    # interpreter lock, so the files go side by side; read, not mapped, they add no memory.
    def check(name: str) -> None:
        path, expected = folder / name, files[name]
        if file_digest(path, "sha256") != expected.sha256:
            raise DataError(
                f"{path} is altered: its md5 is {file_digest(path, 'md5')}, "
                f"that of the official file {expected.md5}. {_remedy(path)}"
            )

    with ThreadPoolExecutor(len(unknown)) as pool:
        list(pool.map(check, unknown))
    for name in unknown:
        remember_verified(folder / name, files[name].sha256)


def _remedy(path: Path) -> str:
    root = path.parent.parent if path.parent.name == FOLDER else path.parent
    return f"To get it again: polarbear fetch cifar100 --root {root}"


def _images_and_labels(path: Path, layout: OfficialFile) -> tuple[PlanarImages, Ints]:
    # Fine labels (n,) lie 1,000 at a time as '(', then 'K' and the number for each, then 'e'.
    block = np.fromfile(path, np.uint8, layout.rows // 1000 * 2002, offset=layout.labels)
    pairs = block.reshape(-1, 2002)[:, 1:-1].reshape(-1, 2)
    if not np.all(pairs[:, 0] == ord("K")):
        raise DataError(f"{path} is altered: there are no labels in their place. {_remedy(path)}")
    images = PlanarImages(path, layout.pixels, layout.rows)
    return images, frozen(pairs[:, 1].astype(np.intp))
