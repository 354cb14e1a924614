"""bench/run.py with several processes: the same runs, each trained once, their cost shared out."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def start(out: Path, *more: str, **settings: Any) -> "subprocess.Popen[str]":
    """Start the script on three class orders of a drawn data set, on a CPU."""
    asked = json.dumps({"device": "cpu", "tasks": 2} | settings)
    words = [*("er:0-2", "--benchmark", "iirc-shapes", "--settings", asked), *more]
    return subprocess.Popen(
        [sys.executable, ROOT / "bench/run.py", *words, "--out", out / "runs", "--results", out],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def results(out: Path) -> dict[str, Any]:
    found = (out / "iirc-shapes" / "er").glob("order-*.json")
    return {path.name: json.loads(path.read_text()) for path in found}


def test_two_processes_train_what_one_does(tmp_path: Path) -> None:
    began = time.monotonic()
    said = {
        count: start(tmp_path / count, "--processes", count, epochs=2).communicate()[0]
        for count in "12"
    }
    took = time.monotonic() - began
    one, two = (results(tmp_path / count) for count in "12")
    assert one.keys() == two.keys() == {f"order-{n}.json" for n in range(3)}, said
    assert all(one[name]["r"] == two[name]["r"] for name in one)
    # Of one device: what both processes count is no more than the time that has passed.
    assert 0 < sum(run["cost"]["device_seconds"] for run in two.values()) < took
    assert said["2"].count("order-") == 3, "a run was trained twice, or not told"
    assert "2 processes: 3 runs" in said["2"]


@pytest.mark.parametrize("processes", ["1", "2"])
def test_a_signal_stops_all_processes_with_a_checkpoint(tmp_path: Path, processes: str) -> None:
    running = start(tmp_path, "--processes", processes, epochs=100_000)
    folder = tmp_path / "runs/iirc-shapes/er"
    while len([*folder.glob("order-*/epochs.jsonl")]) < int(processes):
        assert running.poll() is None, running.communicate()[0]
        time.sleep(0.1)
    running.send_signal(signal.SIGTERM)
    said = running.communicate(timeout=120)[0]
    begun = [*folder.glob("order-*")]
    assert len(begun) == int(processes), said
    assert all([*one.glob("checkpoint/*.json")] for one in begun), said
    assert said.count("unfinished") == 3, said
