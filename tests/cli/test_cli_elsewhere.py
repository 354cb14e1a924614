"""Runs for a cluster: what is refused, and the script that SLURM gets; no cluster is needed."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from engine_run import interrupt_at
from polarbear.base.errors import PolarbearError
from polarbear.cli import main
from polarbear.cli.commands import runs as command
from polarbear.cli.commands.run import plan
from polarbear.cli.shared import on_slurm
from polarbear.cli.shared.on_slurm import Array
from polarbear.cli.shared.training import How, Wanted
from polarbear.launch.runner import run
from polarbear.runs.job import give_to, last_job, log_of
from polarbear.runs.waiting import let_wait, waiting_in

SHAPES = ("--benchmark", "iirc-shapes")
TINIEST = (*SHAPES, "--epochs", "1", "--tasks", "1", "--first-task-factor", "1")


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--gpus", "2"), "--gpus is for jobs of a cluster: add --on slurm"),
        (("--at-once", "2"), "--at-once is for jobs of a cluster: add --on slurm"),
        (("--sbatch", "mem=1G"), "--sbatch is for jobs of a cluster: add --on slurm"),
        (("--ray-address", "auto"), "--ray-address is for jobs of a cluster: add --on ray"),
        (("--on", "ray", "--pack", "2"), "it goes with --on slurm alone"),
        (("--on", "slurm", "--gpus", "0.5"), "SLURM gives whole GPUs, not 0.5: --gpus 1 --pack 4"),
        (("--on", "slurm", "--pack", "0"), "--pack must be at least 1, not 0"),
        (("--on", "slurm", "--gpus", "-1"), "--gpus must be at least 0, not -1"),
    ],
)
def test_what_cannot_be_is_refused(words: tuple[str, ...], message: str, refused) -> None:
    assert message in refused("run", "er", *SHAPES, *words)
    assert not Path("runs").exists()


def test_without_sbatch_nothing_is_written(refused, monkeypatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert "there is no sbatch here" in refused("run", "er", *SHAPES, "--on", "slurm")
    assert not Path("runs").exists()


def test_without_ray_nothing_is_written(refused, monkeypatch) -> None:
    monkeypatch.setattr("polarbear.cli.shared.on_ray.find_spec", lambda name: None)
    assert "--on ray needs Ray: pip install" in refused("run", "er", *SHAPES, "--on", "ray")
    assert not Path("runs").exists()


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Put a program of SLURM's where polarbear finds it, by its name and the lines of a shell."""
    monkeypatch.setenv("PATH", str(Path("bin").absolute()), prepend=os.pathsep)

    def put(name: str, lines: str) -> None:
        Path("bin").mkdir(exist_ok=True)
        Path("bin", name).write_text(f"#!/bin/sh\n{lines}\n")
        Path("bin", name).chmod(0o755)

    return put


FAILED = "sbatch: error: Batch job submission failed:"


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("Unable to contact slurm controller (connect failure)", 75),
        ("Socket timed out on send/recv operation", 75),
        ("Invalid partition name specified", 2),
    ],
)
def test_where_no_controller_answers_the_same_command_is_worth_another_try(
    said: str, code: int, program, capsys
) -> None:
    words = ["run", "finetune", *SHAPES, "--on", "slurm", "--out", "all/one"]
    program("sbatch", f"echo '{FAILED} {said}' >&2; exit 1")
    assert main(words) == code
    assert said in capsys.readouterr().err
    # What may have arrived is asked for before it is submitted once more.
    assert (last_job(Path("all/one")) is None) == (code == 2)
    program("sbatch", "echo 7")
    program("squeue", "")
    assert main(words) == 0
    assert "SLURM's job 7 has 1 run" in capsys.readouterr().out


def test_what_arrived_without_an_answer_is_not_submitted_twice(program, capsys) -> None:
    words = ["run", "finetune", *SHAPES, "--on", "slurm", "--out", "all/one"]
    program("sbatch", f"echo '{FAILED} Socket timed out on send/recv operation' >&2; exit 1")
    assert main(words) == 75
    job = last_job(Path("all/one"))
    assert job is not None
    program("squeue", f"echo {job.name} 0 7_0")
    assert main(words) == 0
    captured = capsys.readouterr()
    assert "all/one is in SLURM's job 7_0: left to it" in captured.err
    assert "Nothing is left to submit" in captured.out


