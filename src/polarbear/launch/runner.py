"""Whole runs: from settings to a finished run folder, and on from where one stopped."""

import logging
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from polarbear.base.arrays import Bools
from polarbear.base.errors import PolarbearError
from polarbear.base.files import plain
from polarbear.base.out_of_memory import enough_memory, ran_out, smaller
from polarbear.base.sealed import checksum
from polarbear.benchmark.stream import Stream
from polarbear.engine.recorder import Recorder
from polarbear.engine.trainer import Progress, Trainer
from polarbear.engine.world import World, the_world
from polarbear.launch import checkpoint
from polarbear.launch.assembly import untrained
from polarbear.launch.clock import Clock, Share, Taken, all_of_it
from polarbear.launch.kept import kept_bytes
from polarbear.launch.left_to_do import prepare_rest
from polarbear.launch.network_files import Written
from polarbear.launch.prepare import Prepared, begin, reopen, threads
from polarbear.launch.snapshot import restore, take_snapshot
from polarbear.launch.stop import StopWish, stop_on_signal
from polarbear.runs.cost import count_passes
from polarbear.runs.folder import RunFolder
from polarbear.runs.guards import RunError
from polarbear.score.decide import RawScores
from polarbear.score.record import EpochRecord, ScoreRecord
from polarbear.settings.settings import Settings

log = logging.getLogger("polarbear")

OnStep = Callable[[Trainer, Progress], None]


@dataclass(frozen=True)
class FolderRecorder:
    """Writes what a run measures into its folder."""

    folder: RunFolder
    keep_scores: bool

    def epoch(self, record: EpochRecord) -> None:
        """Add a line to epochs.jsonl."""
        self.folder.append("epochs", record.to_json())

    def scores(self, record: ScoreRecord) -> None:
        """Add a line to scores.jsonl."""
        self.folder.append("scores", record.to_json())

    def answers(self, after: int, predictions: Bools, scores: RawScores) -> None:
        """Keep test predictions, and raw scores if asked."""
        self.folder.save_predictions(after, predictions)
        if self.keep_scores:
            self.folder.save_raw(after, scores)


def run(
    settings: Settings,
    folder: str | Path,
    *,
    stream: Stream | None = None,
    root: str | Path | None = None,
    recorders: tuple[Recorder, ...] = (),
    on_step: OnStep | None = None,
    save_every: float = 60.0,
) -> bool:
    """Train by these settings into a new folder; True when it came to its end.

    ``stream`` replaces the benchmark's own data. The run stops early, and can be resumed, on
    SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 or SIGINT; a checkpoint is written then, after every task,
    and every ``save_every`` seconds.
    """
    prepared = begin(settings, folder, stream=stream, root=root)
    return _go(prepared, recorders, on_step, save_every)


def resume(
    folder: str | Path,
    *,
    stream: Stream | None = None,
    root: str | Path | None = None,
    recorders: tuple[Recorder, ...] = (),
    on_step: OnStep | None = None,
    save_every: float = 60.0,
) -> bool:
    """Go on with a run where its newest whole checkpoint was taken; True when it came to its end.

    The scores are those of a run that was never interrupted.
    """
    if the_world().told(lambda: RunFolder.open(folder).finished):
        log.info("%s is finished: nothing to do", folder)
        return True
    prepared = reopen(folder, stream=stream, root=root)
    with threads(prepared.threads):
        return _go(prepared, recorders, on_step, save_every)


def train(
    settings: Settings,
    folder: str | Path,
    *,
    stop: StopWish | None = None,
    stream: Stream | None = None,
    root: str | Path | None = None,
    recorders: tuple[Recorder, ...] = (),
    on_step: OnStep | None = None,
    save_every: float = 60.0,
) -> bool:
    """Do what is left of a run: begin it, go on, or nothing; True when it has come to its end.

    A folder that holds a run of other settings is refused. ``stop`` is looked at after every step;
    without it, signals ask to stop, as :func:`run` says.
    """
    prepared = prepare_rest(settings, folder, stream=stream, root=root)
    if prepared is None:
        log.info("%s is finished: nothing to do", folder)
        return True
    with threads(prepared.threads):
        return _go(prepared, recorders, on_step, save_every, stop)


def _go(
    prepared: Prepared,
    recorders: tuple[Recorder, ...],
    on_step: OnStep | None,
    save_every: float,
    asked: StopWish | None = None,
) -> bool:
    with stop_on_signal() if asked is None else nullcontext(asked) as stop:
        going = advance(prepared, stop, recorders, on_step, save_every)
        while True:
            try:
                next(going)
            except StopIteration as end:
                return bool(end.value)


def advance(
    prepared: Prepared,
    stop: StopWish,
    recorders: tuple[Recorder, ...] = (),
    on_step: OnStep | None = None,
    save_every: float = 60.0,
    share: Share = all_of_it,
) -> Generator[Progress, None, bool]:
    """Go on with a run, yielding wherever it may be left for a while; returns whether it ended."""
    if not prepared.learner.world.is_first:  # the first one writes and speaks
        return (yield from _advance(prepared, stop, (), None, save_every, share))
    with prepared.folder.held():
        there = Settings.from_dict(prepared.folder.manifest()["settings"])
        mine = replace(prepared.learner.settings.as_fast_as(there), accumulate=there.accumulate)
        if plain(there.to_dict()) != plain(mine.to_dict()):
            raise RunError(f"{prepared.folder.path} was taken over by another run meanwhile")
        with enough_memory(smaller(prepared.folder.path)):
            return (yield from _advance(prepared, stop, recorders, on_step, save_every, share))


