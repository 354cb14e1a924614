"""``--on slurm`` in a real SLURM: whatever happens to jobs, scores are those of unbroken runs."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.slurm import PATIENCE, Slurm, started, wait_until, why_not
from polarbear.runs.folder import RunFolder
from polarbear.runs.process import last_process

#: A method that takes its time, which changes no score.
SLOW = """
import os, time
from polarbear.learn import Method, bce

class Slow(Method):
    replay = "mixed"

    def loss(self, batch):
        time.sleep(float(os.environ.get("SLOW", "0")))
        return bce(self.model(batch.images), batch.targets)
"""
ASKED = ("run", "slow:Slow", "--benchmark", "iirc-shapes", "--device", "cpu", "--threads", "1")
ASKED = (*ASKED, "--epochs", "1", "--first-task-factor", "1", "--tasks", "2", "--save-every", "1")
ON_SLURM = ("--on", "slurm", "--gpus", "1")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Slurm]:
    if "POLARBEAR_CLUSTER" not in os.environ:
        pytest.skip("takes minutes: make test-cluster runs it")
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    with started(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _here(slurm: Slurm, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("COLUMNS", "200")
    Path("slow.py").write_text(SLOW)
    yield
    slurm.clear()


def polarbear(*words: str, **environment: str) -> str:
    """Run the program; returns all it says."""
    done = subprocess.run(
        [sys.executable, "-m", "polarbear", *words],
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def orders(numbers: str, out: str = "all") -> tuple[str, ...]:
    return ("--orders", numbers, "--out", out)


def run(order: int, out: str = "all") -> RunFolder:
    return RunFolder(Path(out, f"order-{order}-seed-100"))


def states(*numbers: int) -> list[str]:
    """Return the states of runs, some of which may not be there yet."""
    there = [run(n) for n in numbers]
    return [one.state() if (one.path / "manifest.json").exists() else "waiting" for one in there]


def wait_for_training(*numbers: int) -> None:
    wait_until(lambda: all((run(n).path / "epochs.jsonl").exists() for n in numbers))


def wait_for_the_end(*numbers: int) -> None:
    try:
        wait_until(lambda: all((run(n).path / "finished.json").exists() for n in numbers))
    except AssertionError:
        raise AssertionError(states(*numbers), logs()) from None


def logs() -> str:
    return "\n".join(file.read_text() for file in sorted(Path("all/slurm").rglob("*.log")))


def script() -> Path:
    """Return the only script beside the runs."""
    (found,) = Path("all/slurm").rglob("array.sh")
    return found


def job() -> str:
    return f"polarbear-{script().parent.name}"


def assert_as_if_unbroken(*numbers: int) -> None:
    polarbear(*ASKED, *orders(",".join(map(str, numbers)), "unbroken"), SLOW="0")
    for number in numbers:
        for name in ("scores.jsonl", "predictions/after_1.npz"):
            there, alone = run(number).path / name, run(number, "unbroken").path / name
            assert there.read_bytes() == alone.read_bytes(), (number, name)


def test_packs_of_four_do_what_is_left_of_a_sweep(slurm: Slurm) -> None:
    polarbear(*ASKED, *orders("0"))
    asked = (*ASKED, *orders("0-4"), *ON_SLURM, "--pack", "4", "--sbatch", "mem=500M")
    said = polarbear(*asked)
    assert "order-0-seed-100 is finished: skipped" in said
    assert "has 4 runs in 1 task" in said
    assert "Nothing is left to submit." in polarbear(*asked)  # they are in a job
    wait_for_the_end(*range(5))
    (log,) = Path("all/slurm").rglob("*.log")
    assert all(f"in all/order-{number}-seed-100" in log.read_text() for number in range(1, 5))
    assert "Nothing is left to submit." in polarbear(*asked)  # they are finished
    lines = json.loads(polarbear("runs", "all", "--json"))
    assert [line["log"] for line in lines] == [None, *[str(log)] * 4]
    assert_as_if_unbroken(*range(5))


def test_what_sbatch_refuses_is_in_no_job() -> None:
    words = [*ASKED, *orders("0"), *ON_SLURM, "--sbatch"]
    command = [sys.executable, "-m", "polarbear", *words]
    for word, why in (("partition=none", "Invalid partition name"), ("time=3", "write --time")):
        done = subprocess.run([*command, word], capture_output=True, text=True)
        assert done.returncode == 2
        assert why in done.stderr
        assert "too many" not in done.stderr
    assert len(list(Path("all/slurm").iterdir())) == 1  # the script that was refused
    assert not list(Path("all").rglob("job.json"))
    assert "has 1 run in 1 task" in polarbear(*words[:-1])
    wait_for_the_end(0)


def test_a_killed_process_a_dead_node_and_a_requeue_cost_nothing_but_time(slurm: Slurm) -> None:
    polarbear(*ASKED, *orders("0-2"), *ON_SLURM, "--at-once", "3", SLOW="0.2")
    wait_for_training(0, 1, 2)
    (number,) = set(slurm.ask("squeue", "--noheader", "--name", job(), "--format=%F").split())
    slurm.ask("scontrol", "requeue", f"{number}_2")  # as where it makes room for another
    node = {task: node for task, _, node in slurm.jobs()}["1"]
    killed = last_process(run(0).path)
    os.kill(killed.pid, signal.SIGKILL)
    slurm.kill_node(node)
    try:
        wait_until(lambda: "dead" in states(0, 1))
        wait_for_the_end(0, 1, 2)
    finally:
        slurm.start_node(node)
    assert slurm.restarts(job()) == {"0": 1, "1": 1, "2": 1}
    assert_as_if_unbroken(0, 1, 2)


def test_a_time_limit_may_be_shorter_than_a_run(slurm: Slurm) -> None:
    words = ("--time", "1", "--sbatch", "signal=B:USR1@40")
    polarbear(*ASKED, *orders("0"), *ON_SLURM, *words, SLOW="0.6")
    wait_for_the_end(0)
    assert slurm.restarts(job())["0"] > 0
    assert_as_if_unbroken(0)


def test_a_cancelled_job_stays_so_and_its_script_can_be_submitted_by_hand(slurm: Slurm) -> None:
    polarbear(*ASKED, *orders("0-1"), *ON_SLURM, "--at-once", "1", SLOW="0.6")
    wait_for_training(0)
    assert states(0, 1) == ["running", "waiting"]
    words = [*ASKED, *orders("1"), *ON_SLURM, "--batch-size", "8"]
    done = subprocess.run(
        [sys.executable, "-m", "polarbear", *words], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert "_1 with other settings (batch_size): `scancel" in done.stderr
    slurm.ask("scancel", "--name", job())
    wait_until(lambda: not slurm.jobs())
    time.sleep(10)  # longer than a requeue takes
    assert not slurm.jobs()
    assert states(0, 1) == ["stopped", "waiting"]
    slurm.ask("sbatch", str(script()))
    wait_for_the_end(0, 1)
    assert_as_if_unbroken(0, 1)


def test_a_job_for_a_gpu_never_trains_on_a_cpu(slurm: Slurm) -> None:
    on_any = [word for word in ASKED if word not in ("--device", "cpu")]
    polarbear(*on_any, *orders("0"), "--on", "slurm")
    wait_until(lambda: logs().count("GPUs here: 0") >= 2)  # it was tried again
    assert states(0) == ["waiting"]


def test_two_nodes_train_a_run_together(slurm: Slurm) -> None:
    polarbear(*ASKED, *orders("0"), *ON_SLURM, "--nodes", "2", SLOW="0.2")
    wait_for_training(0)
    slurm.ask("scancel", "--batch", "--signal=TERM", "--name", job())  # as before a time limit
    wait_until(lambda: states(0) == ["stopped"])
    wait_for_the_end(0)
    assert run(0).manifest()["processes"] == 2
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    words = [*ASKED, *orders("0", "unbroken")]
    subprocess.run([*command, "-m", "polarbear", *words], check=True, capture_output=True)
    there, alone = (run(0, out).path / "scores.jsonl" for out in ("all", "unbroken"))
    assert there.read_bytes() == alone.read_bytes()
