"""The run folder: what a run was asked, what it measured, and what it answered.

    manifest.json      settings, seed, versions, commit, data checksum, class order, image size
    epochs.jsonl       one line per epoch
    scores.jsonl       one line per task and split: R_j, R_jk and the other scores
    predictions/       after_<j>.npz: test predictions, packed bits
    raw/               after_<j>.npz: test scores as float16, if asked for
    checkpoint/        what a run is resumed from
    finished.json      written last: a folder without it is unfinished
    lock               held by the process that trains
    process.json       which one that is, or how it ended; not in a finished run
    asked.json         instead of all this: the settings of a run that waits for its turn
    job.json           the cluster's job it was given to, if any, and where that job's log is

Every JSON object has a checksum of its content (``base.sealed``), arrays have the CRC of their zip
file: what was damaged is a RunError, never another number. Format 1 had neither, and is
still read.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

from polarbear.base.arrays import Bools
from polarbear.base.files import plain, sync_folder, write_json, write_whole
from polarbear.base.guarded import read_npy, read_npz
from polarbear.base.lock import take
from polarbear.base.sealed import parsed, sealed, unsealed, without_seal
from polarbear.runs import line_file
from polarbear.runs.guards import RunError, held, is_held, reading, refuse_links, writing
from polarbear.runs.process import last_process
from polarbear.score.decide import OWN_RULE
from polarbear.score.record import EpochRecord, ScoreRecord, as_number
from polarbear.score.table import ScoreTable
from polarbear.settings.settings import Settings, fits

FORMAT = 2
UNSEALED = 1  # the format before, whose JSON needs no checksums
FORMATS = (UNSEALED, FORMAT)

#: What the manifest of a loop of one's own says it was made by; the engine's says nothing.
OWN_LOOP = "own loop"

#: What parts of a manifest are, and of the settings in it, where it has them.
KINDS: Mapping[str, Any] = {
    "made_by": str,
    "settings": dict,
    "root": str | None,
    "classes": list,
    "images": dict,
    "data": str,
    "environment": dict,
    "threads": int | None,
}
ALWAYS_READ = ("method", "benchmark", "seed", "tasks", "options")
SETTINGS_KINDS = {name: get_type_hints(Settings)[name] for name in ALWAYS_READ}
SETTINGS_KINDS |= {"order": int | None}  # a loop of one's own may have none


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
            (folder.path / "asked.json").unlink(missing_ok=True)  # it waits no longer
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

    def held(self) -> AbstractContextManager[None]:
        """Let nobody else train into this folder meanwhile; a killed process lets go by itself."""
        return held(self.path)

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return (self.path / "finished.json").is_file()

    def state(self) -> str:
        """Return a word: finished, running, stopped, failed, or dead: killed, or its machine lost.

        That of an unfinished loop of one's own, which says nothing, is unfinished.
        """
        if self.finished:
            return "finished"
        if self.own_loop:
            return "unfinished"
        last = last_process(self.path)
        if last is not None and last.state != "running":
            return last.state
        there = is_held(self.path) if (self.path / "lock").exists() else False
        if there is None:
            there = last is not None  # nobody can tell: it is believed
        if there:
            return "running"
        return "stopped" if last is None else "dead"  # earlier versions did not say

    @property
    def own_loop(self) -> bool:
        """Whether a loop of one's own wrote it, which only that loop can resume."""
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
        except (RunError, OSError):  # another version may keep other files, or there are no locks
            return False

    def _remedy(self) -> str:
        """Say what can be done with a folder that holds a run."""
        other = "choose another folder for a new one (--out DIR)"
        resume = f": `polarbear resume {self.path}`"
        if self.finished:
            return f"{resume} can only show it, as it is finished; {other}"
        try:
            if self.own_loop:
                return (
                    ", of a loop of your own, which `polarbear resume` cannot resume: your loop "
                    f"can, with RunFolder.open({str(self.path)!r}); or choose another folder"
                )
        except RunError as error:
            return f", and {error}; {other}"
        return f"{resume} resumes it; {other}"

    def finish(self, facts: Mapping[str, Any]) -> None:
        """Write ``finished.json``, once all it speaks for is on the disk."""
        self.sizes()
        with writing(self.path):
            write_json(self.path / "finished.json", sealed(plain(facts)))

    def seconds(self) -> float | None:
        """Return how long a finished run took, None where that is not known."""
        if not self.finished:
            return None
        with reading(self.path / "finished.json"):
            taken = self.facts()["seconds"]
            return None if taken is None else as_number(taken)

    def facts(self) -> dict[str, Any]:
        """Return what a finished run says of itself at its end; nothing before."""
        if not self.finished:
            return {}
        required = self.is_sealed
        with reading(file := self.path / "finished.json"):
            return unsealed(file.read_bytes(), required=required)

    def append(self, name: str, record: Mapping[str, Any]) -> None:
        """Add a line to ``epochs.jsonl`` or ``scores.jsonl``, after the last whole one."""
        with writing(self.path):
            line_file.append(self.path / f"{name}.jsonl", record)

    def lines(self, name: str) -> Iterator[dict[str, Any]]:
        """Go through the records of a JSON-lines file.

        A last line that was cut off is left out, unless the run is finished: then none can be.
        """
        return self._lines(name, self.manifest())

    def _lines(self, name: str, manifest: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        file, torn = self.path / f"{name}.jsonl", not self.finished
        sealed_ones = manifest["format"] != UNSEALED
        return line_file.records(file, required=sealed_ones, may_be_torn=torn)

    def table(self, split: str = "test") -> ScoreTable:
        """Return the score table, NaN for tasks still to come."""
        return self.table_and_tree(split)[0]

    def table_and_tree(self, split: str = "test") -> tuple[ScoreTable, dict[str, str] | None]:
        """Return the score table and the inferred tree: their files are read once for both."""
        manifest = self.manifest()
        with reading(self.path / "manifest.json"):
            settings, tasks = manifest["settings"], len(manifest["classes"])
            name, order = settings["benchmark"], settings["order"]
        records = list(self._scores(manifest))
        wanted = (record for record in records if record.split == split)
        return ScoreTable.of(name, order, split, tasks, wanted), _tree(records, manifest)

    def scores(self) -> Iterator[ScoreRecord]:
        """Go through the records of ``scores.jsonl``."""
        return self._scores(self.manifest())

    def _scores(self, manifest: Mapping[str, Any]) -> Iterator[ScoreRecord]:
        with reading(self.path / "manifest.json"):
            tasks = len(manifest["classes"])
        for number, line in enumerate(self._lines("scores", manifest), start=1):
            with reading(self.path / "scores.jsonl", number):
                record = ScoreRecord.from_json(line, tasks)
            yield record

    def epochs(self) -> Iterator[EpochRecord]:
        """Go through the records of ``epochs.jsonl``."""
        for number, line in enumerate(self.lines("epochs"), start=1):
            with reading(self.path / "epochs.jsonl", number):
                record = EpochRecord.from_json(line)
            yield record

    def inferred_tree(self) -> dict[str, str] | None:
        """Return the parent of each class that the method gives one, after the last task so far.

        None if it infers none.
        """
        manifest = self.manifest()
        return _tree(self._scores(manifest), manifest)

    def sizes(self) -> dict[str, int]:
        """Return the lengths of the line files, for :meth:`cut_back`, once they are on the disk.

        A checkpoint counts on these lines. To wait for the disk after every line would cost a
        fifth of an epoch on a fast GPU.
        """
        with writing(self.path):
            files = {name: self.path / f"{name}.jsonl" for name in ("epochs", "scores")}
            sizes = {name: line_file.size_on_disk(file) for name, file in files.items()}
            sync_folder(self.path)
        return sizes

    def cut_back(self, sizes: Mapping[str, int]) -> None:
        """Drop lines written after a checkpoint; a resumed run writes them again, and no others."""
        required, checkpoint = self.is_sealed, self.path / "checkpoint"
        for name, size in sizes.items():
            with writing(self.path):
                try:
                    line_file.cut(self.path / f"{name}.jsonl", size, required=required)
                except RunError as error:
                    again = f"Or delete {checkpoint}, and `polarbear resume` begins from task 0"
                    raise RunError(f"{error}. {again}") from error

    def save_predictions(self, after: int, predictions: Bools) -> None:
        """Keep test predictions (n, s) as packed bits."""
        packed = np.packbits(predictions, axis=None)
        self._save("predictions", after, bits=packed, shape=np.array(predictions.shape))

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
        # Scores too near 0 for float16 would all round to it, and be predicted or not alike.
        least = np.copysign(np.finfo(np.float16).smallest_subnormal, scores)
        half = np.where((half == 0) & (scores != 0), least, half).astype(np.float16)
        self._save("raw", after, scores=half)

    def raw(self, after: int) -> NDArray[np.float16] | None:
        """Return kept test scores (n, s), or None."""
        file = self.path / "raw" / f"after_{after}.npz"
        if not file.is_file():
            file = file.with_suffix(".npy")  # as format 1 has it, without a CRC
        if not file.is_file():
            return None
        with reading(file):
            npy = file.suffix == ".npy"
            kept = read_npy(file) if npy else read_npz(file, ("scores",))["scores"]
            if kept.ndim != 2 or kept.dtype != np.float16:
                raise ValueError(f"{kept.dtype} of shape {kept.shape}, not float16 scores (n, s)")
            return kept

    def _save(self, kind: str, after: int, **arrays: Any) -> None:
        file = self.path / kind / f"after_{after}.npz"
        with writing(self.path):
            write_whole(file, lambda out: np.savez(out, **arrays))


def _tree(records: Iterable[ScoreRecord], manifest: Mapping[str, Any]) -> dict[str, str] | None:
    found = None
    for record in records:
        found = record.parents if record.split == "test" else found
    if found is None:
        return None
    classes = [name for task in manifest["classes"] for name in task]
    pairs = zip(classes, found, strict=False)
    return {child: classes[parent] for child, parent in pairs if parent >= 0}


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


def find_runs(root: str | Path) -> Iterator[RunFolder]:
    """Go through the run folders at or below a folder, sorted by path."""
    for manifest in sorted(Path(root).rglob("manifest.json")):
        yield RunFolder(manifest.parent)
