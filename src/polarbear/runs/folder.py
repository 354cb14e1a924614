"""The run folder: what a run was asked, what it measured, and what it answered.

    manifest.json      settings, seed, versions, commit, data checksum, class order
    epochs.jsonl       one line an epoch
    scores.jsonl       one line a task and split: R_j, R_jk and the other scores
    predictions/       after_<j>.npz: test predictions, packed bits
    raw/               after_<j>.npz: test scores as float16, if asked for
    checkpoint/        what a resumed run goes on from
    finished.json      written last: a folder without it is unfinished
    lock               held by the process that trains

Every JSON object has a checksum of its content (``base.sealed``), arrays have the CRC of their zip
file: what was damaged is a RunError, never another number. Format 1 had neither, and is
still read.

Nothing here needs PyTorch, so a report can read a folder anywhere.
"""

import json
import logging
import math
import os
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from polarbear.base.arrays import Bools
from polarbear.base.errors import PolarbearError
from polarbear.base.files import plain, sync_folder, write_json, write_whole
from polarbear.base.guarded import read_npy, read_npz, undamaged
from polarbear.base.lock import take
from polarbear.base.sealed import parsed, sealed, unsealed, without_seal
from polarbear.score.decide import OWN_RULE
from polarbear.score.record import ScoreRecord, as_number
from polarbear.score.table import ScoreTable
from polarbear.settings.settings import fits

log = logging.getLogger("polarbear")

FORMAT = 2
UNSEALED = 1  # the format before, whose JSON needs no checksums
FORMATS = (UNSEALED, FORMAT)

#: What the manifest of a loop of one's own says it was made by; the engine's says nothing.
OWN_LOOP = "own loop"

LINE_FILES = ("epochs", "scores")

#: What a run writes into its folder: none of it may be a link, or files elsewhere would change.
OWN = (
    *("manifest.json", "epochs.jsonl", "scores.jsonl", "finished.json", "lock"),
    *("predictions", "raw", "checkpoint"),
)

#: What parts of a manifest are, where it has them.
KINDS: Mapping[str, Any] = {
    "made_by": str,
    "settings": dict,
    "root": str | None,
    "classes": list,
    "data": str,
    "environment": dict,
    "threads": int | None,
}
SETTINGS_KINDS: Mapping[str, Any] = {
    "method": str,
    "benchmark": str,
    "order": int | None,
    "seed": int,
    "tasks": int | None,
    "options": dict,
}


class RunError(PolarbearError):
    """A run folder that is missing, of another version, or already in use."""