@pytest.mark.parametrize("words", [("--images", "streamed"), ("--accumulate", "2")])
def test_a_job_that_would_not_hear_how_fast_a_run_is_to_go_on_is_refused(
    words, program, refused, capsys
) -> None:
    asked = plan(["er", *TINIEST])[0].settings
    with pytest.raises(KeyboardInterrupt):
        run(asked, Path("run"), on_step=interrupt_at(3), save_every=0.0)
    program("sbatch", "echo 7")
    again = ("run", "er", *TINIEST, "--on", "slurm", "--out", "run")
    name = words[0].removeprefix("--")
    assert f"run began with other settings ({name}), and a job resumes it" in refused(
        *again, *words
    )
    assert main(list(again)) == 0
    assert "SLURM's job 7 has 1 run" in capsys.readouterr().out


def test_jobs_that_are_submitted_at_the_same_time_have_names_of_their_own(
    refused, program, monkeypatch
) -> None:
    program("sbatch", "exit 1")
    monkeypatch.setattr(on_slurm.time, "strftime", lambda _: "now")
    for out in ("one", "two"):
        words = ("run", "finetune", *SHAPES, "--on", "slurm", "--out", f"all/{out}")
        assert "`sbatch --parsable all/slurm/now-" in refused(*words)
    scripts = [file.read_text() for file in Path("all").rglob("array.sh")]
    assert len({told(text)["job-name"] for text in scripts}) == 2


def script(
    *words: str,
    packs=(("runs/a", "runs/b c"),),
    gpus: int = 1,
    how: How | None = None,
    at: str = "runs/slurm/now/array.sh",
) -> str:
    asked = plan(["er", *SHAPES, "--on", "slurm", *words])[0].where
    folders = tuple(tuple(map(Path, pack)) for pack in packs)
    return Array(folders, "polarbear-now", Path(at), gpus, gpus > 0, asked, how or How()).text()


def told(text: str) -> dict[str, str | None]:
    """Return what sbatch is told, its quotes read as a shell would."""
    lines = re.findall(r"^#SBATCH --(.*)$", text, re.MULTILINE)
    pairs = [shlex.split(line)[0].partition("=") for line in lines]
    assert len({name for name, _, _ in pairs}) == len(pairs)
    return {name: value if equals else None for name, equals, value in pairs}


def test_the_script_says_all_that_was_asked_for() -> None:
    words = ("--time", "4:00:00", "--at-once", "3", "--sbatch", "partition=long", "exclusive")
    text = script(*words, "--sbatch", "signal=B:TERM@300", packs=[("a",), ("b",), ("c",)], gpus=2)
    assert told(text) == {
        "job-name": "polarbear-now",
        "array": "0-2%3",
        "nodes": "1",
        "ntasks-per-node": "1",
        "gpus-per-node": "2",
        "time": "4:00:00",
        "chdir": str(Path.cwd()),
        "output": "runs/slurm/now/%a.log",
        "open-mode": "append",
        "requeue": None,
        "signal": "B:TERM@300",
        "partition": "long",
        "exclusive": None,
    }
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0


def test_words_of_ones_own_take_the_place_of_ours(refused) -> None:
    assert "gpus-per-node" not in told(script("--sbatch", "gres=gpu:a100:1"))
    assert "gpus-per-node" in told(script("--sbatch", "gres=scratch:100"))
    assert told(script("--time", "2"))["signal"] == "B:TERM@30"  # half a minute of two
    for word, message in (
        ("time=1", "the script has its own, write --time instead"),
        ("array=1", "write --pack or --at-once instead"),
        ("p=long", "with a long name"),
    ):
        with pytest.raises(Exception, match=message):
            script("--sbatch", word)


def test_each_task_has_its_pack_and_gpus_are_looked_for() -> None:
    text = script(how=How(root=Path("my data"), save_every=5.0, tensorboard=True))
    begins = text.index("case $SLURM")
    case = text[begins : text.index("esac")] + 'esac; printf "%s\\n" "${runs[@]}"'
    shown = subprocess.run(
        ["bash", "-c", case], env={"SLURM_ARRAY_TASK_ID": "0"}, capture_output=True, text=True
    )
    assert shown.stdout.splitlines() == ["runs/a", "runs/b c"]
    assert "resume --root 'my data' --tensorboard --save-every 5.0 \"${runs[@]}\"" in text
    assert "seen < 1" in text
    assert "device_count" not in script(gpus=0)


def test_the_page_shows_the_script_as_it_is() -> None:
    page = Path(__file__).parents[2] / "docs/how-to/cluster.md"
    assert on_slurm.REST in page.read_text(encoding="utf-8")


def test_a_job_without_gpus_sees_none_of_others() -> None:
    line = "export CUDA_VISIBLE_DEVICES="
    assert line in script(gpus=0)
    assert line not in script(gpus=1)
    assert line not in script("--sbatch", "gres=gpu:a100:1")


