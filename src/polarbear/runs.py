"""The run folder: what a run was asked, what it measured, and what it answered.

    manifest.json      settings, seed, versions, commit, data checksum, class order
    epochs.jsonl       one line an epoch
    scores.jsonl       one line a task and split: R_j, R_jk and the other scores
    predictions/       after_<j>.npz: test predictions, packed bits
    raw/               after_<j>.npy: test scores as float16, if asked for
    checkpoint/        what a resumed run goes on from
    finished.json      written last: a folder without it is unfinished

Nothing here needs PyTorch, so a report can read a folder anywhere.
"""

import json
import math
import os
import platform
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from polarbear.arrays import Bools
from polarbear.errors import PolarbearError

FORMAT = 1


class RunError(PolarbearError):
    """A run folder that is missing, of another version, or already in use."""


@dataclass(frozen=True)
class RunFolder:
    """Files of one run, each written whole or as whole lines."""

    path: Path

    @classmethod
    def create(cls, path: str | Path, manifest: Mapping[str, Any]) -> "RunFolder":
        """Make a new folder with its manifest; an existing run is never overwritten."""
        folder = cls(Path(path))
        if (folder.path / "manifest.json").exists():
            raise RunError(
                f"{folder.path} holds a run already: `polarbear resume {folder.path}` goes on with "
                "it; choose another folder for a new one"
            )
        folder.path.mkdir(parents=True, exist_ok=True)
        write_json(folder.path / "manifest.json", {"format": FORMAT, **manifest})
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
        return manifest

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return (self.path / "finished.json").is_file()

    def append(self, name: str, record: Mapping[str, Any]) -> None:
        """Add a line to ``epochs.jsonl`` or ``scores.jsonl``."""
        with (self.path / f"{name}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(plain(record), allow_nan=False) + "\n")

    def lines(self, name: str) -> Iterator[dict[str, Any]]:
        """Go through the records of a JSON-lines file."""
        file = self.path / f"{name}.jsonl"
        if file.is_file():
            with file.open(encoding="utf-8") as lines:
                yield from (json.loads(line) for line in lines)

    def sizes(self) -> dict[str, int]:
        """Give the lengths of the line files, for :meth:`cut_back`."""
        files = {name: self.path / f"{name}.jsonl" for name in ("epochs", "scores")}
        return {name: file.stat().st_size if file.exists() else 0 for name, file in files.items()}

    def cut_back(self, sizes: Mapping[str, int]) -> None:
        """Drop lines written after a checkpoint: a resumed run writes them again."""
        for name, size in sizes.items():
            file = self.path / f"{name}.jsonl"
            if file.exists() and file.stat().st_size > size:
                os.truncate(file, size)

    def save_predictions(self, after: int, predictions: Bools) -> None:
        """Keep test predictions (n, s) as packed bits."""
        packed = np.packbits(predictions, axis=None)
        file = self.path / "predictions" / f"after_{after}.npz"
        shape = np.array(predictions.shape)
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
        """Keep test scores (n, s) as float16."""
        half = np.clip(scores, -60000, 60000).astype(np.float16)
        write_whole(self.path / "raw" / f"after_{after}.npy", lambda out: np.save(out, half))

    def raw(self, after: int) -> NDArray[np.float16] | None:
        """Give kept test scores (n, s), or None."""
        file = self.path / "raw" / f"after_{after}.npy"
        if not file.is_file():
            return None
        kept: NDArray[np.float16] = np.load(file, allow_pickle=False)
        return kept


def find_runs(root: str | Path) -> Iterator[RunFolder]:
    """Go through the run folders at or below a folder, sorted by path."""
    for manifest in sorted(Path(root).rglob("manifest.json")):
        yield RunFolder(manifest.parent)


def write_whole(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file so that it is there whole or not at all, even if the machine stops."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
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


def environment() -> dict[str, Any]:
    """Give versions and hardware for a manifest."""
    import polarbear

    return {
        "polarbear": polarbear.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "commit": _commit(),
    }


def _commit() -> str | None:
    here = Path(__file__).parent
    try:
        found = subprocess.run(
            ["git", "-C", str(here), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()
