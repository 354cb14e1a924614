"""Runs over several GPUs: real processes, which are told of GPUs that are not there."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from polarbear.cli.shared.spread import places
from polarbear.runs.folder import RunFolder
from polarbear.runs.process import last_process

SHAPES = ("--benchmark", "iirc-shapes", "--first-task-factor", "1", "--threads", "1")

#: The program where two GPUs are believed in; networks tell which one their process sees.
PROGRAM = """
import os, sys
from pathlib import Path

def network():
    from engine_run import TinyNetwork

    with Path("seen.txt").open("a") as file:
        print(os.getpid(), os.environ["CUDA_VISIBLE_DEVICES"], file=file)
    return TinyNetwork()

if __name__ == "__main__":
    from polarbear.cli import main
    from polarbear.cli.shared import several_runs

    several_runs.on_gpu = lambda settings: True
    several_runs.places = lambda: [{"CUDA_VISIBLE_DEVICES": name} for name in ("4", "7")]
    sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setenv("COLUMNS", "300")
    tests = str(Path(__file__).parents[1])
    paths = [tests, str(tmp_path), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    Path("two_gpus.py").write_text(PROGRAM)


def program(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "two_gpus.py", "run", "finetune", *SHAPES, *words]
    command += ["--network", "two_gpus:network", "--out", "all"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(number: int) -> RunFolder:
    return RunFolder(Path(f"all/order-{number}-seed-100"))


def wait_for_two(process: subprocess.Popen[str]) -> list[int]:
    """Return which runs are under way, once both processes have one."""
    while process.poll() is None:
        going = [n for n in range(4) if (run(n).path / "epochs.jsonl").exists()]
        if len(going) == 2:
            return going
        time.sleep(0.01)
    raise AssertionError(process.communicate())


def wait_for_state(runs: list[int], state: str) -> None:
    for _ in range(3000):
        if all(run(n).state() == state for n in runs):
            return
        time.sleep(0.02)
    raise AssertionError([run(n).state() for n in runs])


def test_each_process_sees_a_gpu_of_its_own_and_takes_runs_in_turn(tmp_path: Path) -> None:
    with program("--epochs", "1", "--tasks", "1", "--orders", "0-3") as process:
        out, told = process.communicate(timeout=300)
    assert process.returncode == 0, told
    assert all(run(n).finished for n in range(4))
    seen = [line.split() for line in Path("seen.txt").read_text().splitlines()]
    of_process = {pid: {name for other, name in seen if other == pid} for pid, _ in seen}
    assert sorted(map(sorted, of_process.values())) == [["4"], ["7"]]
    assert str(process.pid) not in of_process
    assert out.count("finished") == 4
    assert "(95 %, n = 4; " in out
    assert "finetune order 3: after task 0" in told


def test_a_wish_to_stop_is_passed_on_and_a_killed_parent_is_missed() -> None:
    words = ("--epochs", "1000", "--orders", "0-3")
    with program(*words) as process:
        going = wait_for_two(process)
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=120)
    assert process.returncode == 130
    assert told.count("goes on") == 2
    assert [run(n).state() for n in going] == ["stopped", "stopped"]
    assert all(list((run(n).path / "checkpoint").iterdir()) for n in going)
    with program(*words) as process:
        wait_for_state(going, "running")
        process.kill()
        wait_for_state(going, "stopped")


def test_a_killed_process_fails_its_run_and_the_other_goes_on() -> None:
    with program("--epochs", "30", "--tasks", "1", "--orders", "0-2") as process:
        lost = wait_for_two(process)[0]
        killed = last_process(run(lost).path)
        assert killed is not None
        os.kill(killed.pid, signal.SIGKILL)
        out, told = process.communicate(timeout=300)
    assert process.returncode == 2
    assert f"polarbear: 1 of 3 runs failed: order {lost}" in told
    assert "ended early, with code [-9]" in " ".join(out.split())
    assert [run(n).finished for n in range(3)].count(True) == 2
    assert run(lost).state() == "dead"
    assert json.loads((run(lost).path / "process.json").read_text())["pid"] == killed.pid


def test_named_gpus_keep_their_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    assert places() == [{"CUDA_VISIBLE_DEVICES": "0"}, {"CUDA_VISIBLE_DEVICES": "1"}]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-ab12")
    assert [one["CUDA_VISIBLE_DEVICES"] for one in places()] == ["3", "GPU-ab12"]
