"""Images as a folder of folders: ``root/train/<class>/<image>`` and ``root/test/<class>/<image>``.

Rows are numbered by class folder in sorted order, and by sorted file name inside one.
"""

import hashlib
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from polarbear.base.arrays import Ints, frozen
from polarbear.base.errors import DataError
from polarbear.base.findings import listed
from polarbear.base.guarded import naming
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.source import Source
from polarbear.data.decode import LazyImages, OnDisk
from polarbear.data.filenames import FileNames
from polarbear.data.index_cache import cache_files, read_cache, write_cache

log = logging.getLogger("polarbear")

SUFFIXES = (".jpeg", ".jpg", ".png", ".webp")


@dataclass(frozen=True, eq=False)
class FolderIndex(OnDisk):
    """Which image files there are, class by class.

    ``classes`` are the class folders, sorted; ``counts`` (c,) their files. Rows are numbered class
    by class, in the order of the sorted file names. ``listed`` are these names, or each class's
    names as they were listed: rows and labels need counts alone, so sorting waits for a name.

    >>> index = FolderIndex.from_listing({"lamp": ["2.png", "1.png"], "bus": ["7.png"]}, "data")
    >>> index.classes, index.leaf.tolist(), index.path(1).as_posix()
    (('bus', 'lamp'), [0, 1, 1], 'data/lamp/1.png')
    """

    folder: Path
    classes: tuple[str, ...]
    counts: Ints = field(repr=False)
    listed: FileNames | tuple[str, ...] = field(repr=False)

    @classmethod
    def from_listing(
        cls, listing: Mapping[str, Iterable[str]], folder: str | Path = "."
    ) -> "FolderIndex":
        """Build from class folder → its file names, in any order; hidden files are left out."""
        folder = Path(folder)
        classes = tuple(sorted(listing))
        if not classes:
            raise DataError(f"{folder} holds no class folder: one folder of images a class goes in")
        parts = [_joined_names(folder / name, listing[name]) for name in classes]
        counts = np.array([part.count("\0") for part in parts], dtype=np.intp)
        empty = [name for name, count in zip(classes, counts, strict=True) if not count]
        if empty:
            raise DataError(
                f"no image in {listed(empty, 20)} of {folder}: add images ({', '.join(SUFFIXES)}), "
                "or remove the folder and its class"
            )
        return cls(folder, classes, frozen(counts), tuple(parts))

    def __len__(self) -> int:
        """Count the images."""
        return int(self.counts.sum())

    @cached_property
    def leaf(self) -> Ints:
        """The class of each row as a number of ``classes``: (n,)."""
        return frozen(np.repeat(np.arange(len(self.classes)), self.counts))

    @cached_property
    def names(self) -> FileNames:
        """The file names, row by row."""
        if isinstance(self.listed, FileNames):
            return self.listed
        return FileNames.of(name for part in self.listed for name in sorted(part.split("\0")[:-1]))

    def name(self, row: int) -> str:
        """Return an image's file name."""
        return self.names[row]

    def path(self, row: int) -> Path:
        """Return an image's path."""
        return Path(self.folder, self.classes[self.leaf[row]], self.name(row))

    @cached_property
    def checksum(self) -> str:
        """Name of the classes, counts and file names; it does not look into the files."""
        digest = hashlib.sha256(FileNames.of(self.classes).joined)
        digest.update(self.counts.astype("<i8").tobytes())
        digest.update(self.names.joined)
        return digest.hexdigest()


def index_folders(folder: str | Path, *, cache: bool | str | Path = True) -> FolderIndex:
    """Index ``folder/<class>/<image>``, or take the index from the cache if nothing changed.

    The cache lies beside ``folder``, or in ``~/.cache/polarbear`` where that cannot be written,
    or in the folder given; ``False`` does without. It holds for the class folders' names and
    times of change: a file added or removed makes it void, a file overwritten need not.
    """
    folder = Path(folder)
    changed = _class_folders(folder)
    files = cache_files(folder, cache)
    for found in filter(None, (read_cache(file, changed) for file in files)):
        return FolderIndex(folder, tuple(changed), frozen(found[0]), FileNames(found[1]))
    log.info("indexing %d class folders of %s", len(changed), folder)
    # Listing waits for the disk, or for a file server: threads wait together.
    with naming(folder, "a folder of images"), ThreadPoolExecutor(16) as pool:
        names = pool.map(_listed, [folder / name for name in changed])
        index = FolderIndex.from_listing(dict(zip(changed, names, strict=True)), folder)
    if files:
        write_cache(files, changed, index.counts, index.names.joined)
    return index


