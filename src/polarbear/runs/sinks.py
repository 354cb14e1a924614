"""Where a run's measurements can go beside its folder: TensorBoard and MLflow.

A sink is a recorder and a context: leaving it closes what it opened. The run folder has all that
a sink gets, so a server that falls silent costs the charts and never the run.
"""

import json
import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from polarbear.base.arrays import Bools
from polarbear.base.errors import PolarbearError, install_line
from polarbear.base.files import write_json
from polarbear.score.decide import RawScores
from polarbear.score.record import EpochRecord, ScoreRecord
from polarbear.settings.settings import Settings

log = logging.getLogger("polarbear")


class Silent:
    """A recorder that takes note of nothing, and a context that has nothing to close."""

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close nothing."""

    def epoch(self, record: EpochRecord) -> None:
        """Say nothing of an epoch."""

    def scores(self, record: ScoreRecord) -> None:
        """Say nothing of scores."""

    def answers(self, after: int, predictions: Bools, scores: RawScores) -> None:
        """Leave predictions to the run folder."""


class Charts(Silent, ABC):
    """Hands an epoch's and a task's numbers on, each by its name and its place on the chart."""

    settings: Settings

    def epoch(self, record: EpochRecord) -> None:
        """Draw an epoch's loss, rate, validation score and speed; charts run through all tasks."""
        earlier = sum(self.settings.epochs_of(task) for task in range(record.task))
        self._send(epoch_values(record), earlier + record.epoch)

    def scores(self, record: ScoreRecord) -> None:
        """Draw the scores after a task."""
        self._send(score_values(record), record.after)

    @abstractmethod
    def _send(self, values: Iterator[tuple[str, float]], step: int) -> None:
        """Draw numbers at a place."""


class TensorBoardSink(Charts):
    """Writes event files for ``tensorboard --logdir``; they appear with the first measurement.

    Charts named ``epoch/…`` count epochs through all tasks; ``test/…`` and ``post_valid/…`` count
    tasks, and ``test-by-task/k`` has R_jk.
    """

    def __init__(self, folder: str | Path, settings: Settings) -> None:
        """Remember where to write; without TensorBoard this is an error."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise _missing("TensorBoard", "tensorboard") from error
        self.folder, self.settings = Path(folder), settings
        self._open = SummaryWriter

    def __exit__(self, *_: object) -> None:
        """Write what waits and close the file."""
        if "_writer" in vars(self):
            self._writer.close()

    def _send(self, values: Iterator[tuple[str, float]], step: int) -> None:
        for name, value in values:
            self._writer.add_scalar(name, value, step)
        self._writer.flush()  # for whoever looks now

    @cached_property
    def _writer(self) -> Any:
        writer = self._open(str(self.folder))
        lines = (f"    {name} = {value!r}" for name, value in self.settings.to_dict().items())
        writer.add_text("settings", "\n".join(lines))
        return writer


class MLflowSink(Charts):
    """Sends a run to an MLflow tracking server: settings as parameters, scores as metrics.

    ``experiment`` is the benchmark's name by default. With ``folder``, the run folder, a run is
    resumed in the MLflow run it began: ``mlflow.json`` there says which.
    """

    def __init__(
        self,
        uri: str,
        settings: Settings,
        experiment: str | None = None,
        folder: str | Path | None = None,
    ) -> None:
        """Find or make the experiment; a server that cannot be used is an error."""
        try:
            from mlflow.exceptions import MlflowException
            from mlflow.tracking import MlflowClient
        except ImportError as error:
            raise _missing("MLflow", "mlflow") from error
        self.uri, self.settings, self.silent = uri, settings, False
        self.note = None if folder is None else Path(folder) / "mlflow.json"
        self._failures = (MlflowException, OSError)
        try:
            self._client = MlflowClient(tracking_uri=uri)
            name = experiment or settings.benchmark
            found = self._client.get_experiment_by_name(name)
            self._experiment = (
                found.experiment_id if found else self._client.create_experiment(name)
            )
        except self._failures as error:
            raise PolarbearError(
                f"MLflow cannot be used at {uri!r}: {error}. Give the address of a running "
                "server, such as http://localhost:5000 (`mlflow server` starts one)"
            ) from error

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Tell how the run ended: finished, failed, or stopped from outside (killed)."""
        if "_run" in vars(self):
            failed = kind is not None and issubclass(kind, Exception)
            status = "FINISHED" if kind is None else "FAILED" if failed else "KILLED"
            self._try(lambda: self._client.set_terminated(self._run, status))

    def _send(self, values: Iterator[tuple[str, float]], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        metrics = [Metric(name, value, now, step) for name, value in values]
        self._try(lambda: self._client.log_batch(self._run, metrics=metrics))

    def _try(self, send: Callable[[], object]) -> None:
        if self.silent:
            return
        try:
            send()
        except self._failures as error:
            self.silent = True
            log.warning("MLflow does not answer; the run goes on without it: %s", error)

    @cached_property
    def _run(self) -> str:
        """The identity of the MLflow run: the one begun earlier, else a new one."""
        if self.note and self.note.is_file():
            begun = json.loads(self.note.read_text(encoding="utf-8"))
            if begun["uri"] == self.uri:
                self._client.update_run(begun["run"], status="RUNNING")
                return str(begun["run"])
        from mlflow.entities import Param

        asked = self.settings
        name = f"{asked.method}, order {asked.order}, seed {asked.seed}"
        run = str(self._client.create_run(self._experiment, run_name=name).info.run_id)
        params = [Param(name, str(value)) for name, value in asked.to_dict().items()]
        self._client.log_batch(run, params=params)
        if self.note:
            write_json(self.note, {"uri": self.uri, "run": run})
        return run


def epoch_values(record: EpochRecord) -> Iterator[tuple[str, float]]:
    """Return an epoch's numbers by name.

    >>> record = EpochRecord(0, 1, 0.5, 1.0, 0.25, images=300, seconds=2.0, own={"drift": 0.1})
    >>> dict(epoch_values(record))["epoch/images_per_second"]
    150.0
    """
    yield "epoch/loss", record.loss
    yield "epoch/rate", record.rate
    yield "epoch/valid", record.valid
    yield "epoch/images_per_second", record.images / max(record.seconds, 1e-9)
    for name, value in record.own.items():
        yield f"own/{name}", value


def score_values(record: ScoreRecord) -> Iterator[tuple[str, float]]:
    """Return the scores after a task by name, and R_jk for each task k; what is no number is left.

    >>> import numpy as np
    >>> scores = {"jaccard": 0.5, "jaccard/subclass": 0.75, "late_recall": float("nan")}
    >>> dict(score_values(ScoreRecord(0, "test", scores, {"pw_jaccard": np.array([0.25])})))
    {'test/jaccard': 0.5, 'test/jaccard.subclass': 0.75, 'test-by-task/0': 0.25}
    """
    # A slash more would make "jaccard" a file and a folder at once where MLflow keeps files.
    values = {f"{record.split}/{n.replace('/', '.')}": v for n, v in record.scores.items()}
    by_task = enumerate(record.by_task["pw_jaccard"])
    values |= {f"{record.split}-by-task/{task}": value for task, value in by_task}
    return ((name, float(value)) for name, value in values.items() if math.isfinite(value))


def _missing(what: str, extra: str) -> PolarbearError:
    return PolarbearError(f"{what} is not installed: {install_line(extra)}")
