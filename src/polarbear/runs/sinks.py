"""Where a run's measurements can go beside its folder: TensorBoard, MLflow, Weights & Biases.

A sink is a recorder and a context: leaving it closes what it opened. The run folder has all that
a sink gets, so a server that falls silent costs the charts and never the run.
"""

import json
import logging
import math
import os
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


#: What charts of W&B have along their lower side, by how their names begin.
AXES = {
    "epochs": ("epoch", "own"),
    "tasks": ("test", "test-by-task", "post_valid", "post_valid-by-task"),
}


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


class Remote(Charts):
    """Hands numbers to a service that may fail: then the run goes on without it, and says so once.

    ``note``, in the run folder, says which of the service's runs a resumed run goes on with.
    """

    service: str
    note: Path | None
    silent: bool = False
    _failures: tuple[type[Exception], ...]

    def _try(self, send: Callable[[], object]) -> None:
        if self.silent:
            return
        try:
            send()
        except self._failures as error:
            self.silent = True
            log.warning("%s does not answer; the run goes on without it: %s", self.service, error)

    def _noted(self, **at: str) -> str | None:
        """Return the run that was begun at this place earlier."""
        if not (self.note and self.note.is_file()):
            return None
        begun = json.loads(self.note.read_text(encoding="utf-8"))
        return (
            str(begun["run"]) if all(begun[name] == value for name, value in at.items()) else None
        )

    def _take_note(self, **at: str) -> None:
        if self.note:
            write_json(self.note, at)

    @property
    def _name(self) -> str:
        asked = self.settings
        return f"{asked.method}, order {asked.order}, seed {asked.seed}"


class MLflowSink(Remote):
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
        self.service, self.uri, self.settings = "MLflow", uri, settings
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

    @cached_property
    def _run(self) -> str:
        """The identity of the MLflow run: the one begun earlier, else a new one."""
        if (begun := self._noted(uri=self.uri)) is not None:
            self._client.update_run(begun, status="RUNNING")
            return begun
        from mlflow.entities import Param

        run = str(self._client.create_run(self._experiment, run_name=self._name).info.run_id)
        params = [Param(name, str(value)) for name, value in self.settings.to_dict().items()]
        self._client.log_batch(run, params=params)
        self._take_note(uri=self.uri, run=run)
        return run


class WandbSink(Remote):
    """Sends a run to a project of Weights & Biases: settings as config, scores as charts.

    Charts named ``epoch/…`` and ``own/…`` count ``epochs`` through all tasks, the others ``tasks``.
    With ``folder``, the run folder, its files lie in ``wandb/`` there, and a run is resumed in the
    W&B run it began: ``wandb.json`` says which. With ``WANDB_MODE=offline`` nothing is sent, and
    `wandb sync` does so later.
    """

    def __init__(self, project: str, settings: Settings, folder: str | Path | None = None) -> None:
        """Log in, unless offline; a service that cannot be used is an error."""
        try:
            import wandb
        except ImportError as error:
            raise _missing("Weights & Biases", "wandb") from error
        self.service, self.project, self.settings = "Weights & Biases", project, settings
        self.folder = None if folder is None else Path(folder)
        self.note = None if self.folder is None else self.folder / "wandb.json"
        self._wandb, self._failures = wandb, (wandb.Error, OSError)
        self._offline = os.environ.get("WANDB_MODE") in ("offline", "disabled")
        try:
            if not self._offline:
                wandb.login()
        except self._failures as error:
            raise PolarbearError(
                f"Weights & Biases cannot be used ({error}): log in with `wandb login`, or set the "
                "environment variable WANDB_MODE=offline, and nothing is sent"
            ) from error

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Tell whether the run came to its end, and wait until all is sent."""
        if "_run" in vars(self):
            self._try(lambda: self._run.finish(exit_code=0 if kind is None else 1))

    def epoch(self, record: EpochRecord) -> None:
        """Draw an epoch's numbers over the epochs of all tasks."""
        self._axis = "epochs"
        super().epoch(record)

    def scores(self, record: ScoreRecord) -> None:
        """Draw the scores after a task over the tasks."""
        self._axis = "tasks"
        super().scores(record)

    def _send(self, values: Iterator[tuple[str, float]], step: int) -> None:
        self._try(lambda: self._run.log({self._axis: step, **dict(values)}))

    @cached_property
    def _run(self) -> Any:
        """The W&B run: the one begun earlier, else a new one."""
        begun = self._noted(project=self.project)
        run = self._wandb.init(
            project=self.project,
            name=self._name,
            config=self.settings.to_dict(),
            dir=self.folder,
            id=begun,
            resume="allow" if begun and not self._offline else None,
            reinit="create_new",  # several runs train in one process
            settings=self._wandb.Settings(console="off", silent=True),
        )
        for axis, charts in AXES.items():
            run.define_metric(axis, hidden=True)
            for chart in charts:
                run.define_metric(f"{chart}/*", step_metric=axis)
        self._take_note(project=self.project, run=run.id)
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
