"""Everything to write and train a method with: the public names that need PyTorch.

>>> from polarbear import learn
>>> learn.run("er", "iirc-shapes", epochs=4)  # doctest: +SKIP
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from polarbear.benchmark.stream import Stream
from polarbear.engine.contract.batch import Batch, TaskContext
from polarbear.engine.contract.method import Method, bce, frozen_copy, teacher_targets
from polarbear.engine.contract.phase import Phase
from polarbear.engine.images.transform import ImageTransform, Jitter, PadCrop, ResizedCrop
from polarbear.engine.recorder import Recorder
from polarbear.engine.task.selection import Candidates
from polarbear.engine.trainer import Progress, Trainer
from polarbear.engine.world import the_world
from polarbear.launch import runner
from polarbear.launch.check.learner import CheckError, Finding, check_learner
from polarbear.launch.prepare import threads as with_threads
from polarbear.launch.prepare import usual_threads
from polarbear.launch.runner import OnStep
from polarbear.launch.stop import StopWish
from polarbear.launch.trained import TrainedModel, load_model
from polarbear.methods.presets import settings_for
from polarbear.methods.registry import name_of
from polarbear.runs.folder import RunFolder
from polarbear.runs.result import Result, usual_folder
from polarbear.runs.sinks import Silent
from polarbear.score.record import EpochRecord, ScoreRecord
from polarbear.settings.settings import Settings

__all__ = [
    "Batch",
    "Candidates",
    "CheckError",
    "EpochRecord",
    "Finding",
    "ImageTransform",
    "Jitter",
    "Method",
    "PadCrop",
    "Phase",
    "Recorder",
    "ResizedCrop",
    "Result",
    "ScoreRecord",
    "Settings",
    "TaskContext",
    "TrainedModel",
    "bce",
    "check_learner",
    "frozen_copy",
    "load_model",
    "resume",
    "run",
    "settings_for",
    "teacher_targets",
    "train",
]

log = logging.getLogger("polarbear")


def run(
    method: type[Method] | str,
    benchmark: str = "iirc-cifar",
    *,
    preset: str = "paper",
    folder: str | Path | None = None,
    stream: Stream | None = None,
    root: str | Path | None = None,
    threads: int | None = None,
    progress: bool = True,
    on_step: OnStep | None = None,
    recorders: Sequence[Recorder] = (),
    save_every: float = 60.0,
    **changes: Any,
) -> Result:
    """Train a method, a class or a name, on a benchmark, and return what it found.

    ``changes`` are settings on top of the preset's: ``epochs=4``, ``order=3``, ``seed=7``. The run
    is kept in ``folder``, as by ``polarbear run`` in ``runs/<benchmark>/<method>/order-N-seed-S``;
    a run that is there already is never overwritten. ``stream`` replaces the benchmark's own data,
    which are in ``root``; ``recorders`` are told what is measured. Ctrl-C stops a run so that
    :func:`resume` can go on with it.
    """
    name = method if isinstance(method, str) else name_of(method)
    settings = settings_for(name, benchmark, preset, **changes)
    path = usual_folder(settings) if folder is None else Path(folder)
    with ExitStack() as stack:
        count = threads or usual_threads(settings) or torch.get_num_threads()
        stack.enter_context(with_threads(count))
        watching = stack.enter_context(_watching(progress, on_step, recorders))
        runner.run(settings, path, stream=stream, root=root, save_every=save_every, **watching)
    return Result(RunFolder.open(path))


def resume(
    folder: str | Path,
    *,
    method: type[Method] | None = None,
    stream: Stream | None = None,
    root: str | Path | None = None,
    progress: bool = True,
    on_step: OnStep | None = None,
    recorders: Sequence[Recorder] = (),
    save_every: float = 60.0,
) -> Result:
    """Go on with a run where it was stopped, and return what it found.

    The scores are those of a run that was never interrupted. ``method`` is its class where it was
    defined in a notebook or a script, which nobody can import.
    """
    if method is not None:
        name_of(method)
    with _watching(progress, on_step, recorders) as watching:
        runner.resume(folder, stream=stream, root=root, save_every=save_every, **watching)
    return Result(RunFolder.open(folder))


def train(
    settings: Settings,
    folder: str | Path,
    *,
    stop: StopWish | None = None,
    stream: Stream | None = None,
    root: str | Path | None = None,
    threads: int | None = None,
    progress: bool = True,
    on_step: OnStep | None = None,
    recorders: Sequence[Recorder] = (),
    save_every: float = 60.0,
) -> Result:
    """Do what is left of a run in its folder, and return what it found.

    It is begun, gone on with where it was stopped, or left as it is if it is finished: the same
    call may be made again and again, by whichever process. A folder of a run of other settings is
    refused. ``stop`` is anything with ``is_set()``, such as a ``threading.Event``, looked at after
    every step; without it SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and Ctrl-C ask a run to stop.

    >>> train(settings_for("er", "iirc-shapes", seed=7), "runs/er-7")  # doctest: +SKIP
    """
    with ExitStack() as stack:
        count = threads or usual_threads(settings) or torch.get_num_threads()
        stack.enter_context(with_threads(count))
        watching = stack.enter_context(_watching(progress, on_step, recorders))
        asked: dict[str, Any] = {"stop": stop, "save_every": save_every, **watching}
        runner.train(settings, folder, stream=stream, root=root, **asked)
    return Result(RunFolder.open(folder))


@contextmanager
def _watching(
    progress: bool, on_step: OnStep | None, recorders: Sequence[Recorder]
) -> Iterator[dict[str, Any]]:
    """Return what a run is told to show itself; without rich, it is logged task by task."""
    if not progress or not the_world().is_first:
        yield {"on_step": on_step, "recorders": tuple(recorders)}
        return
    try:
        from polarbear.cli.shared.live import watch
    except ModuleNotFoundError as error:
        if error.name != "rich":
            raise
        yield {"on_step": on_step, "recorders": (_TaskLog(), *recorders)}
        return
    with watch() as display:

        def both(trainer: Trainer, progress: Progress) -> None:
            display(trainer, progress)
            if on_step:
                on_step(trainer, progress)

        yield {"on_step": both, "recorders": (display, *recorders)}


class _TaskLog(Silent):
    def scores(self, record: ScoreRecord) -> None:
        if record.split == "test":
            log.info("after task %d: R_j %.3f", record.after, record.r)
