"""Runs that are really killed, stopped and starved of room, each in a process of its own."""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from engine_run import (
    REFUSED,
    UNFINISHED,
    Orders,
    go,
    go_on_until_finished,
    newest_checkpoint,
    outcome,
    shapes_stream,
    start,
    tiny,
)
from polarbear.launch.runner import run
from polarbear.runs.folder import RunFolder
from polarbear.settings.settings import Settings

Unbroken = Callable[[str], object]

KILLED = -signal.SIGKILL
METHODS = ("finetune", "er", "agem", "icarl-norm", "lucir", "incremental-joint")


pytestmark = pytest.mark.usefixtures("one_thread")


def asked(method: str) -> Settings:
    return tiny(method, tasks=2, keep_scores=True)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Unbroken:
    """Outcomes of runs that nobody disturbed."""
    found: dict[str, object] = {}

    def outcome_of(method: str) -> object:
        if method not in found:
            folder = tmp_path_factory.mktemp("unbroken") / method
            assert run(asked(method), folder, stream=shapes_stream())
            found[method] = outcome(folder)
        return found[method]

    return outcome_of


def message(orders: Orders) -> str:
    return orders.folder.with_name(f"{orders.folder.name}.message").read_text()


def test_a_process_of_its_own_gives_the_same_bytes(tmp_path: Path, unbroken: Unbroken) -> None:
    orders = Orders(asked("er"), tmp_path / "run")
    go_on_until_finished(orders)
    assert outcome(orders.folder) == unbroken("er")


@pytest.mark.parametrize("method", METHODS)
def test_killed_at_the_worst_moments(tmp_path: Path, method: str, unbroken: Unbroken) -> None:
    """Between any two system calls that change files: in the middle of a checkpoint, of a line."""
    orders = Orders(asked(method), tmp_path / "run")
    chance = random.Random(METHODS.index(method))
    for _ in range(8):
        code = go(replace(orders, die_at=chance.randint(1, 40)))
        assert code in (KILLED, 0)
        if code == 0:
            break
    go_on_until_finished(orders)
    assert outcome(orders.folder) == unbroken(method)


@pytest.mark.parametrize("method", ["er", "lucir"])
def test_killed_at_any_time(tmp_path: Path, method: str, unbroken: Unbroken) -> None:
    """From outside, whatever it is doing."""
    orders = Orders(asked(method), tmp_path / "run")
    chance = random.Random(7)
    for _ in range(4):
        process = start(orders)
        while process.is_alive() and not (orders.folder / "epochs.jsonl").exists():
            time.sleep(0.01)
        process.join(chance.random() * 0.2)
        process.kill()
        process.join(60)
        assert process.exitcode in (KILLED, 0)
    go_on_until_finished(orders)
    assert outcome(orders.folder) == unbroken(method)


def test_killed_before_the_first_checkpoint(tmp_path: Path, unbroken: Unbroken) -> None:
    orders = Orders(asked("er"), tmp_path / "run", save_every=1e9, wait_at=9)
    process = start(orders)
    wait_for(orders.folder / "ready")
    process.kill()
    process.join(60)
    assert list(RunFolder(orders.folder).lines("epochs"))
    assert newest_checkpoint(orders.folder / "checkpoint") is None
    go_on_until_finished(orders)
    assert outcome(orders.folder) == unbroken("er")


@pytest.mark.parametrize("method", ["er", "icarl-norm"])
def test_sigterm_stops_at_the_next_step(tmp_path: Path, method: str, unbroken: Unbroken) -> None:
    orders = Orders(asked(method), tmp_path / "run", save_every=1e9, wait_at=11)
    process = start(orders)
    wait_for(orders.folder / "ready")
    os.kill(process.pid, signal.SIGTERM)
    (orders.folder / "go").touch()
    process.join(60)
    assert process.exitcode == UNFINISHED
    found = newest_checkpoint(orders.folder / "checkpoint")
    assert found is not None
    assert found[0] == 1
    progress = found[1].facts["progress"]
    # Four steps and the end of an epoch are five yields: the 11th is the first step of epoch 2.
    assert (progress["task"], progress["epoch"], progress["step"]) == (0, 2, 1)
    go_on_until_finished(orders)
    assert outcome(orders.folder) == unbroken(method)


