"""What is shown of several runs side by side: a line after each task, and how all ended."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from polarbear.base.arrays import Bools
from polarbear.cli.shared.console import console, error_console, plain_table, share
from polarbear.runs.folder import RunFolder
from polarbear.score.decide import RawScores
from polarbear.score.record import EpochRecord, ScoreRecord

if TYPE_CHECKING:
    from polarbear.launch.fleet import Outcome


@dataclass(frozen=True)
class TaskLines:
    """Writes a line after each task of a run."""

    name: str

    def epoch(self, record: EpochRecord) -> None:
        """Say nothing of an epoch."""

    def scores(self, record: ScoreRecord) -> None:
        """Say R_j."""
        if record.split == "test":
            score = share(record.r)
            line = f"{self.name}: task {record.after}, R_j {score}"
            error_console().print(line, soft_wrap=True)

    def answers(self, after: int, predictions: Bools, scores: RawScores) -> None:
        """Say nothing of single images."""


def print_outcomes(outcomes: "Mapping[str, Outcome]") -> None:
    """Print how each run ended."""
    table = plain_table("run", "state", "R_j after the last task")
    for name, outcome in outcomes.items():
        state = "finished" if outcome.finished else "stopped"
        last = "–"
        if outcome.error is not None:
            state = f"failed: {outcome.error}"
        elif outcome.finished:
            # A run that was asked for fewer tasks has no score at the end.
            scores = RunFolder(Path(name)).table().r
            done = scores[~np.isnan(scores)]
            last = share(float(done[-1]) if done.size else np.nan)
        table.add_row(name, state, last)
    console().print(table)
