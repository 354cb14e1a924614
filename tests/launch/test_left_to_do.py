"""Begin, go on or skip: the folder says which."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from engine_run import TinyNetwork, interrupt_at, outcome, shapes_stream, tiny
from polarbear import RunError, RunFolder, learn
from polarbear.engine.contract.method import Method
from polarbear.launch.fleet import Job, run_fleet
from polarbear.launch.left_to_do import prepare_rest, standing
from polarbear.launch.prepare import begin
from polarbear.launch.runner import resume, run, train
from polarbear.methods.er import ER
from polarbear.runs.guards import InUseError

pytestmark = pytest.mark.usefixtures("one_thread")

ASKED = tiny("er", tasks=2)


BEFORE: dict[str, Callable[[], object]] = {}


def begins_first() -> TinyNetwork:
    """Return a network that takes so long to make that another process has begun its run."""
    BEFORE.pop("begin", lambda: None)()
    return TinyNetwork()


@dataclass(frozen=True)
class TwoThresholds(Method.Options):
    first_threshold: float = 0.55
    threshold: float = 0.5


@dataclass(frozen=True)
class OneThreshold(Method.Options):
    threshold: float = 0.8


class Thresholded(ER):
    Options = TwoThresholds


def written(folder: Path) -> dict[str, int]:
    return {str(file): file.stat().st_mtime_ns for file in folder.rglob("*") if file.is_file()}


def test_the_same_call_begins_goes_on_and_skips(tmp_path: Path) -> None:
    folder, stop, steps = tmp_path / "run", threading.Event(), 0

    def after_seven(*_: object) -> None:
        nonlocal steps
        steps += 1
        if steps == 7:
            stop.set()

    more = {"stream": shapes_stream(), "progress": False}
    first = learn.train(ASKED, folder, stop=stop, on_step=after_seven, **more)
    assert (first.finished, steps) == (False, 7)
    assert standing(ASKED, folder) == "begun"
    second = learn.train(ASKED, folder, stop=threading.Event(), **more)
    assert second.finished
    assert run(ASKED, tmp_path / "unbroken", stream=shapes_stream())
    assert outcome(folder) == outcome(tmp_path / "unbroken")
    before = written(folder)
    assert learn.train(ASKED, folder, on_step=after_seven, **more).finished
    assert (steps, written(folder)) == (7, before)


def test_a_wish_to_stop_from_elsewhere_leaves_signals_alone(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    assert train(ASKED, tmp_path / "run", stop=stop, stream=shapes_stream()) is False
    assert list((tmp_path / "run" / "checkpoint").iterdir())


def test_a_run_of_other_settings_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run(ASKED, folder, stream=shapes_stream(), on_step=interrupt_at(3), save_every=0.0)
    before = written(folder)
    others = replace(ASKED, seed=8, epochs=3)
    with pytest.raises(RunError, match=r"holds a run already, of other settings \(seed, epochs\)"):
        train(others, folder, stream=shapes_stream())
    assert written(folder) == before


def test_a_run_from_before_compiling_was_chosen_goes_on_as_it_began(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, old = tmp_path / "run", replace(ASKED, compile=False)
    with pytest.raises(KeyboardInterrupt):
        run(old, folder, stream=shapes_stream(), on_step=interrupt_at(3), save_every=0.0)
    assert standing(ASKED, folder) == "begun"
    assert train(ASKED, folder, stream=shapes_stream())
    assert RunFolder(folder).manifest()["settings"]["compile"] is False
    assert standing(ASKED, folder) == "finished"
    assert "began with" not in caplog.text


def test_whoever_goes_on_chooses_how_fast(tmp_path: Path) -> None:
    folder, stream = tmp_path / "run", shapes_stream()
    with pytest.raises(KeyboardInterrupt):
        run(ASKED, folder, stream=stream, on_step=interrupt_at(3), save_every=0.0)
    before = RunFolder(folder).manifest()
    other = replace(ASKED, compile=False, images="streamed", graph=False)
    assert standing(other, folder) == "begun"
    prepared = prepare_rest(other, folder, stream=stream)
    assert prepared is not None
    now = prepared.learner.settings
    assert (now.compile, now.images, now.graph) == (False, "streamed", False)
    assert train(other, folder, stream=stream)
    assert standing(other, folder) == "finished"
    assert RunFolder(folder).manifest() == before
    with pytest.raises(RunError, match=r"of other settings \(precision\)"):
        standing(replace(other, precision="bf16"), folder)


def test_a_run_with_options_that_its_method_has_no_more_is_refused_by_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, stream = tmp_path / "run", shapes_stream()
    asked = replace(ASKED, method="test_left_to_do:Thresholded", options={"first_threshold": 0.5})
    with pytest.raises(KeyboardInterrupt):
        run(asked, folder, stream=stream, on_step=interrupt_at(20), save_every=0.0)
    monkeypatch.setattr(Thresholded, "Options", OneThreshold)
    told = r"run was run with other options than its method has now \(.*'first_threshold'.*\): take"
    with pytest.raises(RunError, match=told):
        resume(folder, stream=stream)
    with pytest.raises(RunError, match=told):
        learn.load_model(folder)
    with pytest.raises(RunError, match=r"of other settings \(options\)"):
        standing(replace(asked, options={}), folder)


def test_what_began_and_learnt_nothing_is_begun_anew(tmp_path: Path) -> None:
    with begin(ASKED, tmp_path / "run", stream=shapes_stream()).folder.held():
        pass
    assert standing(ASKED, tmp_path / "run") == "new"
    assert train(replace(ASKED, tasks=1), tmp_path / "run", stream=shapes_stream())


def test_a_run_that_another_process_begins_meanwhile_is_left_to_it(tmp_path: Path) -> None:
    folder, asked = tmp_path / "run", replace(ASKED, network="test_left_to_do:begins_first")
    BEFORE["begin"] = lambda: begin(asked, folder, stream=shapes_stream())
    with pytest.raises(InUseError, match="was begun by another process meanwhile"):
        train(asked, folder, stream=shapes_stream())
    assert standing(asked, folder) == "begun"


def test_a_fleet_skips_what_is_finished(tmp_path: Path) -> None:
    def job(name: str) -> Job:
        def prepare(shared):
            return prepare_rest(ASKED, tmp_path / name, stream=shapes_stream(), shared=shared)

        return Job(name, prepare)

    assert train(ASKED, tmp_path / "a", stream=shapes_stream())
    before = written(tmp_path / "a")
    outcomes = run_fleet([job("a"), job("b")])
    assert [one.finished for one in outcomes.values()] == [True, True]
    assert written(tmp_path / "a") == before
    assert RunFolder(tmp_path / "b").finished


def test_a_fleet_stops_at_a_wish_from_elsewhere(tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    jobs = [Job("a", lambda shared: prepare_rest(ASKED, tmp_path / "a", stream=shapes_stream()))]
    outcomes = run_fleet(jobs, stop=stop)
    assert (outcomes["a"].finished, outcomes["a"].error) == (False, None)
    assert not (tmp_path / "a").exists()
