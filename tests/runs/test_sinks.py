"""TensorBoard and MLflow get what a run measures, and cannot stop it; read back with the real."""

import json
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from polarbear.base.errors import PolarbearError, install_line
from polarbear.launch.runner import run
from polarbear.runs.folder import RunFolder
from polarbear.runs.sinks import MLflowSink, TensorBoardSink, WandbSink
from polarbear.score.record import EpochRecord, ScoreRecord
from polarbear.settings.settings import Settings

SETTINGS = Settings(
    "er", "iirc-shapes", epochs=2, first_task_factor=1.5, tasks=2, network="small", batch_size=128
)
EPOCH = EpochRecord(1, 0, loss=0.5, rate=0.1, valid=0.25, images=60, seconds=2)
SCORES = ScoreRecord(
    1,
    "test",
    {"pw_jaccard": 0.5, "late_recall": float("nan")},
    {"pw_jaccard": np.array([0.75, 0.25]), "jaccard": np.array([0.8, 0.4])},
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunFolder, MlflowClient]]:
    """A real run with both sinks."""
    folder = tmp_path_factory.mktemp("run")
    uri = (folder / "mlruns").as_uri()
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        # A store in files needs no server; MLflow wants to hear that it is meant.
        patch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
        torch.set_num_threads(1)
        with (
            TensorBoardSink(folder / "tensorboard", SETTINGS) as board,
            MLflowSink(uri, SETTINGS, folder=folder) as flow,
        ):
            assert run(SETTINGS, folder, recorders=(board, flow))
        torch.set_num_threads(threads)
        yield RunFolder.open(folder), MlflowClient(tracking_uri=uri)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return (tmp_path / "mlruns").as_uri()


def expected(folder: RunFolder) -> dict[str, list[tuple[int, float]]]:
    """What the folder says, as charts of (step, value)."""
    charts: dict[str, list[tuple[int, float]]] = {}
    for step, line in enumerate(folder.lines("epochs")):
        for name in ("loss", "rate", "valid"):
            charts.setdefault(f"epoch/{name}", []).append((step, line[name]))
    for line in folder.lines("scores"):
        for score, value in line["scores"].items():
            if value is not None:
                name = f"{line['split']}/{score.replace('/', '.')}"
                charts.setdefault(name, []).append((line["after"], value))
        for task, value in enumerate(line["by_task"]["pw_jaccard"]):
            name = f"{line['split']}-by-task/{task}"
            charts.setdefault(name, []).append((line["after"], value))
    return charts


def test_epochs_are_counted_through_the_tasks(trained: tuple[RunFolder, Any]) -> None:
    places = [(line["task"], line["epoch"]) for line in trained[0].lines("epochs")]
    assert places == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]


def test_tensorboard_has_every_number_of_the_folder(trained: tuple[RunFolder, Any]) -> None:
    events = EventAccumulator(str(trained[0].path / "tensorboard"))
    events.Reload()
    for name, chart in expected(trained[0]).items():
        found = [(event.step, event.value) for event in events.Scalars(name)]
        assert found == [(step, pytest.approx(value, rel=1e-6)) for step, value in chart]
    assert len(events.Scalars("epoch/images_per_second")) == 5
    assert "settings/text_summary" in events.Tags()["tensors"]


def test_mlflow_has_every_number_and_setting(trained: tuple[RunFolder, MlflowClient]) -> None:
    folder, client = trained
    note = json.loads((folder.path / "mlflow.json").read_text())
    found = client.get_run(note["run"])
    assert found.info.status == "FINISHED"
    assert client.get_experiment(found.info.experiment_id).name == "iirc-shapes"
    assert found.data.params == {name: str(value) for name, value in SETTINGS.to_dict().items()}
    for name, chart in expected(folder).items():
        history = client.get_metric_history(note["run"], name)
        assert sorted((metric.step, metric.value) for metric in history) == chart


def test_nothing_is_written_before_the_first_measurement(tmp_path: Path, store: str) -> None:
    with TensorBoardSink(tmp_path / "board", SETTINGS), MLflowSink(store, SETTINGS) as flow:
        pass
    assert not (tmp_path / "board").exists()
    assert "_run" not in vars(flow)


def test_epochs_go_on_where_a_resumed_run_does(tmp_path: Path) -> None:
    with TensorBoardSink(tmp_path, SETTINGS) as board:
        board.epoch(EPOCH)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert [event.step for event in events.Scalars("epoch/loss")] == [3]


def end_with(error: BaseException, sink: MLflowSink) -> None:
    """Take an epoch and end in an error."""
    with suppress(type(error)), sink:
        sink.epoch(EPOCH)
        raise error


def test_a_resumed_run_goes_on_in_its_mlflow_run(tmp_path: Path, store: str) -> None:
    end_with(SystemExit(130), MLflowSink(store, SETTINGS, folder=tmp_path))
    client = MlflowClient(tracking_uri=store)
    began = json.loads((tmp_path / "mlflow.json").read_text())["run"]
    assert client.get_run(began).info.status == "KILLED"
    with MLflowSink(store, SETTINGS, folder=tmp_path) as flow:
        flow.scores(SCORES)
        assert client.get_run(began).info.status == "RUNNING"
    found = client.search_runs([client.get_run(began).info.experiment_id])
    assert [one.info.run_id for one in found] == [began]
    assert found[0].info.status == "FINISHED"
    assert found[0].data.metrics["epoch/loss"] == 0.5
    assert found[0].data.metrics["test-by-task/1"] == 0.25
    assert "test/late_recall" not in found[0].data.metrics


def test_a_failed_run_is_marked(tmp_path: Path, store: str) -> None:
    end_with(ValueError("no"), MLflowSink(store, SETTINGS, folder=tmp_path))
    began = json.loads((tmp_path / "mlflow.json").read_text())["run"]
    assert MlflowClient(tracking_uri=store).get_run(began).info.status == "FAILED"


def test_a_server_that_falls_silent_costs_no_run(
    store: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[str] = []

    def fail(*_: object, **__: object) -> None:
        calls.append("call")
        raise MlflowException("connection refused")

    with MLflowSink(store, SETTINGS) as flow:
        flow.epoch(EPOCH)
        monkeypatch.setattr(flow._client, "log_batch", fail)
        flow.epoch(EPOCH)
        flow.scores(SCORES)
    assert len(calls) == 1
    (warning,) = [line for line in caplog.messages if "MLflow" in line]
    assert "the run goes on without it: connection refused" in warning


def test_a_wrong_address_is_refused_at_once() -> None:
    with pytest.raises(PolarbearError, match=r"cannot be used at 'nope://x'.*`mlflow server`"):
        MLflowSink("nope://x", SETTINGS)


@pytest.mark.parametrize(
    ("module", "make"),
    [
        ("tensorboard", lambda: TensorBoardSink("folder", SETTINGS)),
        ("mlflow", lambda: MLflowSink("http://localhost:1", SETTINGS)),
        ("wandb", lambda: WandbSink("project", SETTINGS)),
    ],
)
def test_a_missing_package_names_the_extra(
    module: str, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in list(sys.modules):
        if name.split(".")[0] == module or name == "torch.utils.tensorboard":
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(PolarbearError, match=re.escape(install_line(module))):
        make()
