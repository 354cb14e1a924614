"""Images in parquet files, as Hugging Face keeps them: encoded, with a column of labels."""

import hashlib
import json
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from polarbear.base.arrays import Ints
from polarbear.base.errors import DataError, install_line, unknown_name
from polarbear.base.guarded import naming, opened
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.labels import number_leaves
from polarbear.benchmark.source import Source
from polarbear.data.decode import LazyImages

COLUMNS = ("image", "label")
GROUPS = 8  # row groups in memory: Hugging Face's have a hundred images each


@dataclass(frozen=True, eq=False)
class ParquetImages:
    """The encoded images of some files; ``starts`` (g + 1,) are the first rows of row groups.

    ``groups`` are these row groups: a file, and the number within it. One is read as a whole, and
    the last few stay in memory: rows in their order are read once, rows by chance again and again.
    """

    groups: tuple[tuple[Path, int], ...] = field(repr=False)
    starts: Ints = field(repr=False)

    def __len__(self) -> int:
        """Count the images."""
        return int(self.starts[-1])

    def _stored(self, row: int) -> Any:
        group = int(np.searchsorted(self.starts, row, side="right")) - 1
        stored = _images_of(*self.groups[group])[row - int(self.starts[group])].as_py()
        return stored if isinstance(stored, dict) else {"bytes": stored}

    def encoded(self, row: int) -> bytes:
        """Return an image as it is stored."""
        content = self._stored(row).get("bytes")
        if not isinstance(content, bytes):
            raise DataError(
                f"{self.where(row)} has no bytes: images lie within the file, as "
                "dataset.to_parquet writes them, not beside it"
            )
        return content

    def name(self, row: int) -> str:
        """Return an image's file name, or its row where it has none."""
        return Path(self._stored(row).get("path") or f"row-{row}").name

    def where(self, row: int) -> str:
        """Say where an image is stored, for messages."""
        group = int(np.searchsorted(self.starts, row, side="right")) - 1
        return f"row {row}, in {self.groups[group][0]}"


@lru_cache(GROUPS)
def _images_of(path: Path, group: int) -> Any:
    with opened(path, "parquet") as content, _library().ParquetFile(content) as file:
        return file.read_row_group(group, columns=["image"]).column("image")


def open_parquet(
    folder: str | Path, hierarchy: Hierarchy, *, size: int | None = None, workers: int | None = None
) -> Source:
    """Open a folder with ``train*.parquet`` and ``test*.parquet`` as a data source.

    The column ``image`` holds encoded images, bare or as Hugging Face has them; ``label`` names of
    leaves, or numbers whose names are in the files' Hugging Face features. Needs pyarrow. The
    checksum is over labels and the files' names and sizes. See
    :class:`polarbear.data.decode.LazyImages` for ``size`` and ``workers``.
    """
    folder = Path(folder)
    images, leaves, digest = [], [], hashlib.sha256()
    for split in ("train", "test"):
        files = sorted(folder.glob(f"{split}*.parquet"))
        if not files:
            raise DataError(f"{folder} has no {split}*.parquet: a benchmark needs train and test")
        groups: list[tuple[Path, int]] = []
        counts: list[int] = [0]
        labels: list[str] = []
        for path in files:
            names, rows = _labels_and_groups(path)
            groups += [(path, i) for i in range(len(rows))]
            counts += rows
            labels += names
            digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
        digest.update("\0".join(labels).encode())
        images.append(LazyImages(ParquetImages(tuple(groups), np.cumsum(counts)), size, workers))
        leaves.append(number_leaves(str(folder), labels, hierarchy))
    checksum = f"labels-sha256:{digest.hexdigest()}"
    origin = str(folder)
    return Source(hierarchy.leaves, images[0], leaves[0], images[1], leaves[1], origin, checksum)


def _labels_and_groups(path: Path) -> tuple[list[str], list[int]]:
    """Return the labels of a file, by name, and the rows of each of its row groups."""
    with opened(path, "parquet") as content, _library().ParquetFile(content) as file:
        columns = file.schema_arrow.names
        for name in COLUMNS:
            if name not in columns:
                raise unknown_name(f"column in {path}: {name!r} is needed, and", name, columns)
        rows = [file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)]
        labels = file.read(["label"]).column("label").to_pylist()
        names = _names(path, file.schema_arrow.metadata or {})
    if len(labels) != sum(rows) or None in labels:
        raise DataError(f"{path} has {sum(rows)} rows, of which not all have a label")
    if all(isinstance(label, str) for label in labels):
        return labels, rows
    if names is None:
        raise DataError(
            f"{path} has numbers for labels and no names for them: make the column label text, or "
            "write the file by Hugging Face datasets, with a ClassLabel"
        )
    if not all(isinstance(label, int) and 0 <= label < len(names) for label in labels):
        raise DataError(f"{path} has labels that are no numbers from 0 to {len(names) - 1}")
    return [names[label] for label in labels], rows


def _names(path: Path, metadata: dict[bytes, bytes]) -> list[str] | None:
    """Return the names of labels that Hugging Face's features have, if they are there."""
    if b"huggingface" not in metadata:
        return None
    with naming(path, "parquet with Hugging Face's features"):
        features = json.loads(metadata[b"huggingface"])["info"]["features"]
        found = features.get("label", {}).get("names")
        return None if found is None else [str(name) for name in found]


def _library() -> Any:
    try:
        import pyarrow.parquet as library
    except ImportError as error:
        raise DataError(f"to read parquet, pyarrow is needed: {install_line('parquet')}") from error
    return library
