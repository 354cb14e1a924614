"""What a run takes: its seconds, and its part of them where others share the device."""

import json
import time
from pathlib import Path

import pytest

from engine_run import interrupt_at, shapes_stream, tiny
from polarbear.launch import clock
from polarbear.launch.clock import Clock, Taken
from polarbear.launch.fleet import Job, run_fleet
from polarbear.launch.prepare import begin
from polarbear.launch.runner import resume, run
from polarbear.runs.folder import RunFolder
from polarbear.runs.result_file import summarise

pytestmark = pytest.mark.usefixtures("one_thread")


class Hours:
    """A clock of which the test is the hand."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


def test_time_is_shared_by_those_who_are_there_when_it_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(clock, "time", hours := Hours())
    share = 1.0
    counted = Clock(Taken(100.0, 10.0), lambda: share, devices=2)
    hours.now = 4.0
    assert counted.tick() == Taken(104.0, 10.0 + 2 * 4.0)
    hours.now, share = 14.0, 0.5
    assert counted.tick() == counted.taken == Taken(114.0, 18.0 + 2 * 10.0 / 2)


def test_what_was_not_counted_before_is_not_made_up() -> None:
    counted = Clock(Taken.from_facts({"seconds": 7}))
    assert counted.tick().seconds >= 7
    assert counted.taken.device_seconds is None


def test_runs_side_by_side_divide_the_time_between_them(tmp_path: Path) -> None:
    def job(name: str) -> Job:
        settings = tiny("er", order=0)
        return Job(
            name,
            lambda shared: begin(settings, tmp_path / name, stream=shapes_stream(), shared=shared),
        )

    began = time.monotonic()
    outcomes = run_fleet([job("one"), job("other")], at_once=2)
    took = time.monotonic() - began
    assert all(one.finished for one in outcomes.values())
    facts = [RunFolder(tmp_path / name).facts() for name in outcomes]
    seconds, own = (sum(one[name] for one in facts) for name in ("seconds", "device_seconds"))
    assert own < min(took, seconds)


def test_a_resumed_run_counts_on_and_its_summary_has_the_part(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(KeyboardInterrupt):
        run(
            *(tiny("er"), folder.path),
            **{"stream": shapes_stream(), "on_step": interrupt_at(9), "save_every": 0},
        )
    newest = max((folder.path / "checkpoint").glob("*.json"))
    before = json.loads(newest.read_text(encoding="utf-8"))["facts"]["device_seconds"]
    assert resume(folder.path, stream=shapes_stream())
    facts = folder.facts()
    assert facts["device_seconds"] == pytest.approx(facts["seconds"])
    assert 0 < before < facts["device_seconds"] == summarise(folder)["cost"]["device_seconds"]