def wait_for(file: Path) -> None:
    for _ in range(6000):
        if file.exists():
            return
        time.sleep(0.01)
    raise AssertionError(f"{file.name} never came")


def stopped(orders: Orders, step: int) -> None:
    """Bring a run to a checkpoint after a step."""
    process = start(replace(orders, wait_at=step))
    wait_for(orders.folder / "ready")
    os.kill(process.pid, signal.SIGTERM)
    (orders.folder / "go").touch()
    process.join(60)
    assert process.exitcode == UNFINISHED


def test_no_room_for_a_checkpoint(tmp_path: Path, unbroken: Unbroken) -> None:
    orders = Orders(asked("er"), tmp_path / "run")
    stopped(orders, step=8)
    folder = orders.folder / "checkpoint"
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    size = max(len(content) for content in before.values())
    assert go(replace(orders, file_limit=size // 2)) == REFUSED
    assert message(orders).startswith("PolarbearError: no checkpoint could be written to")
    assert "File too large" in message(orders)
    assert f"The one before is kept; make room, then `polarbear resume {orders.folder}`" in message(
        orders
    )
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before
    go_on_until_finished(orders)
    assert outcome(orders.folder) == unbroken("er")


def test_no_room_for_a_line(tmp_path: Path, unbroken: Unbroken) -> None:
    orders = Orders(asked("er"), tmp_path / "run")
    stopped(orders, step=8)
    size = (orders.folder / "epochs.jsonl").stat().st_size
    assert go(replace(orders, file_limit=size + 20, save_every=1e9)) == REFUSED
    assert message(orders).startswith(f"RunError: no more can be written to {orders.folder}: ")
    assert (orders.folder / "epochs.jsonl").stat().st_size == size + 20
    assert len(list(RunFolder(orders.folder).lines("epochs"))) == 1
    go_on_until_finished(orders)
    assert outcome(orders.folder) == unbroken("er")


def test_no_room_at_the_start(tmp_path: Path) -> None:
    orders = Orders(asked("er"), tmp_path / "run", file_limit=500)
    assert go(orders) == REFUSED
    assert "run cannot become a run folder: [Errno 27] File too large" in message(orders)
    assert not (orders.folder / "manifest.json").exists()


@pytest.mark.parametrize("half", ["json", "safetensors"])
def test_a_truncated_newest_checkpoint_after_a_kill(
    tmp_path: Path, half: str, unbroken: Unbroken
) -> None:
    orders = Orders(asked("icarl-norm"), tmp_path / "run")
    process = start(replace(orders, wait_at=13))
    wait_for(orders.folder / "ready")
    process.kill()
    process.join(60)
    newest = max((orders.folder / "checkpoint").glob(f"[0-9]*.{half}"))
    os.truncate(newest, newest.stat().st_size - 100)
    go_on_until_finished(orders)
    assert outcome(orders.folder) == unbroken("icarl-norm")


def test_if_all_checkpoints_are_damaged_the_run_begins_again(
    tmp_path: Path, unbroken: Unbroken
) -> None:
    orders = Orders(asked("finetune"), tmp_path / "run")
    stopped(orders, step=8)
    for file in (orders.folder / "checkpoint").glob("*.safetensors"):
        os.truncate(file, 10)
    go_on_until_finished(orders)
    assert outcome(orders.folder) == unbroken("finetune")


# The program itself

SMALL = ("--benchmark", "iirc-shapes", "--epochs", "1", "--tasks", "2", "--threads", "1")
RUN = (sys.executable, "-m", "polarbear", "run", "er", *SMALL, "--device", "cpu", "--out", "run")


def program(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for_library(process: subprocess.Popen[str], name: str) -> None:
    maps = Path(f"/proc/{process.pid}/maps")
    while process.poll() is None and name not in maps.read_text():
        time.sleep(0.001)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
@pytest.mark.parametrize("moment", ["numpy", "libtorch", "run/lock", "run/epochs.jsonl"])
@pytest.mark.parametrize("gap", [0.0, 0.03])
def test_ctrl_c_twice_is_one_line_at_any_moment(tmp_path: Path, moment: str, gap: float) -> None:
    with program(tmp_path, *RUN) as process:
        if "/" in moment:
            wait_for(tmp_path / moment)
        else:
            wait_for_library(process, moment)
        for _ in range(2):
            process.send_signal(signal.SIGINT)
            time.sleep(gap)
        _, told = process.communicate(timeout=60)
    assert "Traceback" not in told
    assert process.returncode == 130
    assert "stopped" in told.splitlines()[-1]


def test_what_ctrl_c_has_stopped_twice_goes_on(tmp_path: Path) -> None:
    with program(tmp_path, *RUN) as process:
        wait_for(tmp_path / "run/epochs.jsonl")
        for _ in range(2):
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
    command = [sys.executable, "-m", "polarbear", "resume", "run"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert RunFolder(tmp_path / "run").finished


def test_sighup_stops_the_program_as_sigterm_does(tmp_path: Path) -> None:
    with program(tmp_path, *RUN) as process:
        wait_for(tmp_path / "run/epochs.jsonl")
        process.send_signal(signal.SIGHUP)
        _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert told.splitlines()[-1].endswith("`polarbear resume run` goes on")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGTERM, "numpy"),
        (signal.SIGUSR1, "numpy"),
        (signal.SIGUSR2, "libtorch"),
        (signal.SIGHUP, "libtorch"),
        (signal.SIGTERM, "run/lock"),
    ],
)
def test_a_wish_to_stop_before_the_first_step_loses_nothing(
    tmp_path: Path, number: int, moment: str
) -> None:
    with program(tmp_path, *RUN) as process:
        if "/" in moment:
            wait_for(tmp_path / moment)
        else:
            wait_for_library(process, moment)
        process.send_signal(number)
        out, told = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert "stopped" in told.splitlines()[-1]
    assert "Traceback" not in told


def test_what_was_stopped_while_it_began_is_done_by_the_same_command(tmp_path: Path) -> None:
    for moment in ("run/manifest.json", "run/epochs.jsonl"):
        with program(tmp_path, *RUN) as process:
            wait_for(tmp_path / moment)
            process.send_signal(signal.SIGUSR1)
            process.communicate(timeout=60)
        assert process.returncode == 130
    done = subprocess.run(RUN, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert RunFolder(tmp_path / "run").finished


def test_other_commands_end_by_a_signal_as_they_always_did(tmp_path: Path) -> None:
    with program(tmp_path, sys.executable, "-m", "polarbear", "methods") as process:
        wait_for_library(process, "numpy")
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM


def test_a_folder_in_use_is_worth_another_try(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with RunFolder(tmp_path / "run").held():
        done = subprocess.run(RUN, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 75
    assert done.stderr.splitlines()[-1].startswith("polarbear: run is being trained into by")
    again = subprocess.run(RUN, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert again.returncode == 0


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 64 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(disk)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def test_a_full_disk_is_worth_another_try_and_links_are_not(full_disk: Path) -> None:
    done = subprocess.run(RUN, cwd=full_disk, capture_output=True, text=True, check=False)
    assert done.returncode == 75, done.stderr
    assert "No space left on device" in done.stderr
    (full_disk / "linked").mkdir()
    (full_disk / "linked" / "checkpoint").symlink_to("elsewhere")
    command = (*RUN[:-1], "linked")
    hopeless = subprocess.run(command, cwd=full_disk, capture_output=True, text=True, check=False)
    assert hopeless.returncode == 2, hopeless.stderr


LITTLE_MEMORY = """
import resource, sys
from pathlib import Path
import torch
import polarbear.launch.runner, polarbear.cli.commands.run
from polarbear.cli import main

torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)  # imports half of PyTorch
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + int(sys.argv[1]) * 2**20, resource.RLIM_INFINITY))
sys.exit(main(sys.argv[2:]))
"""


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize(("room", "begins"), [(1, False), (20, False), (250, True)])
def test_without_memory_one_line_says_what_to_do(tmp_path: Path, room: int, begins: bool) -> None:
    words = (*RUN[3:], "--batch-size", "4000", "--network", "resnet20")
    with program(tmp_path, sys.executable, "-c", LITTLE_MEMORY, str(room), *words) as process:
        _, told = process.communicate(timeout=300)
    assert process.returncode == 2
    (line,) = told.splitlines()
    assert line.startswith("polarbear: out of memory (")
    assert (tmp_path / "run/manifest.json").exists() == begins
    assert ("`polarbear resume run` goes on where there is enough" in line) == begins