def test_a_percent_sign_in_a_folder_is_no_word_of_slurms() -> None:
    assert told(script(at="50%a/slurm/now/array.sh"))["output"] == "50%%a/slurm/now/%a.log"


def task_that(does: str, restarts: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a script that trains nothing; SLURM's programs only say that they were called."""
    text, found = re.subn(
        r"^train\(\) \{.*?^\}", f"train() {{ {does}; }}", script(), flags=re.S | re.M
    )
    assert found == 1
    # What was stopped is gone before the script looks again, as it may be on a busy machine.
    text, found = re.subn(r"^stop\(\) \{ (.*); \}$", r"stop() { \1; sleep 0.3; }", text, flags=re.M)
    assert found == 1
    programs = "squeue() { echo RUNNING None; }\nscontrol() { echo asked for: $*; }\n"
    known = {"SLURM_ARRAY_JOB_ID": "5", "SLURM_ARRAY_TASK_ID": "0"}
    return subprocess.run(
        ["bash", "-c", programs + text],
        env=os.environ | known | {"SLURM_RESTART_COUNT": str(restarts)},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("signal", ["TERM", "USR1", "USR2"])
def test_whatever_warns_of_a_time_limit_stops_the_runs_and_brings_the_task_back(signal) -> None:
    done = task_that(f"sleep 1; kill -{signal} $$; exec sleep 60")
    assert done.returncode == 143  # of what was stopped
    assert "asked for: requeue 5_0" in done.stdout


@pytest.mark.parametrize(
    ("restarts", "leaves", "comes_back"),
    [(9, "", True), (10, "", False), (10, "0008.safetensors", False), (200, "0008.json", True)],
)
def test_a_task_comes_back_ten_times_in_vain_and_for_ever_where_it_gets_further(
    restarts: int, leaves: str, comes_back: bool, tmp_path: Path
) -> None:
    """In a real SLURM, this takes long."""
    folder = tmp_path / "runs/b c/checkpoint"
    folder.mkdir(parents=True)
    (folder / "0007.json").touch()
    does = f"touch {shlex.quote(str(folder / leaves))}" if leaves else ":"
    done = task_that(f"{does}; exit 75", restarts)
    assert done.returncode == 75
    assert ("asked for: requeue 5_0" in done.stdout) == comes_back
    assert ("given up with code 75: started 11 times" in done.stdout) == (not comes_back)


@pytest.mark.parametrize(
    ("words", "gpus", "launcher"),
    [
        ((), 1, None),
        (("--pack", "4"), 2, None),  # a process for each GPU, and runs for each
        ((), 2, "--nproc-per-node=2 --standalone -m polarbear"),
        (("--nodes", "2"), 8, '--nproc-per-node=8 "${meet[@]}" -m polarbear'),
    ],
)
def test_one_run_on_several_gpus_is_started_by_torchrun(words, gpus: int, launcher) -> None:
    text = script(*words, gpus=gpus)
    assert ("shared.torchrun" in text) == (launcher is not None)
    assert launcher is None or launcher in text
    assert ("exec srun" in text) == ("--nodes" in words)


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        ("exit(75)", "exit(2)", 75),  # the disk was full, and the other one lost its partner
        ("time.sleep(60)", "os.kill(os.getpid(), signal.SIGKILL)", 75),
        ("exit(2)", "time.sleep(60)", 2),
        ("time.sleep(60)", "exit(2)", 2),
        ("time.sleep(60)", "os.kill(os.getpid(), signal.SIGTERM)", 143),
    ],
)
def test_a_job_of_several_processes_ends_with_the_code_of_what_failed(first, second, code) -> None:
    does = f"if os.environ['RANK'] == '0':\n    {first}\nelse:\n    {second}\n"
    Path("does.py").write_text(f"import os, signal, time\n{does}")
    command = [sys.executable, "-m", "polarbear.cli.shared.torchrun", "--standalone"]
    done = subprocess.run([*command, "--nproc-per-node=2", "does.py"], capture_output=True)
    assert done.returncode == code, done.stderr
    assert b"exitcode" in done.stderr  # as torchrun tells it


