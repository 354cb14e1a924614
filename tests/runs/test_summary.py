"""Small result files and their comparison with the paper."""

import json
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from engine_run import shapes_stream, tiny
from polarbear.cli import main
from polarbear.cli.commands.run import parse
from polarbear.launch.runner import run
from polarbear.methods.er import ER
from polarbear.methods.presets import settings_for
from polarbear.named.registry import nominal_stream
from polarbear.runs.folder import RunFolder
from polarbear.runs.result_file import command_of, result_path, summarise
from polarbear.score.decide import Seen, top1
from polarbear.score.evaluate import Evaluator
from polarbear.settings.settings import Settings

pytestmark = pytest.mark.usefixtures("one_thread")


RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "er"
    assert run(tiny("er", keep_scores=True, tasks=None), path, stream=shapes_stream())
    return path


def test_a_summary_has_every_score_and_what_made_them(folder: Path) -> None:
    stream = shapes_stream()
    summary = summarise(RunFolder(folder), stream)
    table = RunFolder(folder).table()
    assert summary["r"] == table.r.tolist()
    assert summary["r_valid"] == RunFolder(folder).table("post_valid").r.tolist()
    assert (summary["method"], summary["order"], summary["hardware"]) == ("er", 0, "cpu")
    assert summary["seconds"] > 0
    evaluator = Evaluator(stream)
    raw = RunFolder(folder).raw(2)
    expected = evaluator.add(2, top1(raw, Seen(stream.test(2).classes)))["pw_jaccard"]
    assert summary["r_by_rule"]["top1"][2] == expected
    assert summary["r_by_rule"]["threshold"] == summary["r"]
    assert summary["r_by_rule"]["top1-parent"] == [None] * len(table.r)  # ER infers no parents
    json.dumps(summary, allow_nan=False)


def test_without_raw_scores_no_other_rule_can_be_asked(tmp_path: Path) -> None:
    run(tiny("er", tasks=1), tmp_path / "er", stream=shapes_stream())
    assert summarise(RunFolder(tmp_path / "er"), shapes_stream())["r_by_rule"] is None


def test_the_command_names_what_departs_from_the_preset() -> None:
    settings = tiny("lucir", seed=7, options={"margin": 0.3}).to_dict()
    command = command_of(settings)
    assert command.startswith("polarbear run lucir --benchmark iirc-shapes")
    assert "--seed 7" in command
    assert "--options.margin 0.3" in command
    assert "--momentum" not in command


def test_a_command_has_the_options_that_are_not_the_presets() -> None:
    def command(**own: object) -> str:
        options = {"distillation": 3.0, "temperature": 2.0} | own
        settings = settings_for("lwf", "cil-cifar-b0-5", options=options)
        return command_of(settings.to_dict()).removeprefix("polarbear run lwf --benchmark ")

    assert command() == "cil-cifar-b0-5"
    # The method's own default, but not the preset's.
    assert command(distillation=1.0) == "cil-cifar-b0-5 --options.distillation 1.0"


def test_the_command_of_a_preset_with_steps_is_short() -> None:
    settings = settings_for("replay", "iirc-cifar")
    assert command_of(settings.to_dict()) == "polarbear run replay --benchmark iirc-cifar"
    cosine = settings_for("replay", "iirc-cifar", schedule="cosine")
    assert read_back(cosine) == cosine


LARGE = "iirc-imagenet-lite"


class WarmER(ER):
    """A method with a switch that is on by default."""

    @dataclass(frozen=True)
    class Options(ER.Options):
        warm: bool = True


def test_a_switch_that_is_on_by_default_can_be_off() -> None:
    settings = settings_for("test_summary:WarmER", "iirc-shapes", options={"warm": False})
    assert read_back(settings) == settings


