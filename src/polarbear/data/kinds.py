"""Data of your own by path: folders, packed, a CSV file, arrays, parquet, Hugging Face's."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from polarbear.base.errors import DataError, unknown_name
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.source import Source
from polarbear.data.folders import open_folders, refuse_wrong_classes
from polarbear.data.hugging_face import library, source
from polarbear.data.npz import open_npz
from polarbear.data.packed import is_packed, open_packed
from polarbear.data.parquet import open_parquet
from polarbear.data.table import open_table


class Opener(Protocol):
    """Opens data of one kind."""

    def __call__(self, path: Path, hierarchy: Hierarchy, /, *, size: int | None) -> Source:
        """Return the images at ``path``, decoded to ``size`` × ``size`` where it is given."""
        ...


@dataclass(frozen=True)
class Data:
    """Where a benchmark's images are: a path, of what kind, and the size they are brought to."""

    kind: str
    path: Path
    image_size: int | None = None

    def __post_init__(self) -> None:
        """Refuse a kind nobody can open."""
        if self.kind not in OPENERS:
            raise unknown_name("kind of data", self.kind, OPENERS)

    @classmethod
    def at(cls, path: str | Path, image_size: int | None = None) -> "Data":
        """Tell the kind of data from its path: a folder, a ``.csv`` or a ``.npz`` file.

        A folder that Hugging Face's ``DatasetDict.save_to_disk`` wrote is known by its file
        ``dataset_dict.json``, one of parquet by ``train*.parquet``, a packed one by its header.
        """
        path = Path(path)
        if not path.exists():
            raise DataError(f"there is nothing at {path}: give a folder, a .csv or a .npz file")
        if path.is_dir():
            return cls(_kind_of_folder(path), path, image_size)
        kind = {".csv": "table", ".npz": "arrays"}.get(path.suffix.lower())
        if kind is None:
            raise DataError(
                f"{path} is {path.suffix or 'a file without a suffix'}: give a folder with train "
                "and test, a .csv file of paths and labels, or a .npz file of arrays"
            )
        return cls(kind, path, image_size)

    def open(self, hierarchy: Hierarchy) -> Source:
        """Open the images."""
        return OPENERS[self.kind](self.path, hierarchy, size=self.image_size)


def _kind_of_folder(folder: Path) -> str:
    """Tell a folder's kind; of one that is no data but holds a file that may be, say so."""
    if (folder / "dataset_dict.json").is_file():
        return "hugging-face"
    if is_packed(folder):
        return "packed"
    if any(folder.glob("train*.parquet")):
        return "parquet"
    found = sorted(file for pattern in ("*.npz", "*.csv") for file in folder.glob(pattern))
    files = [file for file in found if file.name != "hierarchy.csv"]
    if files and not (folder / "train").is_dir():
        raise DataError(
            f"no folder {folder / 'train'}, but {folder} holds "
            f"{', '.join(file.name for file in files)}: to use a file, give its own path, "
            f"--data {files[0]}"
        )
    return "folders"


def _arrays(path: Path, hierarchy: Hierarchy, *, size: int | None) -> Source:
    if size is not None:
        raise DataError(
            f"{path} holds arrays, which come as they are: leave image_size out, or resize them "
            "before they are saved"
        )
    return open_npz(path, hierarchy)


def _packed(path: Path, hierarchy: Hierarchy, *, size: int | None) -> Source:
    found = open_packed(path, size=size)
    splits = {"train": found.train_leaf, "test": found.test_leaf}
    refuse_wrong_classes(
        {f"{path} ({split})": {found.leaves[i] for i in leaf} for split, leaf in splits.items()},
        hierarchy,
    )
    return found


def _hugging_face(path: Path, hierarchy: Hierarchy, *, size: int | None) -> Source:
    parts = library().load_from_disk(str(path))
    missing = [split for split in ("train", "test") if split not in parts]
    if missing:
        raise DataError(
            f"{path} has no split {' and no split '.join(map(repr, missing))}: it has "
            f"{', '.join(parts)}. A benchmark needs train and test"
        )
    return source(parts["train"], parts["test"], size=size)


OPENERS: Mapping[str, Opener] = {
    "folders": open_folders,
    "table": open_table,
    "arrays": _arrays,
    "hugging-face": _hugging_face,
    "packed": _packed,
    "parquet": open_parquet,
}
