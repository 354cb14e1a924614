"""Several runs side by side on one GPU: a line for every task a run has behind it."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polarbear.arrays import Bools
from polarbear.cli.learning import STOPPED, How, sinks
from polarbear.cli.screen import console, error_console, plain_table, share
from polarbear.decide import Scores
from polarbear.errors import PolarbearError
from polarbear.runs import RunFolder
from polarbear.settings import Settings

if TYPE_CHECKING:
    from polarbear.engine.fleet import Job, Outcome


@dataclass(frozen=True)
class TaskLines:
    """Writes a line after each task of a run."""

    name: str

    def epoch(self, record: Mapping[str, Any]) -> None:
        """Say nothing of an epoch."""

    def scores(self, record: Mapping[str, Any]) -> None:
        """Say R_j."""
        if record["split"] == "test":
            score = share(record["scores"]["pw_jaccard"])
            line = f"{self.name}: task {record['after']}, R_j {score}"
            error_console().print(line, soft_wrap=True)

    def answers(self, after: int, predictions: Bools, scores: Scores) -> None:
        """Say nothing of single images."""


def train_fleet(wanted: Mapping[Path, Settings], how: How) -> None:
    """Train settings into their folders, as many at a time as the engine sees fit."""
    from polarbear.engine.fleet import run_fleet

    with ExitStack() as stack:
        jobs = [_job(folder, settings, how, stack) for folder, settings in wanted.items()]
        outcomes = run_fleet(jobs, save_every=how.save_every)
    _print(outcomes)
    failed = [name for name, outcome in outcomes.items() if outcome.error is not None]
    if failed:
        raise PolarbearError(f"{len(failed)} of {len(outcomes)} runs failed: {', '.join(failed)}")
    if not all(outcome.finished for outcome in outcomes.values()):
        raise SystemExit(STOPPED)


def _job(folder: Path, settings: Settings, how: How, stack: ExitStack) -> "Job":
    from polarbear.engine.fleet import Job
    from polarbear.engine.prepared import begin

    kept = [stack.enter_context(sink) for sink in sinks(folder, settings, how)]
    lines = TaskLines(f"{settings.method} order {settings.order}")
    return Job(
        str(folder),
        lambda shared: begin(settings, folder, root=how.root, shared=shared),
        {"recorders": (lines, *kept)},
    )


def _print(outcomes: "Mapping[str, Outcome]") -> None:
    table = plain_table("run", "state", "R_j after the last task")
    for name, outcome in outcomes.items():
        state = "finished" if outcome.finished else "stopped"
        last = "–"
        if outcome.error is not None:
            state = f"failed: {outcome.error}"
        elif outcome.finished:
            last = share(_last(RunFolder(Path(name))))
        table.add_row(name, state, last)
    console().print(table)


def _last(run: RunFolder) -> float:
    """Give the last R_j there is; a run that was asked for fewer tasks has none at the end."""
    scores = run.table().r
    done = scores[~np.isnan(scores)]
    return float(done[-1]) if done.size else np.nan
