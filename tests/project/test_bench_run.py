"""bench/run.py with several processes: the same runs, each trained once, their cost shared out."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
LONG = 300.0  # seconds; nothing here takes as long unless it hangs


class Script:
    """The script, on three class orders of a drawn data set, on a CPU."""

    def __init__(self, out: Path, *more: str, **settings: Any) -> None:
        """Start it."""
        asked = json.dumps({"device": "cpu", "tasks": 2} | settings)
        words = ["er:0-2", *more, "--benchmark", "iirc-shapes", "--settings", asked]
        words += ["--out", str(out / "runs"), "--results", str(out)]
        self.process = subprocess.Popen(
            [sys.executable, ROOT / "bench/run.py", *words],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )

    def wait_for(self, there: Callable[[], bool]) -> None:
        """Wait until it has come to something."""
        deadline = time.monotonic() + LONG
        while not there():
            assert self.process.poll() is None, self.process.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def end(self) -> tuple[int, str]:
        """Return its exit code, and what it said when its last process has ended too."""
        said = self.process.communicate(timeout=LONG)[0]
        return self.process.returncode, said


Start = Callable[..., Script]


@pytest.fixture
def start() -> Iterator[Start]:
    """Return what starts the script; it does not outlive the test, nor do its processes."""
    started: list[Script] = []

    def begin(out: Path, *more: str, **settings: Any) -> Script:
        started.append(Script(out, *more, **settings))
        return started[-1]

    yield begin
    for one in started:
        one.process.kill()
        one.process.communicate()


def results(out: Path) -> dict[str, Any]:
    found = (out / "iirc-shapes" / "er").glob("order-*.json")
    return {path.name: json.loads(path.read_text()) for path in found}


def test_two_processes_train_what_one_does(start: Start, tmp_path: Path) -> None:
    ended = {n: start(tmp_path / n, "--processes", n, epochs=1).end() for n in "12"}
    one, two = (results(tmp_path / n) for n in "12")
    assert [code for code, _ in ended.values()] == [0, 0], ended
    assert one.keys() == two.keys() == {f"order-{n}.json" for n in range(3)}, ended
    assert all(one[name]["r"] == two[name]["r"] for name in one)
    assert of_device(one) == 1
    # While two are under way each has half of the device: about two thirds, of three runs.
    assert 0 < of_device(two) < 0.95, ended
    said = ended["2"][1]
    assert said.count("order-") == 3, "a run was trained twice, or not told"
    assert "2 processes: 3 runs" in said


def of_device(runs: dict[str, Any]) -> float:
    """Return the device's seconds of runs, as a part of the runs' own."""
    device = sum(run["cost"]["device_seconds"] for run in runs.values())
    return float(device / sum(run["seconds"] for run in runs.values()))


@pytest.mark.parametrize(
    ("processes", "number"), [("1", signal.SIGTERM), ("2", signal.SIGTERM), ("2", signal.SIGKILL)]
)
def test_a_signal_stops_all_processes_with_a_checkpoint(
    start: Start, tmp_path: Path, processes: str, number: signal.Signals
) -> None:
    folder, under_way = tmp_path / "runs/iirc-shapes/er", int(processes)
    running = start(tmp_path, "--processes", processes, epochs=100_000)
    running.wait_for(lambda: len([*folder.glob("order-*/epochs.jsonl")]) >= under_way)
    running.process.send_signal(number)
    code, said = running.end()
    begun = [*folder.glob("order-*")]
    assert len(begun) == under_way, said
    assert all([*one.glob("checkpoint/*.json")] for one in begun), said
    assert said.count("unfinished None") == under_way, said
    if number == signal.SIGTERM:
        assert said.count("unfinished: not begun") == 3 - under_way, said
        assert code == 0


@pytest.mark.parametrize(
    ("change", "word"), [({"learning_rate": -1}, "learning_rate"), ({"options": {"x": 1}}, "'x'")]
)
def test_a_bad_setting_is_refused_before_anything_is_trained(
    start: Start, tmp_path: Path, change: dict[str, Any], word: str
) -> None:
    variants = tmp_path / "variants.json"
    variants.write_text(json.dumps({"bad": {"method": "er"} | change}))
    code, said = start(tmp_path, "bad:1", "--variants", str(variants), "--processes", "2").end()
    assert code == 2
    refusal = said.splitlines()[-1]
    assert "bad:1@iirc-shapes: " in refusal
    assert word in refusal
    assert not (tmp_path / "runs").exists()


def test_no_processes_are_refused(start: Start, tmp_path: Path) -> None:
    code, said = start(tmp_path, "--processes", "0").end()
    assert code == 2
    assert said.endswith("argument --processes: it must be 1 or more, not 0\n")


@pytest.mark.parametrize("processes", ["1", "2"])
def test_the_exit_code_tells_of_a_run_that_failed(
    start: Start, tmp_path: Path, processes: str
) -> None:
    damaged = tmp_path / "runs/iirc-shapes/er/order-1"
    damaged.mkdir(parents=True)
    (damaged / "manifest.json").write_text("{")
    code, said = start(tmp_path, "--processes", processes, epochs=1, tasks=1).end()
    assert code == 1, said
    assert results(tmp_path).keys() == {"order-0.json", "order-2.json"}, said