def _advance(
    prepared: Prepared,
    stop: StopWish,
    recorders: tuple[Recorder, ...],
    on_step: OnStep | None,
    save_every: float,
    share: Share,
) -> Generator[Progress, None, bool]:
    folder, world = prepared.folder, prepared.learner.world
    trainer, number, taken = _restored(prepared, recorders)
    learner = trainer.learner
    clock = Clock(taken, share, world.size)
    saved, task = time.monotonic(), trainer.progress.task
    told, written = None, Written()
    for progress in trainer.steps():
        clock.tick()
        # While a GPU is at work a run may pause in the same place many times.
        if on_step and progress is not told:
            on_step(trainer, progress)
            told = progress
        stopping, due = world.any(stop.is_set(), time.monotonic() - saved > save_every)
        if stopping or progress.task != task or due:
            number += 1
            world.collect(learner.method.logged)
            if world.is_first:
                _save(folder, number, trainer, clock.tick(), written)
            saved, task = time.monotonic(), progress.task
        if stopping:
            log.warning(
                "stopped in task %d, epoch %d; `polarbear resume %s` goes on",
                progress.task,
                progress.epoch,
                folder.path,
            )
            world.meet()  # torchrun ends the others half a minute after the first that goes
            return False
        yield progress
        learner.machine.allow_tf32()
    if world.is_first:
        kept = kept_bytes(learner, prepared.stream, trainer.tasks - 1)
        passes = count_passes(folder)
        took = asdict(clock.tick())
        folder.finish({"tasks": trainer.tasks, **took, "passes": passes, "kept": kept})
    world.meet()  # none goes before the run is finished
    return True


def _save(
    folder: RunFolder, number: int, trainer: Trainer, so_far: Taken, written: Written
) -> None:
    taken = take_snapshot(trainer)
    own = {"lines": folder.sizes(), "settings": _settings_checksum(folder), **asdict(so_far)}
    try:
        checkpoint.save(
            folder.path / "checkpoint",
            number,
            replace(taken, facts={**taken.facts, **own}),
            written,
        )
    except OSError as error:
        raise PolarbearError(
            f"no checkpoint could be written to {folder.path}: {error}. The one before is kept; "
            f"make room, then `polarbear resume {folder.path}`"
        ) from error


def _restored(prepared: Prepared, recorders: tuple[Recorder, ...]) -> tuple[Trainer, int, Taken]:
    """Return a trainer at the newest checkpoint, its number and what the run had taken.

    One that cannot be restored is passed over. Without any the run begins at task 0.
    """
    folder, learner, place = prepared.folder, prepared.learner, prepared.folder.path / "checkpoint"
    world = learner.world
    if world.is_first:
        recorders = (FolderRecorder(folder, learner.settings.keep_scores), *recorders)
    learner.machine.allow_tf32()  # runs that were made ready since may have another precision
    failed: Exception | None = None
    for number, found in _checkpoints(folder, place, world):
        trainer = Trainer(prepared.stream, learner, recorders)
        try:
            restore(trainer, found)
            for total in () if world.is_first else learner.method.logged.values():
                total[0] = 0  # the first has the sums of all
            lines, taken = dict(found.facts["lines"]), Taken.from_facts(found.facts)
        except Exception as error:
            if ran_out(error):
                raise
            log.warning(
                "checkpoint %d of %s cannot be restored, the one before is used: %s: %s",
                *(number, folder.path, type(error).__name__, error),
            )
            failed, learner = error, untrained(learner, prepared.stream)
        else:
            if world.is_first:
                folder.cut_back(lines)
            return trainer, number, taken
    if not world.is_first:
        return Trainer(prepared.stream, learner, recorders), 0, Taken()
    if failed is not None and folder.is_sealed:  # not damaged: to begin again would be a loss
        raise RunError(
            f"the checkpoints of {folder.path} are whole, but cannot be restored "
            f"({type(failed).__name__}: {failed}): has the method, the network or PyTorch changed "
            f"since? Put that back, or delete {place}, and `polarbear resume` begins from task 0"
        ) from failed
    if checkpoint.numbers(place):
        log.warning("no checkpoint of %s is whole: it begins again, at task 0", folder.path)
        checkpoint.clear(place)
    folder.cut_back({"epochs": 0, "scores": 0})
    return Trainer(prepared.stream, learner, recorders), 0, Taken()


def _checkpoints(
    folder: RunFolder, place: Path, world: World
) -> Iterator[tuple[int, checkpoint.Checkpoint]]:
    """Go through the whole checkpoints, the newest first, as the first process finds them."""
    found: Iterator[tuple[int, checkpoint.Checkpoint]] = iter(())
    if world.is_first:
        found = checkpoint.from_newest(place, required=folder.is_sealed)
    while (one := world.told(lambda: next(found, None))) is not None:
        if world.is_first:
            refuse_other_settings(folder, *one)
        yield one


def _settings_checksum(folder: RunFolder) -> str:
    return checksum(folder.manifest()["settings"])


def refuse_other_settings(folder: RunFolder, number: int, found: checkpoint.Checkpoint) -> None:
    """Refuse a checkpoint that another run wrote."""
    due, came = _settings_checksum(folder), found.facts.get("settings")
    if came != due and (folder.is_sealed or came is not None):
        raise RunError(
            f"checkpoint {number} of {folder.path} is of other settings than its manifest.json: "
            f"their checksums are {came!r} and {due!r}. Put back the file that was changed, or "
            f"delete {folder.path / 'checkpoint'}, and `polarbear resume` begins from task 0"
        )
