"""The page about a method of your own: its code is the example, which runs and passes the check."""

import importlib.util
import re
import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest
import torch

from polarbear.cli import main
from polarbear.engine.contract.batch import TaskContext
from polarbear.engine.contract.method import Method
from polarbear.engine.contract.phase import Phase
from polarbear.launch.check.learner import check_learner
from polarbear.runs.folder import RunFolder
from tiny_learner import at_task, batch_for, scores_of, slow_bce

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "your-own-method.md").read_text(encoding="utf-8")
EXAMPLE = ROOT / "examples" / "own_method.py"


@pytest.fixture(scope="module")
def own_method() -> ModuleType:
    spec = importlib.util.spec_from_file_location("own_method_for_tests", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_the_example_and_it_is_short() -> None:
    code = EXAMPLE.read_text(encoding="utf-8")
    assert re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1] == code
    assert len(code.splitlines()) < 60


def test_the_page_names_every_attribute_of_a_method() -> None:
    for name, value in vars(Method).items():
        if not name.startswith("_") and isinstance(value, (str, int)):
            assert f"`{name}`" in PAGE


def test_the_page_names_all_of_the_context_and_of_a_phase() -> None:
    for one in (*fields(TaskContext), *fields(Phase)):
        assert re.search(rf"`{one.name}(\(\w*(, \w+)*\))?`", PAGE), one.name


def test_the_example_passes_the_check(own_method: ModuleType) -> None:
    assert check_learner(own_method.KeepSure) == ()


def undecided(learner: Method) -> None:
    """Let the network say yes to some classes."""
    learner.model.head.bias.data.copy_(torch.tensor([1.0, -1.0] * 5))


def test_only_what_the_teacher_is_sure_of_on_new_images_is_left_alone(
    own_method: ModuleType,
) -> None:
    learner = at_task(own_method.KeepSure, between=undecided)
    batch = batch_for(learner)
    said = torch.sigmoid(learner.teacher(batch.images)) > 0.5
    scores, total = scores_of(learner, batch.images), 0.0
    for i in range(8):
        for c in range(7):
            if not (c < 4 and said[i, c] and i < 4):
                total += slow_bce(scores[i : i + 1, c : c + 1], batch.targets[i : i + 1, c : c + 1])
    assert 0 < said[:4].sum() < said[:4].numel()
    assert float(learner.loss(batch).detach()) == pytest.approx(total / scores.numel(), rel=1e-5)


def test_the_pages_command_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "polarbear run own_method:KeepSure --benchmark iirc-shapes --options.sure 0.7 --out"
    assert command in PAGE
    monkeypatch.chdir(EXAMPLE.parent)
    monkeypatch.delitem(sys.modules, "own_method", raising=False)
    tiny = ["--epochs", "1", "--tasks", "2", "--threads", "1"]
    assert main([*command.split()[1:], str(tmp_path / "run"), *tiny]) == 0
    assert "own_method:KeepSure on iirc-shapes" in capsys.readouterr().out
    run = RunFolder.open(tmp_path / "run")
    assert run.finished
    assert run.manifest()["settings"]["options"] == {"sure": 0.7}