@pytest.mark.parametrize(
    "changes",
    [
        {"fused": False, "graph": False},
        {"compile": True, "tasks": 2},
        {"schedule": "steps", "rate_steps": (0.3, 0.6, 0.9), "rate_factor": 0.2, "warm_up": 1},
        {"optimiser": "adamw", "learning_rate": 0.001, "clip": 1.0, "schedule": "cosine"},
        {"options": {"margin_moves_sigma": True, "top_k": 3}},
        {
            "preparation": "my_images:prepare",
            "preparation_options": {"side": 64, "scale": [0.2, 1], "as": "3", "pale": True},
        },
    ],
)
def test_the_command_gives_the_settings_back(changes: dict[str, Any]) -> None:
    settings = settings_for("lucir", "iirc-shapes", **changes)
    assert sum(word.startswith("--") for word in command_of(settings.to_dict()).split()) == 1 + len(
        changes.get("options", changes)
    )
    read = read_back(settings)
    assert replace(read, options=settings.options) == settings
    assert read.options.items() >= settings.options.items()
    assert read_back(read) == read


def test_the_command_of_a_run_from_before_compiling_was_chosen_is_the_same() -> None:
    small, large = (settings_for("er", name).to_dict() for name in ("iirc-cifar", LARGE))
    assert command_of(small | {"compile": False}) == command_of(small)
    assert command_of(large | {"compile": False}) == f"{command_of(large)} --no-compile"


def read_back(settings: Settings) -> Settings:
    words = shlex.split(command_of(settings.to_dict()).removeprefix("polarbear run "))
    return parse(words).settings


def test_a_shorter_run_is_scored_by_other_rules_too(tmp_path: Path) -> None:
    run(tiny("er", keep_scores=True, tasks=2), tmp_path / "er", stream=shapes_stream())
    found = summarise(RunFolder(tmp_path / "er"), shapes_stream())["r_by_rule"]["top1"]
    assert [score is None for score in found] == [False] * 2 + [True] * (len(found) - 2)


def test_summaries_go_where_compare_finds_them(tmp_path: Path, capsys: Any) -> None:
    assert main(["compare", str(RESULTS / "iirc-cifar")]) == 0
    shown = capsys.readouterr().out
    count = len(list((RESULTS / "iirc-cifar" / "icarl-norm").glob("*.json")))
    assert f"iCaRL-norm, {count} runs" in shown
    assert main(["compare", str(RESULTS / "iirc-cifar"), "--json"]) == 0
    first = json.loads(capsys.readouterr().out)["iirc-cifar-v1"]["er"]["tasks"][0]
    assert (first["task"], first["paper"], first["paper_std"]) == (0, 0.72, 0.039)
    assert first["difference"] == pytest.approx(first["ours"] - 0.72)


def test_summarise_writes_the_files(folder: Path, tmp_path: Path, capsys: Any) -> None:
    assert main(["summarise", str(folder), "--out", str(tmp_path)]) == 0
    summary = summarise(RunFolder(folder))
    written = json.loads(result_path(tmp_path, summary).read_text())
    assert written["r"] == summary["r"]
    assert result_path(tmp_path, summary).relative_to(tmp_path) == Path(
        "iirc-shapes/er/order-0.json"
    )


def test_compare_says_where_the_paper_has_nothing(folder: Path, capsys: Any) -> None:
    assert main(["compare", str(folder)]) == 2
    assert "the paper has no table for iirc-shapes" in capsys.readouterr().err


def test_kept_results_are_whole() -> None:
    files = sorted(RESULTS.rglob("order-*.json"))
    assert files
    for file in files:
        kept = json.loads(file.read_text())
        root, ablation = file.parents[2], {"method": file.parent.name}
        assert result_path(root, kept | (ablation if root != RESULTS else {})) == file
        top1 = kept["r_top1"] if "r_top1" in kept else kept["r_by_rule"]["top1"]
        stream = nominal_stream(kept["benchmark"], kept["order"])
        tasks = 1 if kept["method"] == "joint" else len(stream)
        assert len(kept["r"]) == len(kept["r_valid"]) == len(top1) == tasks
        assert all(0 <= r <= 1 for r in kept["r"])
        assert kept["commit"]
        assert kept["command"].startswith("polarbear run ")