def test_what_waits_in_a_job_from_before_compiling_was_chosen_is_left_to_it(
    program, capsys
) -> None:
    wanted = Wanted("er", Path("run"), plan(["er", *TINIEST])[0].settings)
    let_wait(wanted.folder, replace(wanted.settings, compile=False))
    give_to(wanted.folder, "polarbear-now", 3, Path("0.log"))
    program("squeue", "echo polarbear-now 3 5_3")
    assert list(on_slurm._not_in_a_job([wanted])) == []
    asked = replace(wanted, settings=replace(wanted.settings, compile=True))
    with pytest.raises(PolarbearError, match=r"job 5_3 with other settings \(compile\)"):
        list(on_slurm._not_in_a_job([asked]))
    assert "is in SLURM's job 5_3: left to it" in capsys.readouterr().err


def test_resume_begins_what_waits_and_runs_watches_what_a_job_has(capsys, monkeypatch) -> None:
    settings = plan(["finetune", *TINIEST, "--device", "cpu", "--seed", "3"])[0].settings
    for name in ("one", "two"):
        let_wait(Path("all", name), settings, threads=1)
    give_to(Path("all/one"), "polarbear-now", 4, Path("all/slurm/now/4.log"))
    assert main(["runs", "all"]) == 0
    assert "waiting, log all/slurm/now/4.log  all/one" in capsys.readouterr().out
    looks = []

    def finish(_: float) -> None:
        looks.append(capsys.readouterr().out)
        Path("all/one/job.json").rename("job.json")  # nobody will train it

    with monkeypatch.context() as patch:
        patch.setattr(command.time, "sleep", finish)
        patch.setattr(command, "LOOKS_BETWEEN_RUNS", 1)
        assert main(["runs", "all", "--watch"]) == 0
    assert len(looks) == 1
    Path("job.json").rename("all/one/job.json")
    assert main(["resume", "all/one"]) == 0
    assert [waiting_in(Path("all", name)) is None for name in ("one", "two")] == [True, False]
    assert main(["resume", "all"]) == 0
    assert "all/one is finished: skipped" in capsys.readouterr().err
    assert main(["runs", "all", "--json"]) == 0
    lines = {line["path"]: line for line in json.loads(capsys.readouterr().out)}
    assert {line["state"] for line in lines.values()} == {"finished"}
    assert [lines[f"all/{name}"]["log"] for name in ("one", "two")] == [
        "all/slurm/now/4.log",
        None,
    ]
    assert json.loads(Path("all/one/manifest.json").read_text())["threads"] == 1
    scores = [Path("all", name, "scores.jsonl").read_bytes() for name in ("one", "two")]
    assert scores[0] == scores[1]


def test_a_run_that_is_gone_or_damaged_leaves_the_others_of_its_pack_alone(capsys) -> None:
    settings = plan(["finetune", *TINIEST, "--device", "cpu"])[0].settings
    for name in ("damaged", "whole"):
        let_wait(Path("all", name), settings, threads=1)
    Path("all/damaged/asked.json").write_text("{}")
    assert main(["runs", "all", "--json"]) == 0
    states = [line["state"] for line in json.loads(capsys.readouterr().out)]
    assert states == ["unreadable", "waiting"]
    assert main(["resume", *(f"all/{name}" for name in ("gone", "damaged", "whole"))]) == 2
    told = capsys.readouterr().err
    assert "all/gone is no run folder" in told
    assert "all/damaged/asked.json is damaged" in told
    assert "2 of 3 runs failed: all/gone, all/damaged" in told
    assert Path("all/whole/finished.json").exists()


def test_what_cannot_be_read_of_a_job_is_none() -> None:
    folder = Path("run")
    assert last_job(folder) is None
    assert waiting_in(folder) is None
    give_to(folder, "polarbear-now", 4, Path("slurm/4.log"))
    assert log_of(folder) == "slurm/4.log"
    for text in ("", "[1]", '{"name": 1, "task": 2, "log": "x"}'):
        (folder / "job.json").write_text(text)
        assert log_of(folder) is None


def test_runs_watches_what_a_job_has_and_whose_node_died(capsys, monkeypatch) -> None:
    folder = Path("all/run")
    assert main(["run", "finetune", *TINIEST, "--device", "cpu", "--out", str(folder)]) == 0
    done = (folder / "finished.json").rename("finished.json")
    gone = {"host": "n1", "pid": 1, "state": "running"}
    (folder / "process.json").write_text(json.dumps(gone))
    give_to(folder, "polarbear-now", 0, Path("all/slurm/now/0.log"))
    looks = []

    def train_elsewhere(_: float) -> None:
        looks.append(capsys.readouterr().out)
        done.rename(folder / "finished.json")

    monkeypatch.setattr(command.time, "sleep", train_elsewhere)
    assert main(["runs", "all", "--watch"]) == 0
    assert "dead, n1 1, log all/slurm/now/0.log" in looks[0]
    assert len(looks) == 1
