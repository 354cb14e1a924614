"""Images named in a CSV file: one line an image, with its path, its class and its split."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from polarbear.base.errors import DataError, counted, unknown_name
from polarbear.base.guarded import read_csv
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.labels import number_leaves
from polarbear.benchmark.source import Source
from polarbear.data.decode import LazyImages, OnDisk

COLUMNS = ("path", "label", "split")
SPLITS = ("train", "test")


@dataclass(frozen=True, eq=False)
class TableFiles(OnDisk):
    """Image files by row number, as a table lists them; paths are relative to ``folder``."""

    folder: Path
    paths: tuple[str, ...]

    def __len__(self) -> int:
        """Count the images."""
        return len(self.paths)

    def name(self, row: int) -> str:
        """Return an image's path as the table has it."""
        return self.paths[row]

    def path(self, row: int) -> Path:
        """Return an image's path."""
        return self.folder / self.paths[row]


def open_table(
    path: str | Path, hierarchy: Hierarchy, *, size: int | None = None, workers: int | None = None
) -> Source:
    """Open a CSV file with the columns ``path``, ``label`` and ``split`` as a data source.

    A path is relative to the CSV file's folder, a label is a leaf of the hierarchy, a split is
    ``train`` or ``test``; other columns are left alone. Rows are numbered in the order of the
    lines. See :class:`polarbear.data.decode.LazyImages` for ``size`` and ``workers``.
    """
    path = Path(path)
    why = "which images are for scoring is part of a benchmark and never drawn anew"
    lines = read_csv(path, COLUMNS, f"split is train or test: {why}")
    _refuse_bad_lines(path, lines)
    images, leaves = [], []
    for split in SPLITS:
        part = [line for line in lines if line["split"] == split]
        if not part:
            raise DataError(f"{path} has no line with the split {split!r}: add {split} images")
        files = TableFiles(path.parent, tuple(line["path"] for line in part))
        images.append(LazyImages(files, size, workers))
        leaves.append(number_leaves(str(path), [line["label"] for line in part], hierarchy))
    # Of everything a table decides, so that another comment column changes no checksum.
    content = "\0".join(line[name] for line in lines for name in COLUMNS)
    checksum = f"names-sha256:{hashlib.sha256(content.encode()).hexdigest()}"
    return Source(hierarchy.leaves, images[0], leaves[0], images[1], leaves[1], str(path), checksum)


def _refuse_bad_lines(path: Path, lines: Sequence[Mapping[str, str]]) -> None:
    seen: dict[str, None] = {}  # in the order of the lines
    for number, line in enumerate(lines, 2):
        if line["split"] not in SPLITS:
            raise unknown_name(f"split in {path}, entry {number},", line["split"], SPLITS)
        if line["path"] in seen:
            raise DataError(
                f"{path} lists {line['path']!r} twice: an image has one line, with its leaf; the "
                "hierarchy adds the labels above it"
            )
        seen[line["path"]] = None
    # Path.is_file raises where a name is too long or a folder may not be entered.
    missing = [name for name in seen if not os.path.isfile(path.parent / name)]  # noqa: PTH113
    if missing:
        raise DataError(
            f"{path} lists {counted(len(missing), 'file')} not there, the first {missing[0]!r}: "
            f"paths are relative to the CSV file's folder, {path.parent}"
        )
