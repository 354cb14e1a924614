"""Runs for a cluster: what is refused, and the script that SLURM gets; no cluster is needed."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from polarbear.cli import main
from polarbear.cli.commands import runs as command
from polarbear.cli.commands.run import plan
from polarbear.cli.shared.on_slurm import Array
from polarbear.cli.shared.training import How
from polarbear.runs.job import give_to, last_job, log_of
from polarbear.runs.waiting import find_waiting, let_wait, waiting_in

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


def script(
    *words: str, packs=(("runs/a", "runs/b c"),), gpus: int = 1, how: How | None = None
) -> str:
    asked = plan(["er", *SHAPES, "--on", "slurm", *words])[0].where
    folders = tuple(tuple(map(Path, pack)) for pack in packs)
    at = Path("runs/slurm/now/array.sh")
    return Array(folders, "polarbear-now", at, gpus, gpus > 0, asked, how or How()).text()


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
    assert ("torch.distributed.run" in text) == (launcher is not None)
    assert launcher is None or launcher in text
    assert ("exec srun" in text) == ("--nodes" in words)


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
        assert main(["runs", "all", "--watch"]) == 0
    assert len(looks) == 1
    Path("job.json").rename("all/one/job.json")
    assert main(["resume", "all/one"]) == 0
    assert [one.folder for one in find_waiting("all")] == [Path("all/two")]
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


def test_what_cannot_be_read_of_a_job_is_none() -> None:
    folder = Path("run")
    assert last_job(folder) is None
    assert waiting_in(folder) is None
    give_to(folder, "polarbear-now", 4, Path("slurm/4.log"))
    assert log_of(folder) == "slurm/4.log"
    for text in ("", "[1]", '{"name": 1, "task": 2, "log": "x"}'):
        (folder / "job.json").write_text(text)
        assert log_of(folder) is None
