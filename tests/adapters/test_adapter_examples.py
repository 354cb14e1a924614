"""The whole examples train and end in the score table the engine writes."""

import csv
import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from polarbear import Evaluator, Stream
from polarbear.runs.folder import RunFolder

FOLDER = Path(__file__).parents[2] / "examples"

#: Example → the libraries it needs and the name its runs are shown under.
EXAMPLES = {
    "torch_loop": (("torch",), "torch-loop"),
    "jax_er": (("jax", "flax", "optax"), "jax-er"),
    "keras_finetune": (("tensorflow", "keras"), "keras-finetune"),
    "avalanche_strategy": (("avalanche",), "avalanche-replay"),
}


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"{name}_for_tests", FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def run_of(library, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], RunFolder]:
    """Runs an example once: two tasks, two epochs each (four in the first)."""
    done: dict[str, RunFolder] = {}

    def run(name: str) -> RunFolder:
        for needed in EXAMPLES[name][0]:
            library(needed)
        if name not in done:
            folder = tmp_path_factory.mktemp("runs") / name
            example(name).main(str(folder), epochs=2, tasks=2)
            done[name] = RunFolder.open(folder)
        return done[name]

    return run


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_trains_and_writes_a_finished_run(run_of, stream: Stream, name: str) -> None:
    folder = run_of(name)
    settings = folder.manifest()["settings"]
    assert folder.finished
    assert settings["method"] == EXAMPLES[name][1]
    assert (settings["benchmark"], settings["order"]) == ("iirc-shapes", 0)
    table = folder.table()
    assert np.isnan(table.r).tolist() == [False] * 2 + [True] * 5
    # Naming everything scores 1/36; four epochs on the superclasses are far beyond.
    assert table.r[0] > 0.3


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_scores_are_those_of_the_predictions_it_kept(run_of, stream: Stream, name: str) -> None:
    folder = run_of(name)
    evaluator = Evaluator(stream)
    for after in range(2):
        evaluator.add(after=after, predictions=folder.predictions(after))
    for kind in ("scores", "by_task"):
        for score, values in getattr(evaluator.table, kind).items():
            assert np.array_equal(getattr(folder.table(), kind)[score], values, equal_nan=True)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_command_line_lists_it(run_of, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tyro")
    from polarbear.cli import main

    folder = run_of(name)
    assert main(["runs", str(folder.path.parent), "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)
    expected = {"method": EXAMPLES[name][1], "done": 2, "tasks": 2, "state": "finished"}
    assert line.items() >= expected.items()
    assert line["score"] == folder.table().r[1]


@pytest.fixture(scope="module")
def engine_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of our own engine, two tasks as well."""
    from polarbear.launch.runner import run
    from polarbear.methods.presets import settings_for

    folder = tmp_path_factory.mktemp("engine") / "finetune"
    tiny = settings_for("finetune", "iirc-shapes", epochs=1, first_task_factor=1, tasks=2)
    assert run(tiny, folder)
    return folder


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_report_shows_it_beside_the_engine(
    run_of, library, engine_run: Path, tmp_path: Path, name: str
) -> None:
    library("matplotlib")
    library("tyro")
    from polarbear.cli import main

    folder, out = run_of(name), tmp_path / "report"
    what = ["--formats", "png", "--figures", "average-pw-js"]
    assert main(["report", str(engine_run), str(folder.path), "--out", str(out), *what]) == 0
    with (out / "tables" / "results-pw-js.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    shown = {line["method"]: line for line in lines}
    assert set(shown) == {"finetune", EXAMPLES[name][1]}
    assert (out / "figures" / "average-pw-js.png").stat().st_size > 1000
    assert EXAMPLES[name][1] in (out / "index.html").read_text(encoding="utf-8")


def test_replay_remembers_what_finetuning_forgets(run_of) -> None:
    """After task 1, on the images of task 0."""
    assert run_of("jax_er").table().r_jk[1, 0] > run_of("keras_finetune").table().r_jk[1, 0] + 0.1


def test_the_torch_loop_is_short_and_uses_the_stream_and_the_evaluator_alone() -> None:
    code = (FOLDER / "torch_loop.py").read_text(encoding="utf-8")
    assert len(code.splitlines()) < 80
    used = [line for line in code.splitlines() if " polarbear" in line and "import" in line]
    assert used == ["import polarbear"]
