"""The run folder: what a run was asked, what it measured, and what it answered.

    manifest.json      settings, seed, versions, commit, data checksum, class order
    epochs.jsonl       one line an epoch
    scores.jsonl       one line a task and split: R_j, R_jk and the other scores
    predictions/       after_<j>.npz: test predictions, packed bits
    raw/               after_<j>.npy: test scores as float16, if asked for
    checkpoint/        what a resumed run goes on from
    finished.json      written last: a folder without it is unfinished
    lock               held by the process that trains

Nothing here needs PyTorch, so a report can read a folder anywhere.
"""

import json
import logging
import math
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from polarbear.arrays import Bools
from polarbear.errors import PolarbearError
from polarbear.evaluate import SCORE_NAMES
from polarbear.scores import BY_TASK, ScoreTable

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # Windows has no such locks
    fcntl = None

log = logging.getLogger("polarbear")

FORMAT = 1


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
            write_json(folder.path / "manifest.json", {"format": FORMAT, **manifest})
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
        """Give what the run was asked."""
        file = self.path / "manifest.json"
        if not file.is_file():
            raise RunError(f"{self.path} is no run folder: it has no manifest.json")
        try:
            manifest = json.loads(file.read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise RunError(f"{file} is damaged: {error}") from error
        if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
            found = manifest.get("format") if isinstance(manifest, dict) else manifest
            raise RunError(
                f"{self.path} is a run folder of format {found!r}; this polarbear reads format "
                f"{FORMAT}: use the version named in its manifest, or run it again"
            )
        if not isinstance(manifest.get("settings"), dict):
            raise RunError(f"{file} is damaged: it has no settings")
        return manifest

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let nobody else train into this folder meanwhile; a killed process lets go by itself."""
        if fcntl is None:
            yield
            return
        # A file of its own, open for writing: network file systems lock no other, and some let
        # nobody read a locked one.
        with writing(self.path):
            file = (self.path / "lock").open("ab")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise RunError(
                    f"{self.path} is being trained into by this or another process: wait for its "
                    "end, or stop it"
                ) from error
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
        return bool(self.manifest()["settings"].get("decision") == "own")

    def left_empty(self) -> bool:
        """Whether a process began to train here and ended before there was anything to keep."""
        kept = ("finished.json", "epochs.jsonl", "scores.jsonl", "checkpoint")
        if any((self.path / name).exists() for name in kept):
            return False
        try:
            return not self.own_loop and self._let_go()
        except RunError:  # of another version, which may keep other files
            return False

    def _let_go(self) -> bool:
        """Whether a process has held this folder and no longer does; where unsure, it does."""
        lock = self.path / "lock"
        if fcntl is None or not lock.is_file():
            return False
        try:
            with lock.open("ab") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

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
                ", of a loop of your own, with which `polarbear resume` cannot go on: choose "
                "another folder, or delete this one"
            )
        return f"{resume} goes on with it; {other}"

    def seconds(self) -> float | None:
        """Give how long a finished run took."""
        if not self.finished:
            return None
        facts = json.loads((self.path / "finished.json").read_text(encoding="utf-8"))
        return float(facts["seconds"])

    def append(self, name: str, record: Mapping[str, Any]) -> None:
        """Add a line to ``epochs.jsonl`` or ``scores.jsonl``."""
        line = json.dumps(plain(record), allow_nan=False) + "\n"
        with writing(self.path), (self.path / f"{name}.jsonl").open("ab") as file:
            file.write(line.encode())

    def lines(self, name: str) -> Iterator[dict[str, Any]]:
        """Go through the records of a JSON-lines file; a line that was cut off is left out."""
        file = self.path / f"{name}.jsonl"
        if file.is_file():
            with file.open("rb") as lines:
                yield from (json.loads(line) for line in lines if line.endswith(b"\n"))

    def table(self, split: str = "test") -> ScoreTable:
        """Give the score table, NaN for tasks still to come."""
        manifest = self.manifest()
        tasks = len(manifest["classes"])
        scores = {name: np.full(tasks, np.nan) for name in SCORE_NAMES}
        by_task = {name: np.full((tasks, tasks), np.nan) for name in BY_TASK}
        for line in self.lines("scores"):
            if line["split"] != split:
                continue
            after = line["after"]
            for name, value in line["scores"].items():
                scores[name][after] = np.nan if value is None else value
            for name, row in line["by_task"].items():
                by_task[name][after, : after + 1] = np.array(row, dtype=np.float64)
        settings = manifest["settings"]
        return ScoreTable(settings["benchmark"], settings["order"], split, scores, by_task)

    def sizes(self) -> dict[str, int]:
        """Give the lengths of the line files, for :meth:`cut_back`, once they are on the disk.

        A checkpoint counts on these lines. To wait for the disk after every line would cost a
        fifth of an epoch on a fast GPU.
        """
        return {name: _settled_size(self.path / f"{name}.jsonl") for name in ("epochs", "scores")}

    def cut_back(self, sizes: Mapping[str, int]) -> None:
        """Drop lines written after a checkpoint: a resumed run writes them again."""
        for name, size in sizes.items():
            file = self.path / f"{name}.jsonl"
            there = file.stat().st_size if file.exists() else 0
            if there < size:
                raise RunError(
                    f"{file} lacks lines this run has written: it has {there} bytes, the "
                    f"checkpoint counts on {size}. Put the file back, or start a new run"
                )
            if there > size:
                os.truncate(file, size)

    def save_predictions(self, after: int, predictions: Bools) -> None:
        """Keep test predictions (n, s) as packed bits."""
        packed = np.packbits(predictions, axis=None)
        file = self.path / "predictions" / f"after_{after}.npz"
        shape = np.array(predictions.shape)
        with writing(self.path):
            write_whole(file, lambda out: np.savez(out, bits=packed, shape=shape))

    def predictions(self, after: int) -> Bools | None:
        """Give kept test predictions (n, s), or None."""
        file = self.path / "predictions" / f"after_{after}.npz"
        if not file.is_file():
            return None
        with np.load(file, allow_pickle=False) as kept:
            shape = tuple(int(n) for n in kept["shape"])
            bits = np.unpackbits(kept["bits"], count=math.prod(shape))
        return bits.reshape(shape).astype(bool)

    def save_raw(self, after: int, scores: NDArray[Any]) -> None:
        """Keep test scores (n, s) as float16, each on its own side of 0."""
        half = np.clip(scores, -60000, 60000).astype(np.float16)
        # Scores too near 0 for float16 would all round to it, and be named or not alike.
        least = np.copysign(np.finfo(np.float16).smallest_subnormal, scores)
        half = np.where((half == 0) & (scores != 0), least, half).astype(np.float16)
        file = self.path / "raw" / f"after_{after}.npy"
        with writing(self.path):
            write_whole(file, lambda out: np.save(out, half))

    def raw(self, after: int) -> NDArray[np.float16] | None:
        """Give kept test scores (n, s), or None."""
        file = self.path / "raw" / f"after_{after}.npy"
        if not file.is_file():
            return None
        kept: NDArray[np.float16] = np.load(file, allow_pickle=False)
        return kept


def _settled_size(file: Path) -> int:
    if not file.exists():
        return 0
    with writing(file.parent), file.open("ab") as opened:
        os.fsync(opened.fileno())
        return opened.tell()


def find_runs(root: str | Path) -> Iterator[RunFolder]:
    """Go through the run folders at or below a folder, sorted by path."""
    for manifest in sorted(Path(root).rglob("manifest.json")):
        yield RunFolder(manifest.parent)


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Turn a write that fails into an error that says what to do."""
    try:
        yield
    except OSError as error:
        raise RunError(
            f"no more can be written to {folder}: {error}. What is there is kept; make room, "
            f"then `polarbear resume {folder}`"
        ) from error


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file so that it is there whole or not at all, even if the machine stops."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not tempfile: its files are the owner's alone, and a run folder is often a group's. What a
    # killed process left under this name, the next one writes over.
    temporary = path.with_name(f".{path.name}.part")
    try:
        with temporary.open("wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON whole or not at all."""
    text = json.dumps(plain(content), indent=1, allow_nan=False) + "\n"
    write_whole(path, lambda file: file.write(text.encode()))


def plain(value: Any) -> Any:
    """Turn arrays into lists and NaN into None, all the way down."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
