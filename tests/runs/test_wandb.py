"""Weights & Biases gets what a run measures: the real library writes its files, read back here.

Offline, since a test sends nothing. `make test` installs the library.
"""

import json
import os
import struct
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine_run import shapes_stream, tiny
from polarbear.base.errors import PolarbearError
from polarbear.launch.runner import run
from polarbear.runs.folder import RunFolder
from polarbear.runs.sinks import AXES, WandbSink
from polarbear.score.record import EpochRecord, ScoreRecord

wandb = pytest.importorskip("wandb", reason="needs wandb, which the extra dev has")

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS = tiny("er", epochs=1, tasks=2)
EPOCH = EpochRecord(1, 0, loss=0.5, rate=0.1, valid=0.25, images=60, seconds=2, own={"drift": 3})
SCORES = ScoreRecord(
    1, "test", {"pw_jaccard": 0.5, "late_recall": float("nan")}, {"pw_jaccard": np.array([0.75])}
)
BLOCK, HEADER = 32768, 7


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("CONFIG_DIR", "CACHE_DIR", "DATA_DIR"):
        monkeypatch.setenv(f"WANDB_{name}", str(tmp_path / name.lower()))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)


def records(file: Path) -> Iterator[Any]:
    """Read what the library wrote: blocks as in LevelDB's log, of messages in parts."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, place, message = file.read_bytes(), HEADER, b""
    while place + HEADER <= len(content):
        left = BLOCK - place % BLOCK
        if left < HEADER:
            place += left
            continue
        _, size, kind = struct.unpack("<IHB", content[place : place + HEADER])
        message += content[place + HEADER : place + HEADER + size]
        place += HEADER + size
        if kind in (1, 4):  # whole, or the last part
            record = Record()
            record.ParseFromString(message)
            yield record
            message = b""


class Sent:
    """What the files in a run folder would send, in the order of their names."""

    def __init__(self, folder: Path) -> None:
        self.runs: list[str] = []
        self.config: dict[str, Any] = {}
        self.lines: list[dict[str, Any]] = []
        self.axes: dict[str, str] = {}
        self.codes: list[int] = []
        wandb.teardown()  # the process that writes for it ends, and all is in the files
        for file in sorted(folder.glob("wandb/offline-run-*/run-*.wandb")):
            for record in records(file):
                self._take(record)

    def _take(self, record: Any) -> None:
        kind = record.WhichOneof("record_type")
        if kind == "run":
            self.runs.append(f"{record.run.project}/{record.run.run_id}/{record.run.display_name}")
            update = record.run.config.update
            self.config |= {one.key: json.loads(one.value_json) for one in update}
        elif kind == "history":
            items = record.history.item
            line = {
                one.key or "/".join(one.nested_key): json.loads(one.value_json) for one in items
            }
            self.lines.append({k: v for k, v in line.items() if not k.startswith("_")})
        elif kind == "metric" and record.metric.step_metric:
            self.axes[record.metric.glob_name] = record.metric.step_metric
        elif kind == "exit":
            self.codes.append(record.exit.exit_code)


def test_it_has_every_number_and_setting(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with WandbSink("mine", SETTINGS, folder) as sink:
        assert run(SETTINGS, folder, stream=shapes_stream(), recorders=(sink,))
    sent, kept = Sent(folder), RunFolder(folder)
    begun = json.loads((folder / "wandb.json").read_text())
    assert sent.runs == [f"mine/{begun['run']}/er, order 0, seed 100"]
    assert begun["project"] == "mine"
    assert sent.config.items() >= SETTINGS.to_dict().items()
    assert sent.codes == [0]
    epochs = [line for line in sent.lines if "epochs" in line]
    assert [line["epochs"] for line in epochs] == list(range(3))
    assert [line["epoch/loss"] for line in epochs] == [r.loss for r in kept.epochs()]
    scores = [line for line in sent.lines if "tasks" in line]
    assert [line["tasks"] for line in scores] == [0, 0, 1, 1]
    due = [r.scores["pw_jaccard"] for r in kept.scores() if r.split == "test"]
    assert [line["test/pw_jaccard"] for line in scores if "test/pw_jaccard" in line] == due
    assert len(sent.lines) == len(epochs) + len(scores)


def test_charts_of_epochs_and_tasks_have_their_axes(tmp_path: Path) -> None:
    with WandbSink("mine", SETTINGS, tmp_path) as sink:
        sink.epoch(EPOCH)
        sink.scores(SCORES)
    sent = Sent(tmp_path)
    assert sent.axes == {f"{n}/*": axis for axis, names in AXES.items() for n in names}
    first, second = sent.lines
    assert (first["epochs"], first["epoch/loss"], first["own/drift"]) == (2, 0.5, 3)
    assert second == {"tasks": 1, "test/pw_jaccard": 0.5, "test-by-task/0": 0.75}
    for line, axis in ((first, "epochs"), (second, "tasks")):
        assert {name.partition("/")[0] for name in line} - {axis} <= set(AXES[axis])


def test_nothing_is_written_before_the_first_measurement(tmp_path: Path) -> None:
    with WandbSink("mine", SETTINGS, tmp_path / "run"):
        pass
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_goes_on_in_its_run(tmp_path: Path) -> None:
    with suppress(KeyboardInterrupt), WandbSink("mine", SETTINGS, tmp_path) as sink:
        sink.epoch(EPOCH)
        raise KeyboardInterrupt
    begun = json.loads((tmp_path / "wandb.json").read_text())["run"]
    time.sleep(1.1)  # its folders are named by the second
    for project in ("mine", "other"):
        with WandbSink(project, SETTINGS, tmp_path) as sink:
            sink.scores(SCORES)
    new = json.loads((tmp_path / "wandb.json").read_text())["run"]
    sent, name = Sent(tmp_path), "er, order 0, seed 100"
    due = [f"mine/{begun}/{name}", f"mine/{begun}/{name}", f"other/{new}/{name}"]
    assert sorted(sent.runs) == due
    assert begun != new
    assert sorted(sent.codes) == [0, 0, 1]


def test_runs_of_one_process_are_kept_apart(tmp_path: Path) -> None:
    with ExitStack() as stack:
        for name in ("one", "other"):
            (tmp_path / name).mkdir()
        sinks = [WandbSink("mine", SETTINGS, tmp_path / name) for name in ("one", "other")]
        for sink in sinks:
            stack.enter_context(sink).epoch(EPOCH)
        sinks[0].scores(SCORES)
    counts = [len(Sent(tmp_path / name).lines) for name in ("one", "other")]
    assert counts == [2, 1]


def test_without_an_account_it_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    wandb.teardown()  # what it has read of the environment
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setenv("HOME", os.environ["WANDB_CONFIG_DIR"])  # with no netrc
    with pytest.raises(
        PolarbearError, match=r"log in with `wandb login`, or .* WANDB_MODE=offline"
    ):
        WandbSink("mine", SETTINGS)


def test_a_service_that_fails_costs_no_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "wandb.json").mkdir()  # no note can be written there
    with WandbSink("mine", SETTINGS, tmp_path) as sink:
        sink.epoch(EPOCH)
        sink.scores(SCORES)
    (warning,) = [line for line in caplog.messages if "Weights & Biases" in line]
    assert "the run goes on without it" in warning
