"""A run folder written by a loop of one's own has what the engine's has."""

import json
import os
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from engine_run import shapes_stream, tiny
from polarbear import Evaluator, Stream
from polarbear.base.errors import PolarbearError, PredictionError
from polarbear.launch.runner import run
from polarbear.report.read.runs import read_runs
from polarbear.runs.folder import RunFolder
from polarbear.runs.guards import RunError
from polarbear.runs.own_loop import start_run, write_scores
from polarbear.runs.result import usual_folder
from polarbear.runs.result_file import summarise
from polarbear.settings.settings import Settings


@pytest.fixture(scope="module")
def engine_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Two tasks of a run of the engine's, whose predictions the loops below repeat."""
    folder = tmp_path_factory.mktemp("engine") / "run"
    run(tiny("finetune", tasks=2, epochs=1), folder, stream=shapes_stream())
    return RunFolder(folder)


def own_loop(path: Path, theirs: RunFolder, stream: Stream, **more: object) -> RunFolder:
    folder = start_run(path, stream, method="my-loop", seed=7, tasks=2, **more)
    evaluator = Evaluator(stream)
    for task in stream[:2]:
        predicted = theirs.predictions(task.index)
        evaluator.add(after=task.index, predictions=predicted)
        write_scores(folder, evaluator, after=task.index, predictions=predicted)
    return folder


def lines_of(folder: RunFolder) -> list[dict[str, object]]:
    return [line for line in folder.lines("scores") if line["split"] == "test"]


def test_the_same_predictions_give_the_same_lines(engine_run: RunFolder, tmp_path: Path) -> None:
    ours = own_loop(tmp_path / "own", engine_run, shapes_stream())
    assert lines_of(ours) == lines_of(engine_run)
    assert len(lines_of(ours)) == 2
    for after in range(2):
        assert np.array_equal(ours.predictions(after), engine_run.predictions(after))


def test_the_manifest_has_every_key_of_the_engines(engine_run: RunFolder, tmp_path: Path) -> None:
    ours, theirs = own_loop(tmp_path / "own", engine_run, shapes_stream()), engine_run
    made_for_networks = {"images"}
    assert ours.manifest().keys() - {"made_by"} == theirs.manifest().keys() - made_for_networks
    assert (ours.own_loop, theirs.own_loop) == (True, False)
    assert ours.manifest()["environment"].keys() >= theirs.manifest()["environment"].keys()
    for key in ("classes", "data"):
        assert ours.manifest()[key] == theirs.manifest()[key]
    finished = [json.loads((run.path / "finished.json").read_text()) for run in (ours, theirs)]
    # What a loop of one's own trains on and keeps, and who shares its device, it alone knows.
    assert finished[0].keys() == finished[1].keys() - {"passes", "kept", "device_seconds"}
    assert finished[0]["seconds"] >= 0


def test_what_a_run_was_asked_is_kept(engine_run: RunFolder, tmp_path: Path) -> None:
    ours = own_loop(tmp_path / "own", engine_run, shapes_stream(), device="tpu", epochs=3)
    manifest = ours.manifest()
    assert manifest["settings"]["options"] == {"epochs": 3}
    assert (manifest["settings"]["method"], manifest["settings"]["seed"]) == ("my-loop", 7)
    assert manifest["environment"]["device"] == "tpu"


def test_paths_among_the_options_are_kept_as_text(tmp_path: Path) -> None:
    options = {"data": Path("x"), "files": [Path("y"), "z"], "rate": np.float32(0.5)}
    folder = start_run(tmp_path / "own", shapes_stream(), method="x", **options)
    kept = {"data": "x", "files": ["y", "z"], "rate": 0.5}
    assert folder.manifest()["settings"]["options"] == kept


@pytest.mark.parametrize("value", [object(), [{1, 2}], {"a": b"bytes"}])
def test_an_option_that_cannot_be_kept_is_named(tmp_path: Path, value: object) -> None:
    with pytest.raises(PolarbearError, match=r"option network=.* cannot be kept: give numbers"):
        start_run(tmp_path / "own", shapes_stream(), method="x", epochs=3, network=value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("name", "value"), [("order", 3), ("benchmark", "iirc-cifar")])
def test_what_the_stream_says_is_no_option(tmp_path: Path, name: str, value: object) -> None:
    with pytest.raises(PolarbearError, match=f"leave {name}={value!r} out: the stream says"):
        start_run(tmp_path / "own", shapes_stream(), method="x", **{name: value})
    assert not list(tmp_path.iterdir())


def test_report_and_summary_read_it(engine_run: RunFolder, tmp_path: Path) -> None:
    ours = own_loop(tmp_path / "own", engine_run, shapes_stream())
    groups = read_runs(tmp_path).groups
    assert [group.method for group in groups] == ["my-loop"]
    summary = summarise(ours, command="python my_loop.py")
    assert summary["r"][:2] == ours.table().r[:2].tolist()


def test_a_registered_benchmark_goes_by_its_name(tmp_path: Path) -> None:
    from polarbear import load

    named = start_run(tmp_path / "a", load("iirc-shapes", order=2), method="x")
    own = start_run(tmp_path / "b", shapes_stream(), method="x")
    second = start_run(tmp_path / "c", load("iirc-shapes-v2"), method="x")
    assert usual_folder(Settings("x", "iirc-shapes-v2")).parts[1] == "iirc-shapes-v2"
    assert usual_folder(Settings("x", "iirc-shapes-v1")).parts[1] == "iirc-shapes"
    assert second.manifest()["settings"]["benchmark"] == "iirc-shapes-v2"
    assert named.manifest()["settings"]["benchmark"] == "iirc-shapes"
    assert named.manifest()["settings"]["order"] == 2
    assert own.manifest()["settings"]["benchmark"] == "custom"


