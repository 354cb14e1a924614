"""The front door for training: one call from a class or a name to a result that shows itself."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from polarbear import PolarbearError, RunError, RunFolder, learn
from polarbear.cli import main
from polarbear.launch import runner
from polarbear.methods.er import ER

SMALL = {"epochs": 1, "tasks": 2, "first_task_factor": 1}

SCRIPT = """
import sys
from polarbear import learn


class Mine(learn.Method):
    replay = "mixed"

    def loss(self, batch):
        return learn.bce(self.model(batch.images), batch.targets)


def stop(trainer, progress):
    if progress.task == 1:
        raise KeyboardInterrupt


try:
    learn.run(
        Mine, "iirc-shapes", epochs=1, tasks=2, first_task_factor=1, folder="mine", on_step=stop
    )
except KeyboardInterrupt:
    pass
if sys.argv[1:] == ["resume"]:
    print(learn.resume("mine", method=Mine))
"""


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def scores(folder: str | Path) -> bytes:
    return (Path(folder) / "scores.jsonl").read_bytes()


def script(*words: str) -> subprocess.CompletedProcess[str]:
    Path("script.py").write_text(SCRIPT)
    command = [sys.executable, "script.py", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def test_a_class_is_trained_as_by_its_name_into_the_command_lines_folder() -> None:
    result = learn.run(ER, "iirc-shapes", seed=7, progress=False, **SMALL)
    assert result.folder.path == Path("runs/iirc-shapes/er/order-0-seed-7")
    assert result.finished
    with runner.threads(1):
        runner.run(learn.settings_for("er", "iirc-shapes", seed=7, **SMALL), "engine")
    assert scores(result.folder.path) == scores("engine")
    threads = torch.get_num_threads()
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    command = ["run", "er", "--benchmark", "iirc-shapes", "--seed", "7", *flags]
    assert main([*command, "--out", "by-command"]) == 0
    torch.set_num_threads(threads)
    assert scores(result.folder.path) == scores("by-command")
    with pytest.raises(RunError, match="holds a run already"):
        learn.run(ER, "iirc-shapes", seed=7, progress=False, **SMALL)


def test_a_result_shows_itself(capsys: pytest.CaptureFixture[str]) -> None:
    result = learn.run("finetune", "iirc-shapes", folder="here", **SMALL)
    r = f"{result.table.r[1]:.3f}"
    about, head, _, last = repr(result).splitlines()
    assert about == "finetune on iirc-shapes, order 0: finished; in here"
    assert head.split()[:4] == ["after", "task", "R_j", "super"]
    assert last.split()[:2] == ["1", r]
    html = result._repr_html_()
    assert html.count("<tr>") == 3
    assert f"<td>1</td><td>{r}</td>" in html
    assert f"after task 1: R_1 = {r}" in capsys.readouterr().err  # progress, line by line


def test_progress_and_a_step_of_ones_own_go_together() -> None:
    tasks = set()
    learn.run(
        "finetune", "iirc-shapes", on_step=lambda _, progress: tasks.add(progress.task), **SMALL
    )
    assert {0, 1} <= tasks


def test_a_class_of_a_script_is_named_resumed_there_and_nowhere_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    script()
    folder = RunFolder.open("mine")
    assert folder.manifest()["settings"]["method"] == "__main__:Mine"
    assert not folder.finished
    assert main(["resume", "mine"]) == 2
    told = capsys.readouterr().err
    assert "polarbear.learn.resume(folder, method=TheClass)" in " ".join(told.split())
    with pytest.raises(PolarbearError, match="defined in a notebook, a script"):
        learn.resume("mine")

    class Mine(ER):
        pass

    Mine.__module__, Mine.__qualname__ = "__main__", "Mine"
    resumed = learn.resume("mine", method=Mine, progress=False)
    assert resumed.finished


def test_a_script_goes_on_with_its_own_class() -> None:
    told = script("resume").stdout
    assert told.startswith("__main__:Mine on iirc-shapes, order 0: finished; in mine")


def test_what_cannot_be_run_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(PolarbearError, match=r"epoch_s.*did you mean 'epochs'"):
        learn.run("er", "iirc-shapes", epoch_s=4)
    with pytest.raises(PolarbearError, match="did you mean 'finetune'"):
        learn.run("finetun", "iirc-shapes")
    with pytest.raises(PolarbearError, match="is no method: it must be a class derived from"):
        learn.run(dict, "iirc-shapes")  # type: ignore[arg-type]
    assert not Path("runs").exists()


def test_without_rich_a_run_is_logged() -> None:
    code = f"""
import logging, sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "rich":
            raise ModuleNotFoundError("refused here", name="rich")

sys.meta_path.insert(0, Refuse())
from polarbear import learn
logging.basicConfig(level=logging.INFO)
print(learn.run("finetune", "iirc-shapes", folder="run", **{SMALL!r}))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "after task 1: R_j 0." in done.stderr
    assert "finished; in run" in done.stdout


def test_a_result_becomes_a_data_frame() -> None:
    result = learn.run("finetune", "iirc-shapes", progress=False, **SMALL)
    if find_spec("pandas") is None:
        with pytest.raises(PolarbearError, match="pip install pandas"):
            result.to_pandas()
        return
    frame = result.to_pandas()
    assert frame["pw_jaccard"].tolist() == result.table.r[:2].tolist()
    assert frame.index.tolist() == [0, 1]
    assert json.loads(frame.to_json())