@dataclass(frozen=True)
class RunFolder:
    """Files of one run, each written whole or as whole lines."""

    path: Path

    @classmethod
    def create(cls, path: str | Path, manifest: Mapping[str, Any]) -> "RunFolder":
        """Make a new folder with its manifest; an existing run is never overwritten.

        One that crashed before it had learnt anything is none: its folder is taken over.
        """
        folder = cls(Path(path))
        if (folder.path / "manifest.json").exists() and not folder.left_empty():
            raise RunError(f"{folder.path} holds a run already{folder._remedy()}")
        try:
            refuse_links(folder.path)
            content = {"format": FORMAT, **manifest} | {"format": FORMAT}
            write_json(folder.path / "manifest.json", sealed(plain(content)))
        except OSError as error:
            raise RunError(f"{folder.path} cannot become a run folder: {error}") from error
        return folder

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        """Open an existing folder."""
        folder = cls(Path(path))
        folder.manifest()
        return folder

    def manifest(self) -> dict[str, Any]:
        """Return what the run was asked."""
        file = self.path / "manifest.json"
        if not file.is_file():
            raise RunError(f"{self.path} is no run folder: it has no manifest.json")
        with reading(file):
            content = parsed(file.read_bytes())
        if (found := content.get("format")) not in FORMATS:
            raise RunError(
                f"{self.path} is a run folder of format {found!r}; this polarbear reads formats "
                f"{' and '.join(map(str, FORMATS))}: use the version named in its manifest, or run "
                "it again"
            )
        with reading(file):
            manifest = without_seal(content, required=found != UNSEALED)
            _refuse_wrong_kinds(manifest)
        return manifest

    @property
    def is_sealed(self) -> bool:
        """Whether all that is JSON in it must have its checksum."""
        return bool(self.manifest()["format"] != UNSEALED)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let nobody else train into this folder meanwhile; a killed process lets go by itself."""
        # A file of its own, open for writing: network file systems lock no other, and some let
        # nobody read a locked one.
        with writing(self.path):
            file = (self.path / "lock").open("ab")
        with file:
            try:
                if not take(file):
                    raise RunError(
                        f"{self.path} is being trained into by this or another process: wait for "
                        "its end, or stop it"
                    )
            except OSError as error:  # a file system without locks
                log.warning("%s cannot be locked: %s", self.path, error)
            yield

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return (self.path / "finished.json").is_file()

    @property
    def own_loop(self) -> bool:
        """Whether a loop of one's own wrote it, which only that loop can go on with."""
        manifest = self.manifest()
        settings = manifest["settings"]
        # Before a manifest said so, such a loop's decision rule did; now it may be a method's, too.
        formerly = settings.get("decision") == OWN_RULE and "network" not in settings
        return manifest.get("made_by") == OWN_LOOP or formerly

    def left_empty(self) -> bool:
        """Whether a process began to train here and ended before there was anything to keep."""
        kept = ("finished.json", "epochs.jsonl", "scores.jsonl", "checkpoint")
        lock = self.path / "lock"
        if any((self.path / name).exists() for name in kept) or not lock.is_file():
            return False
        try:
            if self.own_loop:
                return False
            with lock.open("ab") as file:
                return take(file)
        except RunError:  # of another version, which may keep other files
            return False
        except OSError:  # there is no telling whether a process still trains
            return False

    def _remedy(self) -> str:
        """Say what can be done with a folder that holds a run."""
        other = "choose another folder for a new one (--out DIR)"
        resume = f": `polarbear resume {self.path}`"
        if self.finished:
            return f"{resume} can only show it, as it is finished; {other}"
        try:
            own = self.own_loop
        except RunError as error:
            return f", and {error}; {other}"
        if own:
            return (
                ", of a loop of your own, with which `polarbear resume` cannot go on: your loop "
                f"can, with RunFolder.open({str(self.path)!r}); or choose another folder"
            )
        return f"{resume} goes on with it; {other}"

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Write ``finished.json``, once all it speaks for is on the disk."""
        self.sizes()
        with writing(self.path):
            write_json(self.path / "finished.json", sealed(plain(facts)))

    def seconds(self) -> float | None:
        """Return how long a finished run took."""
        if not self.finished:
            return None
        required = self.is_sealed
        with reading(file := self.path / "finished.json"):
            return as_number(unsealed(file.read_bytes(), required=required)["seconds"])

    def append(self, name: str, record: Mapping[str, Any]) -> None:
        """Add a line to ``epochs.jsonl`` or ``scores.jsonl``, after the last whole one."""
        line = json.dumps(sealed(plain(record)), allow_nan=False) + "\n"
        with writing(self.path), (self.path / f"{name}.jsonl").open("ab+") as file:
            _cut_torn_line(file)
            file.write(line.encode())

    def lines(self, name: str) -> Iterator[dict[str, Any]]:
        """Go through the records of a JSON-lines file.

        A last line that was cut off is left out, unless the run is finished: then none can be.
        """
        yield from self._lines(self.path / f"{name}.jsonl", may_be_torn=not self.finished)

    def _lines(self, file: Path, *, may_be_torn: bool) -> Iterator[dict[str, Any]]:
        if not file.is_file():
            return
        required = self.is_sealed
        with reading(file):
            *lines, torn = file.read_bytes().split(b"\n")
            if torn and not may_be_torn:
                raise ValueError("its last line is cut off")
        for number, line in enumerate(lines, start=1):
            with reading(file, number):
                record = unsealed(line, required=required)
            yield record

    def table(self, split: str = "test") -> ScoreTable:
        """Return the score table, NaN for tasks still to come."""
        settings, tasks = self.manifest()["settings"], self._tasks()
        with reading(self.path / "manifest.json"):
            name, order = settings["benchmark"], settings["order"]
        records = (record for record in self.scores() if record.split == split)
        return ScoreTable.of(name, order, split, tasks, records)

    def scores(self) -> Iterator[ScoreRecord]:
        """Go through the records of ``scores.jsonl``."""
        tasks = self._tasks()
        for number, line in enumerate(self.lines("scores"), start=1):
            with reading(self.path / "scores.jsonl", number):
                record = ScoreRecord.from_json(line, tasks)
            yield record

    def _tasks(self) -> int:
        with reading(self.path / "manifest.json"):
            return len(self.manifest()["classes"])

    def sizes(self) -> dict[str, int]:
        """Return the lengths of the line files, for :meth:`cut_back`, once they are on the disk.

        A checkpoint counts on these lines. To wait for the disk after every line would cost a
        fifth of an epoch on a fast GPU.
        """
        with writing(self.path):
            sizes = dict.fromkeys(LINE_FILES, 0)
            for name in LINE_FILES:
                if (file := self.path / f"{name}.jsonl").exists():
                    with file.open("ab") as opened:
                        os.fsync(opened.fileno())
                        sizes[name] = opened.tell()
            sync_folder(self.path)
        return sizes

    def cut_back(self, sizes: Mapping[str, int]) -> None:
        """Drop lines written after a checkpoint: a resumed run writes them again.

        Those before it must be whole: the run would not write them again.
        """
        for name, size in sizes.items():
            file = self.path / f"{name}.jsonl"
            there = file.stat().st_size if file.exists() else 0
            if there < size:
                raise RunError(
                    f"{file} lacks lines this run has written: it has {there} bytes, the "
                    f"checkpoint counts on {size}. Put the file back. {self._or_begin_again()}"
                )
            if there > size:
                with writing(self.path):
                    os.truncate(file, size)
            try:
                deque(self._lines(file, may_be_torn=False), maxlen=0)
            except RunError as error:
                raise RunError(f"{error}. {self._or_begin_again()}") from error

    def _or_begin_again(self) -> str:
        return f"Or delete {self.path / 'checkpoint'}, and `polarbear resume` begins from task 0"

    def save_predictions(self, after: int, predictions: Bools) -> None:
        """Keep test predictions (n, s) as packed bits."""
        packed = np.packbits(predictions, axis=None)
        file = self.path / "predictions" / f"after_{after}.npz"
        shape = np.array(predictions.shape)
        with writing(self.path):
            write_whole(file, lambda out: np.savez(out, bits=packed, shape=shape))

    def predictions(self, after: int) -> Bools | None:
        """Return kept test predictions (n, s), or None."""
        file = self.path / "predictions" / f"after_{after}.npz"
        if not file.is_file():
            return None
        with reading(file):
            kept = read_npz(file, ("bits", "shape"))
            rows, columns = (int(n) for n in kept["shape"])
            if kept["bits"].size != math.ceil(rows * columns / 8) or min(rows, columns) < 0:
                raise ValueError(f"{kept['bits'].size} bytes for {rows} × {columns} labels")
            bits = np.unpackbits(kept["bits"], count=rows * columns)
            return bits.reshape(rows, columns).astype(bool)

    def save_raw(self, after: int, scores: NDArray[Any]) -> None:
        """Keep test scores (n, s) as float16, each on its own side of 0."""
        half = np.clip(scores, -60000, 60000).astype(np.float16)
        # Scores too near 0 for float16 would all round to it, and be named or not alike.
        least = np.copysign(np.finfo(np.float16).smallest_subnormal, scores)
        half = np.where((half == 0) & (scores != 0), least, half).astype(np.float16)
        file = self.path / "raw" / f"after_{after}.npz"
        with writing(self.path):
            write_whole(file, lambda out: np.savez(out, scores=half))

    def raw(self, after: int) -> NDArray[np.float16] | None:
        """Return kept test scores (n, s), or None."""
        file = self.path / "raw" / f"after_{after}.npz"
        if not file.is_file():
            file = file.with_suffix(".npy")  # as format 1 has it, without a CRC
        if not file.is_file():
            return None
        with reading(file):
            kept = (
                read_npy(file) if file.suffix == ".npy" else read_npz(file, ("scores",))["scores"]
            )
            if kept.ndim != 2 or kept.dtype != np.float16:
                raise ValueError(f"{kept.dtype} of shape {kept.shape}, not float16 scores (n, s)")
            scores: NDArray[np.float16] = kept
            return scores


def _refuse_wrong_kinds(manifest: Mapping[str, Any]) -> None:
    if "settings" not in manifest:
        raise ValueError("it has no settings")
    for where, kinds in ((manifest, KINDS), (manifest["settings"], SETTINGS_KINDS)):
        for name, kind in kinds.items():
            if name in where and not fits(where[name], kind):
                raise ValueError(f"its {name} is {str(where[name])[:40]}")
    for task in manifest.get("classes", ()):
        if not (isinstance(task, list) and all(isinstance(name, str) for name in task)):
            raise ValueError(f"its classes have {str(task)[:40]} for the names of a task")


def _cut_torn_line(file: IO[bytes]) -> None:
    """Cut off a last line that a killed process has left without its end."""
    if size := file.seek(0, os.SEEK_END):
        file.seek(size - 1)
        if file.read() != b"\n":
            file.seek(0)
            file.truncate(file.read().rfind(b"\n") + 1)


def find_runs(root: str | Path) -> Iterator[RunFolder]:
    """Go through the run folders at or below a folder, sorted by path."""
    for manifest in sorted(Path(root).rglob("manifest.json")):
        yield RunFolder(manifest.parent)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn a write that fails into an error that says what to do; never write through a link."""
    refuse_links(folder)
    try:
        yield
    except OSError as error:
        raise RunError(
            f"no more can be written to {folder}: {error}. What is there is kept; make room, "
            f"then `polarbear resume {folder}`"
        ) from error


def refuse_links(folder: Path) -> None:
    """Refuse a run folder in which a file or folder of the run's own is a link.

    The run folder itself may be reached through one.
    """
    for name in OWN:
        if (folder / name).is_symlink():
            raise RunError(
                f"{folder / name} is a link, and a run changes no files outside its folder: put "
                "the file or folder itself there, or move the whole run folder and link that"
            )


def reading(file: Path, line: int | None = None) -> AbstractContextManager[None]:
    """Turn whatever is wrong with a file into an error that names it."""
    where = file if line is None else f"{file}, line {line}"
    return undamaged(where, RunError, ": put back a copy of it, or begin a new run")
