"""The core needs NumPy alone; a process in which nothing else can be imported proves it."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from polarbear.base.errors import install_line

EXTRAS = ("torch", "torchvision", "safetensors", "PIL", "pyarrow", "tyro", "rich", "sklearn")

REFUSE = f"""
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {EXTRAS!r}:
            raise ModuleNotFoundError(f"{{name}} is refused here", name=name.split(".")[0])

sys.meta_path.insert(0, Refuse())
"""

CORE = (
    "polarbear",
    "polarbear.named.registry",
    "polarbear.report",
    "polarbear.benchmark.checks",
    "polarbear.data.batches",
    "polarbear.data.cifar100",
    "polarbear.data.fetch",
    "polarbear.data.folders",
    "polarbear.data.imagenet",
    "polarbear.data.packed",
    "polarbear.data.shapes",
    "polarbear.score.decide",
    "polarbear.score.evaluate",
    "polarbear.methods.catalogue",
    "polarbear.methods.registry",
    "polarbear.score.predictions",
    "polarbear.methods.presets",
    "polarbear.runs.own_loop",
    "polarbear.report.page.page",
    "polarbear.report.read.runs",
    "polarbear.runs.folder",
    "polarbear.settings.settings",
    "polarbear.benchmark.counts",
)


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", REFUSE + code],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent,
    )


def test_the_core_imports_without_any_extra() -> None:
    done = python("".join(f"import {module}\n" for module in CORE))
    assert done.returncode == 0, done.stderr


def test_a_benchmark_is_loaded_scored_and_recorded_without_any_extra(tmp_path: Path) -> None:
    done = python(f"""
import numpy as np
import polarbear
from polarbear.score.decide import Seen, decision
from polarbear.methods.catalogue import method_names, summary
from polarbear.methods.presets import settings_for
from polarbear.runs.folder import RunFolder

stream = polarbear.load("iirc-shapes")
evaluator = polarbear.Evaluator(stream)
view = stream.test(after=0)
scores = np.where(view.targets, 1.0, -1.0)
predicted = decision("threshold")(scores, Seen(view.classes))
assert evaluator.add(0, predicted)["pw_jaccard"] == 1.0
settings = settings_for("er", "iirc-shapes")
classes = [list(task) for task in stream.schedule.tasks]
manifest = {{"settings": settings.to_dict(), "classes": classes}}
folder = RunFolder.create({str(tmp_path / "run")!r}, manifest)
folder.save_predictions(0, predicted)
assert (RunFolder.open(folder.path).predictions(0) == predicted).all()
by_task = {{name: table[0, :1] for name, table in evaluator.table.by_task.items()}}
row = {{name: column[0] for name, column in evaluator.table.scores.items()}}
folder.append("scores", {{"after": 0, "split": "test", "scores": row, "by_task": by_task}})
assert folder.table().r[0] == 1.0
assert "lucir" in method_names() and summary("lucir")
""")
    assert done.returncode == 0, done.stderr


def test_a_method_without_pytorch_says_what_to_install() -> None:
    done = python("""
from polarbear.base.errors import PolarbearError
from polarbear.methods.registry import resolve
try:
    resolve("er")
except PolarbearError as error:
    print(error)
""")
    assert f"needs PyTorch: {install_line('torch')}" in done.stdout, done.stderr


@pytest.mark.parametrize("module", ["polarbear.engine.trainer", "polarbear.methods.er", "PIL"])
def test_this_test_can_fail(module: str) -> None:
    done = python(f"import {module}\n")
    assert done.returncode != 0
    assert "is refused here" in done.stderr
    allowed = subprocess.run([sys.executable, "-c", f"import {module}"], capture_output=True)
    assert allowed.returncode == 0


BENCH = sorted((Path(__file__).parents[2] / "bench").glob("*.py"))


@pytest.mark.parametrize("script", BENCH, ids=[script.stem for script in BENCH])
def test_benchmarks_ask_for_what_is_there(script: Path) -> None:
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("polarbear.")):
            continue
        if str(node.module).startswith("polarbear.adapters."):
            continue  # their libraries have an environment of their own
        module = import_module(str(node.module))
        missing = [name.name for name in node.names if not hasattr(module, name.name)]
        submodules = Path(str(module.__file__)).parent
        assert not [name for name in missing if not (submodules / f"{name}.py").is_file()]
