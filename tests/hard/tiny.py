"""Tiny runs that every campaign breaks, and what an unbroken one leaves."""

import hashlib
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from engine_run import shapes_stream, tiny
from hard.forked import forked
from polarbear.base.errors import PolarbearError
from polarbear.benchmark.stream import Stream
from polarbear.launch.runner import resume, run
from polarbear.runs.folder import RunFolder
from polarbear.runs.guards import RunError
from polarbear.runs.own_loop import start_run, write_scores
from polarbear.score.evaluate import Evaluator
from polarbear.settings.settings import Settings

FINISHED, UNFINISHED, REFUSED = 0, 3, 4
METHODS = ("er", "finetune", "icarl-norm", "lucir", "agem", "kin")


def stream() -> Stream:
    return shapes_stream(12, 2)


def prepare() -> None:
    """Do once in the parent what all its children need."""
    torch.set_num_threads(1)  # other threads would be missing in a child, which waits for them
    stream()


def asked(method: str, **changes: Any) -> Settings:
    return tiny(method, **{"epochs": 1, "tasks": 2, "keep_scores": True} | changes)


def go_on(settings: Settings, folder: Path, save_every: float = 0.0) -> int:
    """Begin a run or go on with it, as a user would who gives the same command again."""
    more: dict[str, Any] = {"stream": stream(), "save_every": save_every}
    try:
        if (folder / "manifest.json").exists():
            ended = resume(folder, **more)
        else:
            ended = run(settings, folder, **more)
    except PolarbearError as error:
        print(f"{type(error).__name__}: {error}")
        return REFUSED
    return FINISHED if ended else UNFINISHED


def own_loop(folder: Path, tasks: int = 3) -> int:
    """Go on with a loop of one's own, after the last task that has scores in its folder."""
    data = stream()
    try:
        if (folder / "manifest.json").exists():
            opened = RunFolder.open(folder)
        else:
            opened = start_run(folder, data, method="mine", tasks=tasks)
        done = {line["after"] for line in opened.lines("scores")}
        evaluator = Evaluator(data)
        for after in range(tasks):
            truth = data.test(after).targets
            predicted = truth ^ (np.random.default_rng(after).random(truth.shape) < 0.1)
            evaluator.add(after, predicted)
            if after not in done:
                write_scores(opened, evaluator, after, predicted)
        if not opened.finished:
            _have_finished(opened, evaluator, tasks - 1)
    except PolarbearError as error:
        print(f"{type(error).__name__}: {error}")
        return REFUSED
    return FINISHED if RunFolder(folder).finished else UNFINISHED


def _have_finished(folder: RunFolder, evaluator: Evaluator, last: int) -> None:
    """Write the last task again: refused, as it is there, but then the run is finished."""
    with suppress(RunError):
        write_scores(folder, evaluator, last)


Work = Callable[[Path], int]


def of_engine(settings: Settings, save_every: float = 0.0) -> Work:
    return lambda folder: go_on(settings, folder, save_every)


def left(folder: Path) -> dict[str, str]:
    """What a run leaves that must not differ, by file; times are left out."""
    found = {"finished": str(RunFolder(folder).finished)}
    for file in sorted(folder.glob("*/*")):
        if file.parent.name in ("predictions", "raw"):
            found[f"{file.parent.name}/{file.name}"] = hashlib.sha256(file.read_bytes()).hexdigest()
    found["scores.jsonl"] = _text(folder / "scores.jsonl")
    for line in _text(folder / "epochs.jsonl").splitlines():
        # The seconds differ from run to run, and so does a checksum of the line.
        record = {**json.loads(line), "seconds": None, "check": None}
        found[f"epoch {record['task']}/{record['epoch']}"] = json.dumps(record)
    return found


def differing(folder: Path, whole: dict[str, str]) -> list[str]:
    """Name what a run has left otherwise than an unbroken one."""
    try:
        found = left(folder)
    except (OSError, ValueError, KeyError) as error:
        return [f"unreadable: {error}"]
    return sorted(
        name for name in found.keys() | whole.keys() if found.get(name) != whole.get(name)
    )


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8") if file.exists() else ""


def unbroken(work: Work, folder: Path) -> dict[str, str]:
    """Give what a run leaves that nobody disturbs; it is kept in the folder."""
    child = forked(lambda: work(folder), folder.with_name(f"{folder.name}.log"))
    code = child.wait()
    if code != FINISHED:
        raise RuntimeError(f"an undisturbed run ended with {code}: {child.said()}")
    return left(folder)


def snapshot(folder: Path) -> dict[str, bytes]:
    """Give all files of a folder, for a finding."""
    files = [file for file in sorted(folder.rglob("*")) if file.is_file()]
    return {str(file.relative_to(folder)).replace("/", "__"): file.read_bytes() for file in files}