def test_it_is_finished_with_the_last_task_in_any_order(
    engine_run: RunFolder, tmp_path: Path
) -> None:
    stream = shapes_stream()
    folder = start_run(tmp_path / "own", stream, method="x", tasks=2)
    tests, valid = Evaluator(stream), Evaluator(stream, "post_valid")
    for after in (1, 0):
        valid.add(after, valid.view(after).targets)
        write_scores(folder, valid, after, valid.view(after).targets)
        assert not folder.finished
        tests.add(after, engine_run.predictions(after))
        write_scores(folder, tests, after)
    assert folder.finished
    assert folder.table("post_valid").r[:2].tolist() == [1, 1]
    assert folder.predictions(0) is None


def test_what_is_not_scored_cannot_be_written(tmp_path: Path) -> None:
    stream = shapes_stream()
    folder, evaluator = start_run(tmp_path / "own", stream, method="x"), Evaluator(stream)
    for after in (0, 7, -1):
        with pytest.raises(PredictionError, match=f"no scores after task {after}: call evaluator"):
            write_scores(folder, evaluator, after)
    predicted = stream.test(after=0).targets
    evaluator.add(after=0, predictions=predicted)
    with pytest.raises(PredictionError, match=r"to keep must be \(80, 6\).*what came is \(80, 5\)"):
        write_scores(folder, evaluator, 0, predicted[:, :5])
    assert list(folder.lines("scores")) == []
    write_scores(folder, evaluator, 0, predicted)
    with pytest.raises(RunError, match="has its test scores after task 0 already"):
        write_scores(folder, evaluator, 0, predicted)


def test_a_run_is_not_overwritten(tmp_path: Path) -> None:
    start_run(tmp_path / "own", shapes_stream(), method="x")
    with pytest.raises(RunError, match="holds a run already"):
        start_run(tmp_path / "own", shapes_stream(), method="x")


def test_versions_of_imported_frameworks_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jax = ModuleType("jax")
    jax.__version__ = "9.9"
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.delitem(sys.modules, "tensorflow", raising=False)
    about = start_run(tmp_path / "own", shapes_stream(), method="x").manifest()["environment"]
    assert about["jax"] == "9.9"
    assert "tensorflow" not in about


def test_what_was_trained_elsewhere_has_no_cost_here(engine_run: RunFolder, tmp_path: Path) -> None:
    """Predictions of another machine are scored in seconds, which are not what they have cost."""
    ours = own_loop(tmp_path / "own", engine_run, shapes_stream(), device=None)
    assert ours.finished
    summary = json.loads(json.dumps(summarise(ours), allow_nan=False))
    assert (summary["seconds"], summary["hardware"]) == (None, None)
    there = own_loop(tmp_path / "there", engine_run, shapes_stream(), device="NVIDIA H200")
    assert summarise(there)["hardware"] == "NVIDIA H200"
    (group,) = read_runs(tmp_path / "own").groups
    assert np.isnan(group.cost("seconds"))


def test_a_summary_names_no_command_that_would_not_repeat_a_loop(
    engine_run: RunFolder, tmp_path: Path
) -> None:
    ours = own_loop(tmp_path / "own", engine_run, shapes_stream())
    assert summarise(ours)["command"] == ""
    assert summarise(ours, command="python my_loop.py")["command"] == "python my_loop.py"
    assert summarise(engine_run)["command"].startswith("polarbear run finetune ")


def test_a_loop_that_was_killed_within_a_line_goes_on(tmp_path: Path) -> None:
    stream = shapes_stream()
    folder, evaluator = start_run(tmp_path / "own", stream, method="x", tasks=2), Evaluator(stream)
    for after in range(2):
        predicted = stream.test(after=after).targets
        evaluator.add(after, predicted)
        write_scores(folder, evaluator, after, predicted)
    whole = (folder.path / "scores.jsonl").read_bytes()
    (folder.path / "finished.json").unlink()
    for cut in (1, 9, 300):
        os.truncate(folder.path / "scores.jsonl", len(whole) - cut)
        write_scores(RunFolder.open(folder.path), evaluator, 1, predicted)
        assert (folder.path / "scores.jsonl").read_bytes() == whole
        assert folder.finished
        (folder.path / "finished.json").unlink()


def test_a_loop_that_was_killed_before_its_last_word_gets_it(tmp_path: Path) -> None:
    stream = shapes_stream()
    folder, evaluator = start_run(tmp_path / "own", stream, method="x", tasks=1), Evaluator(stream)
    predicted = stream.test(after=0).targets
    evaluator.add(0, predicted)
    write_scores(folder, evaluator, 0, predicted)
    (folder.path / "finished.json").unlink()
    with pytest.raises(RunError, match="has its test scores after task 0 already"):
        write_scores(folder, evaluator, 0, predicted)
    assert folder.finished


def test_predictions_are_there_before_the_line_that_speaks_of_them(tmp_path: Path) -> None:
    stream = shapes_stream()
    folder, evaluator = start_run(tmp_path / "own", stream, method="x", tasks=1), Evaluator(stream)
    predicted = stream.test(after=0).targets
    evaluator.add(0, predicted)
    (folder.path / "predictions").write_text("in the way")
    with pytest.raises(RunError, match="no more can be written"):
        write_scores(folder, evaluator, 0, predicted)
    assert not list(folder.lines("scores"))
