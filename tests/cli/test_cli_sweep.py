"""Sweeps, and what ``polarbear runs`` tells of them: tiny runs through the real commands."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from polarbear.base.errors import PolarbearError
from polarbear.cli import main
from polarbear.cli.commands import runs as command
from polarbear.cli.commands.run import plan
from polarbear.runs.folder import RunFolder
from polarbear.runs.process import announced, last_process
from polarbear.runs.waiting import let_wait

SHAPES = ("--benchmark", "iirc-shapes")
TINIEST = (*SHAPES, "--epochs", "1", "--tasks", "1", "--first-task-factor", "1", "--threads", "1")
ON_CPU = ("--device", "cpu")


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def folders(*words: str) -> list[str]:
    return [str(one.folder(order)) for one in plan(words) for order in one.orders]


def test_folders_are_named_by_what_differs() -> None:
    assert folders("er", *SHAPES, "--seeds", "1,3") == [
        f"runs/iirc-shapes/er/order-0-seed-{seed}" for seed in (1, 3)
    ]
    assert folders("--methods", "er,lucir", *SHAPES, "--orders", "1-2", "--out", "all") == [
        f"all/{method}/order-{order}-seed-100" for method in ("er", "lucir") for order in (1, 2)
    ]
    swept = ("--sweep", "learning-rate=0.1,1", "--sweep", "clip=None")
    assert folders("er", *SHAPES, *swept) == [
        f"runs/iirc-shapes/er/learning_rate={rate},clip=None/order-0-seed-100"
        for rate in ("0.1", 1)
    ]
    assert folders("er", "--sweep", "benchmark=iirc-shapes,iirc-cifar", "--out", "all") == [
        f"all/{name}/order-0-seed-100" for name in ("iirc-shapes", "iirc-cifar")
    ]


def test_with_seeds_of_their_own_no_two_orders_share_one() -> None:
    words = ("er", *SHAPES, "--orders", "1,3", "--own-seeds")
    beside = [f"runs/iirc-shapes/er/order-{n}-seed-{100 + n}" for n in (1, 3)]
    assert folders(*words) == beside
    assert folders("er", *SHAPES, "--own-seeds", "--order", "3") == beside[1:]
    (one,) = plan([*words, "--seed", "7"])
    assert [one.settings_of(order).seed for order in one.orders] == [8, 10]
    assert [one.settings_of(order).order for order in one.orders] == [1, 3]
    (swept,) = plan([*words, "--seeds", "7"])
    assert [swept.name(order) for order in (1, 3)] == ["seed 8 order 1", "seed 10 order 3"]
    Path("sweep.toml").write_text('benchmark = "iirc-shapes"\norders = "1,3"\nown_seeds = true\n')
    assert folders("er", "--from", "sweep.toml") == beside


def test_runs_with_seeds_of_their_own_are_one_group(capsys) -> None:
    words = ("run", "finetune", *TINIEST, *ON_CPU, "--network", "small", "--orders", "0-1")
    assert main([*words, "--own-seeds", "--seed", "5"]) == 0
    assert "n = 2; orders 0, 1, seeds 5, 6)" in capsys.readouterr().out


def test_every_combination_has_its_settings_and_each_method_its_presets() -> None:
    words = ("--methods", "icarl-norm,er", "--benchmark", "iirc-imagenet-lite", "--seeds", "1-2")
    rates = [one.settings.learning_rate for one in plan([*words, "--orders", "0"])]
    alone = [plan([m, *words[2:4]])[0].settings.learning_rate for m in ("icarl-norm", "er")]
    assert rates == [alone[0], alone[0], alone[1], alone[1]]
    assert alone[0] != alone[1]
    words = ("lucir", *SHAPES, "--schedule", "steps", "--sweep", "options.top_k=1,3")
    more = ("--sweep", "rate_steps=0.3 0.6,0.5", "--sweep", "nesterov=true,false")
    settings = [one.settings for one in plan([*words, *more])]
    told = [(s.options["top_k"], s.rate_steps, s.nesterov) for s in settings]
    assert told == [(k, r, n) for k in (1, 3) for r in ((0.3, 0.6), (0.5,)) for n in (True, False)]
    capitals = plan([*words, *more[:3], "nesterov=True,False"])
    assert [one.settings for one in capitals] == settings
    own = ("kin", *SHAPES, "--sweep")
    small = [one.settings.options for one in plan([*own, "options.parents=true,false"])]
    assert [one["parents"] for one in small] == [True, False]
    assert [one.settings.options for one in plan([*own, "options.parents=True,False"])] == small
    swept = ("--network", "mine:vit", "--sweep", "network_options=pale=True,pale=False")
    settings = [one.settings for one in plan(["er", *SHAPES, *swept])]
    assert [s.network_options for s in settings] == [{"pale": True}, {"pale": False}]


def test_a_file_says_the_same_and_the_command_counts() -> None:
    Path("sweep.toml").write_text(
        """
        methods = ["er", "lucir"]
        benchmark = "iirc-shapes"
        orders = [0, 2]
        seeds = "1-2"
        epochs = 3
        nesterov = true
        rate_steps = [0.3, 0.6]
        schedule = "steps"
        [sweep]
        learning_rate = [0.1, 1]
        frozen = [true, false]
        """
    )
    flags = [*SHAPES, "--orders", "0,2", "--seeds", "1-2", "--nesterov", "--rate-steps", "0.3"]
    flags += ["0.6", "--schedule", "steps", "--sweep", "learning_rate=0.1,1"]
    flags += ["--sweep", "frozen=true,false"]
    said = plan(["--methods", "er,lucir", *flags, "--epochs", "2"])
    read = plan(["--from", "sweep.toml", "--epochs", "2"])
    assert [one.settings for one in read] == [one.settings for one in said]
    assert [one.folder(2) for one in read] == [one.folder(2) for one in said]
    one = plan(["er", "--from=sweep.toml", "--seeds", "7"])
    assert {(each.settings.method, each.settings.seed) for each in one} == {("er", 7)}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("er", "--methods", "er,lucir"), "which methods? One comes first"),
        (("--seeds", "1"), "which methods? One comes first"),
        (("--methods", "er,,lucir"), "is no list: write A,B"),
        (("--methods", "er,lucri"), "did you mean 'lucir'?"),
        (("er", "--sweep", "lerning_rate=1,2"), "did you mean 'learning_rate'?"),
        (("er", "--sweep", "learning_rate"), "has no values: write --sweep learning_rate=A,B"),
        (("er", "--sweep", "learning_rate=0"), "learning_rate must be from 1e-12"),
        (("er", "--sweep", "seed=1,2"), "write --seeds A,B"),
        (("er", "--sweep", "nesterov=true,yes"), "nesterov=true,yes: a switch is true or false"),
        (("kin", "--sweep", "options.parents=no"), "parents=no: a switch is true or false"),
        (("er", "--sweep", "epochs=1,2", "--epochs", "3"), "epochs is to have several values and"),
        (("er", "--seeds", "1,2", "--seed=3"), "seed is to have several values and one"),
        (("er", "--sweep", "epochs=1", "--sweep", "epochs=2"), "names a setting twice"),
        (("er", "--sweep", "learning_rate=1,1.0"), "two runs of the sweep would be the same"),
        (("er", "--seeds", "2-1"), "--seeds '2-1': write the lower one first"),
        (("er", "--seeds", "5,6", "--own-seeds"), "--own-seeds takes one seed, order 0's"),
        (("er", "--seeds", "0-99999999"), "are more than 10,000 runs"),
        (("--from", "absent.toml"), "absent.toml"),
        (("er", "--from"), "--from takes one file"),
    ],
)
def test_what_is_no_sweep_is_refused(words: tuple[str, ...], message: str, refused) -> None:
    assert message in refused("run", *words, *(SHAPES if words[-1] != "--from" else ()))
    assert not Path("runs").exists()


def test_a_wrong_value_in_a_file_is_refused(refused) -> None:
    Path("sweep.toml").write_text('methods = "er"\n[sweep]\nepochs = 3\n')
    assert "the sweep's epochs must be a list of values, not 3" in refused(
        "run", "--from", "sweep.toml"
    )


SWEEP = ("run", "--methods", "finetune,er", *TINIEST, *ON_CPU, "--sweep", "batch_size=64,128")


def listed(capsys: pytest.CaptureFixture[str], folder: str = "runs") -> dict[str, dict]:
    capsys.readouterr()
    assert main(["runs", folder, "--json"]) == 0
    return {line["path"]: line for line in json.loads(capsys.readouterr().out)}


def test_the_same_sweep_again_does_what_is_left(capsys, monkeypatch) -> None:
    assert main([*SWEEP[:2], "finetune", *SWEEP[3:], "--seeds", "1"]) == 0
    states = {path: line["state"] for path, line in listed(capsys).items()}
    assert states == {
        f"runs/iirc-shapes/finetune/batch_size={size}/order-0-seed-1": "finished"
        for size in (128, 64)
    }
    before = {path: Path(path, "scores.jsonl").stat().st_mtime_ns for path in states}
    assert main([*SWEEP, "--seeds", "1-2"]) == 0
    told = capsys.readouterr()
    assert told.err.count("is finished: skipped") == 2
    assert "(95 %, n = 2; " in told.out
    found = listed(capsys)
    assert len(found) == 8
    assert {line["state"] for line in found.values()} == {"finished"}
    assert before == {path: Path(path, "scores.jsonl").stat().st_mtime_ns for path in before}
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    assert main(["runs"]) == 0
    assert capsys.readouterr().out.count("(95 %, n = 2; ") == 4


def program(*words: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "polarbear", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for(file: Path, process: subprocess.Popen[str]) -> None:
    while not file.exists() and process.poll() is None:
        time.sleep(0.01)
    assert file.exists()


def test_runs_tells_running_waiting_stopped_and_dead_apart(capsys) -> None:
    words = ("run", "finetune", *SHAPES, "--epochs", "1000", *ON_CPU, "--seeds", "1-2", *SWEEP[-2:])
    first, second, *_ = folders(*words[1:])
    with program(*words) as process:
        wait_for(Path(first, "epochs.jsonl"), process)
        found = listed(capsys)
        running, waiting = found[first], found[second]
        assert main(["runs"]) == 0
        table = capsys.readouterr().out
        process.kill()
    assert (running["state"], running["pid"]) == ("running", process.pid)
    assert running["host"] == socket.gethostname()
    assert running["left"] > 0
    assert f" left, {socket.gethostname()} {process.pid} " in table
    assert (waiting["state"], waiting["seed"], waiting["done"]) == ("waiting", 2, 0)
    assert [line["state"] for line in found.values()].count("waiting") == 3
    dead = listed(capsys)[first]
    assert (dead["state"], dead["pid"], dead["left"]) == ("dead", process.pid, None)
    with program("resume", first) as process:
        while RunFolder(Path(first)).state() != "running":
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert listed(capsys)[first]["state"] == "stopped"


def test_runs_tells_what_failed_and_why(capsys) -> None:
    assert main(["run", "er", *TINIEST, *ON_CPU, "--out", "all/run"]) == 0
    Path("all/run/finished.json").unlink()
    folder = Path("all/run")
    with pytest.raises(PolarbearError), announced(folder):
        raise PolarbearError("no such\nluck")
    line = listed(capsys, "all")["all/run"]
    assert (line["state"], line["error"]) == ("failed", "PolarbearError: no such luck")
    assert main(["runs", "all"]) == 0
    assert "failed: PolarbearError: no such luck" in capsys.readouterr().out
    with pytest.raises(KeyboardInterrupt), announced(folder):
        raise KeyboardInterrupt
    assert listed(capsys, "all")["all/run"]["state"] == "stopped"
    (folder / "process.json").write_text("[1]")
    assert last_process(folder) is None
    assert RunFolder(folder).state() == "stopped"
    with RunFolder(folder).held():
        (folder / "process.json").unlink()
        assert RunFolder(folder).state() == "running"  # as an earlier version trains


def test_a_finished_run_says_nothing_of_its_process() -> None:
    assert main(["run", "er", *TINIEST, *ON_CPU, "--out", "run"]) == 0
    assert not Path("run/process.json").exists()
    assert not list(Path().rglob("asked.json"))


def test_watch_draws_until_nothing_runs(capsys, monkeypatch, refused) -> None:
    assert main(["run", "er", *TINIEST, *ON_CPU, "--out", "all/run"]) == 0
    done = Path("all/run/finished.json").read_bytes()
    Path("all/run/finished.json").unlink()
    slept = []
    with RunFolder(Path("all/run")).held():

        def finish(seconds: float) -> None:
            slept.append(seconds)
            Path("all/run/finished.json").write_bytes(done)

        monkeypatch.setattr(command.time, "sleep", finish)
        capsys.readouterr()
        assert main(["runs", "all", "--watch"]) == 0
    out = capsys.readouterr().out
    assert (out.count("running"), out.count("finished"), len(slept)) == (1, 1, 1)
    assert f"{os.getpid()}" in out
    assert "--watch is for people" in refused("runs", "all", "--watch", "--json")


def test_watch_waits_between_two_runs_of_a_sweep(capsys, monkeypatch) -> None:
    assert main(["run", "er", *TINIEST, *ON_CPU, "--out", "all/run"]) == 0
    let_wait(Path("all/next"), plan(["er", *TINIEST])[0].settings)
    looks = []

    def begin_late(_: float) -> None:
        looks.append(capsys.readouterr().out)
        if len(looks) == command.LOOKS_BETWEEN_RUNS - 1:
            Path("all/next/asked.json").rename("asked.json")

    monkeypatch.setattr(command.time, "sleep", begin_late)
    assert main(["runs", "all", "--watch"]) == 0
    assert len(looks) == command.LOOKS_BETWEEN_RUNS - 1
    assert "waiting" in looks[-1]
    Path("asked.json").rename("all/next/asked.json")
    assert main(["runs", "all", "--watch"]) == 0  # not for ever: nobody may be at it