def open_folders(
    root: str | Path,
    hierarchy: Hierarchy,
    *,
    train: str = "train",
    test: str | None = None,
    size: int | None = None,
    ignore: Sequence[str] = (),
    cache: bool | str | Path = True,
    workers: int | None = None,
) -> Source:
    """Open ``root/<train>/<leaf>/<image>`` and ``root/<test>/<leaf>/<image>`` as a data source.

    The class folders are the hierarchy's leaves, all of them; those in ``ignore`` may be there
    too. ``test`` is by default ``test``, or else ``val``. See :class:`LazyImages` for ``size``.
    """
    root = Path(root)
    if test is None:
        test = "val" if not (root / "test").is_dir() and (root / "val").is_dir() else "test"
    indices = [index_folders(root / split, cache=cache) for split in (train, test)]
    refuse_wrong_classes({str(i.folder): i.classes for i in indices}, hierarchy, ignore)
    leaves = tuple(sorted({name for index in indices for name in index.classes}))
    number = {name: i for i, name in enumerate(leaves)}
    first, second = (
        (
            LazyImages(index, size, workers),
            frozen(np.array([number[name] for name in index.classes], np.intp)[index.leaf]),
        )
        for index in indices
    )
    both = hashlib.sha256("".join(index.checksum for index in indices).encode())
    return Source(leaves, *first, *second, str(root), f"names-sha256:{both.hexdigest()}")


def refuse_wrong_classes(
    found: Mapping[str, Iterable[str]], hierarchy: Hierarchy, ignore: Sequence[str] = ()
) -> None:
    """Refuse places whose classes are not the hierarchy's leaves, naming every wrong one."""
    wrong = []
    for place, names in found.items():
        missing = sorted(set(hierarchy.leaves) - set(names))
        extra = sorted(set(names) - set(hierarchy.leaves) - set(ignore))
        if missing:
            wrong.append(f"{place} lacks {len(missing)} of the classes: {listed(missing, 20)}")
        if extra:
            is_are = "is" if len(extra) == 1 else "are"
            hints = listed(extra, 20, partial(_with_hint, missing=missing, hierarchy=hierarchy))
            wrong.append(f"{place} has {len(extra)} that {is_are} no leaf: {hints}")
    if wrong:
        raise DataError(
            "; ".join(wrong) + ". Images lie in one folder for each of the hierarchy's "
            f"{len(hierarchy.leaves)} leaves: add, rename or remove folders, or correct the "
            "hierarchy"
        )


def _with_hint(name: str, missing: Sequence[str], hierarchy: Hierarchy) -> str:
    if name in hierarchy.number:
        return f"{name!r} (a superclass: its images go to {listed(hierarchy.children(name), 20)})"
    near = get_close_matches(name, missing, n=1)
    return f"{name!r} (did you mean {near[0]!r}?)" if near else repr(name)


def _joined_names(folder: Path, names: Iterable[str]) -> str:
    """The file names, a zero byte after each; an error names a file that is no image."""
    names = list(names)
    joined = "\0".join([*names, ""])
    # Counting one suffix in the joined text is 20 times faster than looking at each name.
    suffix = Path(names[0]).suffix if names else ""
    plain = suffix.lower() in SUFFIXES and joined.count(f"{suffix}\0") == len(names)
    if plain and not joined.startswith(".") and "\0." not in joined:
        return joined
    visible = [name for name in names if not _of_the_system(name)]
    stray = sorted(name for name in visible if not name.lower().endswith(SUFFIXES))
    if stray:
        raise DataError(
            f"{folder} holds {listed(stray, 20)}, which is no image: a class folder holds images "
            f"alone ({', '.join(SUFFIXES)}). Move it elsewhere"
        )
    return "\0".join([*visible, ""])


def _of_the_system(name: str) -> bool:
    """Whether a file is hidden, or one that Windows leaves in folders of images."""
    return name.startswith(".") or name.lower() in ("thumbs.db", "desktop.ini")


def _class_folders(folder: Path) -> dict[str, int]:
    """Class folders, sorted → when each was last changed, in nanoseconds."""
    if not folder.is_dir():
        raise DataError(f"no folder {folder}: {_what_is_there(folder)}")
    changed = {}
    with os.scandir(folder) as entries:
        for entry in entries:
            if _of_the_system(entry.name):
                continue
            if entry.is_dir():
                changed[entry.name] = entry.stat().st_mtime_ns
            elif entry.name.lower().endswith(SUFFIXES):
                raise DataError(f"{entry.path} lies in no class folder: move it into one")
            else:
                log.warning("%s is no class folder and is left out", entry.path)
    return dict(sorted(changed.items()))


def _listed(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208  (a Path a file costs 1 s on ImageNet)
    except OSError as error:
        raise DataError(f"{folder} cannot be listed: {error.strerror}") from error


def _what_is_there(folder: Path) -> str:
    if not folder.parent.is_dir():
        return f"{folder.parent} does not exist either"
    there = sorted(f.name for f in folder.parent.iterdir() if f.is_dir())
    near = get_close_matches(folder.name, there, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    return f"{hint}{folder.parent} holds the folders: {listed(there, 20) or 'none'}"
