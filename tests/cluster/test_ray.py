"""Runs on a real Ray cluster of two nodes: what is lost goes on elsewhere, byte for byte.

The nodes are processes of this machine and tell of GPUs that are not there. `make test-cluster` has
Ray; elsewhere these tests skip.
"""

import os
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from polarbear.runs.folder import RunFolder
from polarbear.runs.process import last_process

pytest.importorskip("ray", reason="Ray is not installed here: `make test-cluster` has it")

TESTS = Path(__file__).parents[1]
RUN = (sys.executable, "-m", "polarbear", "run")
SHAPES = ("--benchmark", "iirc-shapes", "--first-task-factor", "1", "--tasks", "2")
#: Slow enough to be found under way, with a checkpoint to go on from.
LASTING = (*SHAPES, "--epochs", "12", "--device", "cpu", "--save-every", "0.2")


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    paths = [str(TESTS), *filter(None, sys.path)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Start a cluster of two nodes, each with a CPU and a GPU that nobody has seen."""
    os.environ["RAY_AUTH_MODE"] = "disabled"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.cluster_utils import Cluster

        node = {"num_cpus": 1, "num_gpus": 1}
        made = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
        made.second = made.add_node(**node)
        yield made
        made.shutdown()


def start(cluster: Any, *words: str) -> subprocess.Popen[str]:
    command = [*RUN, *words, "--on", "ray", "--ray-address", cluster.address, "--out", "all"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(order: int) -> RunFolder:
    return RunFolder(Path(f"all/order-{order}-seed-100"))


def under_way(process: subprocess.Popen[str]) -> list[int]:
    """Wait until two runs have begun and have a checkpoint; returns which."""
    for _ in range(6000):
        if process.poll() is not None:
            break
        going = [n for n in range(3) if list(run(n).path.glob("checkpoint/*"))]
        if len(going) >= 2:
            return going
        time.sleep(0.02)
    process.kill()
    raise AssertionError(process.communicate())


def pid_of(order: int) -> int:
    last = last_process(run(order).path)
    assert last is not None
    return last.pid


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the same runs, by a process that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    command = [*RUN, "er", *LASTING, "--orders", "0-2", "--out", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def assert_as_unbroken(whole: Path) -> None:
    for order in range(3):
        for name in ("scores.jsonl", "predictions/after_1.npz"):
            there = whole / f"order-{order}-seed-100" / name
            assert (run(order).path / name).read_bytes() == there.read_bytes()


def lose_a_worker(cluster: Any, going: list[int]) -> None:
    os.kill(pid_of(going[0]), signal.SIGKILL)


def ask_a_worker_to_go(cluster: Any, going: list[int]) -> None:
    os.kill(pid_of(going[0]), signal.SIGTERM)  # as a machine does that is shut down


def lose_a_node(cluster: Any, going: list[int]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cluster.remove_node(cluster.second, allow_graceful=False)


@pytest.mark.parametrize("lose", [lose_a_worker, ask_a_worker_to_go, lose_a_node])
def test_what_is_lost_goes_on_and_ends_as_unbroken(
    lose: Callable[[Any, list[int]], None], cluster: Any, whole: Path
) -> None:
    with start(cluster, "er", *LASTING, "--orders", "0-2") as process:
        going = under_way(process)
        lose(cluster, going)
        out, told = process.communicate(timeout=300)
    assert process.returncode == 0, told
    assert out.count("finished") == 3
    assert "(95 %, n = 3; " in out
    assert "(er order 0 pid=" in told
    assert "retries remaining" in out + told  # as Ray says
    assert_as_unbroken(whole)
    if lose is lose_a_node:
        cluster.second = cluster.add_node(num_cpus=1, num_gpus=1)


def test_a_wish_to_stop_leaves_checkpoints_and_the_same_command_goes_on(
    cluster: Any, whole: Path
) -> None:
    words = ("er", *LASTING, "--orders", "0-2", "--gpus", "0.5")
    with start(cluster, *words) as process:
        going = under_way(process)
        process.send_signal(signal.SIGTERM)
        out, told = process.communicate(timeout=120)
    assert process.returncode == 130, told
    assert out.count("stopped") == 3
    assert told.count("goes on") == len(going) == 2
    states = [run(order).state() for order in going]
    assert states == ["stopped", "stopped"]
    with start(cluster, *words) as process:
        _, told = process.communicate(timeout=300)
    assert process.returncode == 0, told
    assert_as_unbroken(whole)


def test_a_gpu_that_is_not_there_is_no_reason_to_train_on_a_cpu(cluster: Any) -> None:
    with start(cluster, "finetune", *SHAPES, "--epochs", "1", "--orders", "0-1") as process:
        out, told = process.communicate(timeout=120)
    assert process.returncode == 75, told
    assert "PyTorch sees none there: it is not trained on a CPU instead" in " ".join(out.split())
    assert not list(Path("all").rglob("manifest.json"))


def test_a_run_that_fails_leaves_the_others_alone(cluster: Any) -> None:
    Path("mine.py").write_text(
        "from polarbear.methods.er import ER\n"
        "class Fails(ER):\n"
        "    def loss(self, batch):\n"
        "        raise OSError(28, 'No space left on device')\n"
    )
    words = ("--methods", "finetune,mine:Fails", *SHAPES, "--epochs", "1", "--device", "cpu")
    with start(cluster, *words, "--at-once", "1") as process:
        out, told = process.communicate(timeout=120)
    assert process.returncode == 75, told  # a full disk may be emptied
    assert "1 of 2 runs failed" in told
    assert "No space left on device" in out
    assert out.count("finished") == 1


def test_a_cluster_that_is_gone_may_come_back() -> None:
    command = [*RUN, "er", *SHAPES, "--on", "ray", "--ray-address", "127.0.0.1:9"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 75
    assert "nobody answers at 127.0.0.1:9" in done.stderr


def test_what_ray_ends_for_want_of_memory_is_not_begun_anew_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_memory_usage_threshold", "0.01")  # any machine is above that
    monkeypatch.setenv("RAY_memory_monitor_refresh_ms", "200")
    once = "on_ray.RAY_TRIES.update(RAY_task_oom_retries='1')"  # Ray waits longer after each
    program = f"from polarbear.cli import main; from polarbear.cli.shared import on_ray; {once}"
    command = [sys.executable, "-c", f"{program}; raise SystemExit(main())", "run", "er", *LASTING]
    command += ["--on", "ray", "--ray-address", "local", "--out", "all"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 75, done.stderr
    assert "Ray lost it" in done.stdout
