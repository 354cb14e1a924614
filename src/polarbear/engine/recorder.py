"""Who is told what a run measures."""

from typing import Protocol

from polarbear.base.arrays import Bools
from polarbear.score.decide import RawScores
from polarbear.score.record import EpochRecord, ScoreRecord


class Recorder(Protocol):
    """Receives what a run measures: the run folder, TensorBoard, a progress display.

    One of your own may inherit from this and define what it cares for. It is called by the process
    that trains, which waits meanwhile, and after the run folder was written; what it raises ends
    the run. A resumed run tells everything since its last checkpoint again.
    """

    def epoch(self, record: EpochRecord) -> None:
        """Take the record of an epoch."""
        ...

    def scores(self, record: ScoreRecord) -> None:
        """Take the scores on one split after a task."""
        ...

    def answers(self, after: int, predictions: Bools, scores: RawScores) -> None:
        """Take the test predictions after a task and the raw scores behind them: (n, seen) each."""
        ...
