"""Images named in a CSV file: one line an image, with its path, its class and its split."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from polarbear.base.errors import DataError, counted, unknown_name
from polarbear.base.guarded import read_bytes, read_csv
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.labels import number_leaves
from polarbear.benchmark.source import Source
from polarbear.data.decode import LazyImages

COLUMNS = ("path", "label", "split")
SPLITS = ("train", "test")


@dataclass(frozen=True, eq=False)
class TableFiles:
    """Image files by row number, as a table lists them; paths are relative to ``folder``."""

    folder: Path
    paths: tuple[str, ...]

    def __len__(self) -> int:
        """Count the images."""
        return len(self.paths)

    def name(self, row: int) -> str:
        """Return an image's path as the table has it."""
        return self.paths[row]

    def where(self, row: int) -> str:
        """Say where an image is stored, for messages."""
        return f"{self.path(row)} (row {row})"

    def path(self, row: int) -> Path:
        """Return an image's path."""
        return self.folder / self.paths[row]

    def encoded(self, row: int) -> bytes:
        """Return an image file's bytes."""
        return read_bytes(self.path(row), self.where(row))


def open_table(
    path: str | Path, hierarchy: Hierarchy, *, size: int | None = None, workers: int | None = None
) -> Source:
    """Open a CSV file with the columns ``path``, ``label`` and ``split`` as a data source.

    A path is relative to the CSV file's folder, a label is a leaf of the hierarchy, a split is
    ``train`` or ``test``; other columns are left alone. Rows are numbered in the order of the
    lines. See :class:`polarbear.data.decode.LazyImages` for ``size`` and ``workers``.
    """
    path = Path(path)
    lines = _read(path)
    parts = {split: [line for line in lines if line["split"] == split] for split in SPLITS}
    for split, part in parts.items():
        if not part:
            raise DataError(f"{path} has no line with the split {split!r}: add {split} images")
    images, leaves = [], []
    for part in parts.values():
        files = TableFiles(path.parent, tuple(line["path"] for line in part))
        _refuse_missing_files(path, files)
        images.append(LazyImages(files, size, workers))
        leaves.append(number_leaves(str(path), [line["label"] for line in part], hierarchy))
    # Of everything a table decides, so that another comment column changes no checksum.
    content = "\0".join(line[name] for line in lines for name in COLUMNS)
    checksum = f"names-sha256:{hashlib.sha256(content.encode()).hexdigest()}"
    return Source(hierarchy.leaves, images[0], leaves[0], images[1], leaves[1], str(path), checksum)


def _read(path: Path) -> list[dict[str, str]]:
    rows = read_csv(path)
    _refuse_bad_columns(path, rows[0] if rows else [])
    lines = [_line(path, number, rows[0], row) for number, row in enumerate(rows[1:], 2)]
    _refuse_doubled(path, lines)
    return lines


def _refuse_bad_columns(path: Path, columns: Sequence[str]) -> None:
    missing = [name for name in COLUMNS if name not in columns]
    if missing:
        raise DataError(
            f"{path}: the first line must name the columns {','.join(COLUMNS)}; it is "
            f"{','.join(columns)!r}, without {', '.join(missing)}. split is train or test: which "
            "images are for scoring is part of a benchmark and never drawn anew"
        )


def _line(path: Path, number: int, columns: Sequence[str], row: Sequence[str]) -> dict[str, str]:
    if len(row) != len(columns):
        raise DataError(
            f"{path}: entry {number} has {len(row)} columns, the first line {len(columns)}: put a "
            "path or a name with a comma in quotes"
        )
    line = dict(zip(columns, row, strict=True))
    if line["split"] not in SPLITS:
        raise unknown_name(f"split in {path}, entry {number},", line["split"], SPLITS)
    return line


def _refuse_doubled(path: Path, lines: Iterable[Mapping[str, str]]) -> None:
    seen: set[str] = set()
    for line in lines:
        if line["path"] in seen:
            raise DataError(
                f"{path} lists {line['path']!r} twice: an image has one line, with its leaf; the "
                "hierarchy adds the labels above it"
            )
        seen.add(line["path"])


def _refuse_missing_files(path: Path, files: TableFiles) -> None:
    missing = [name for name in files.paths if not _is_file(files.folder / name)]
    if missing:
        raise DataError(
            f"{path} lists {counted(len(missing), 'file')} not there, the first {missing[0]!r}: "
            f"paths are relative to the CSV file's folder, {files.folder}"
        )


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long, a folder that may not be entered
        return False
