"""The commands that read results: what they print, what they refuse to write."""

import json
from pathlib import Path
from typing import Any

import pytest

from polarbear.cli import main
from polarbear.cli.shared import fleet_lines as fleet
from polarbear.launch.fleet import Outcome
from polarbear.runs.folder import RunFolder
from synthetic_runs import make_run, summary

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(autouse=True)
def _clean_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Written results stay in the test's own folder; 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def printed(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main([str(word) for word in words]) == 0
    return capsys.readouterr().out


# --- compare ----------------------------------------------------------------------------------


def cifar_run(folder: str, level: float, **settings: Any) -> Path:
    return make_run(Path(folder), benchmark="iirc-cifar", level=level, **settings)


def tables(shown: str) -> dict[str, list[str]]:
    """The lines below each title."""
    parts = [part.splitlines() for part in shown.strip().split("\n\n")]
    return {part[0]: part[1:] for part in parts}


def test_two_groups_of_a_method_have_their_own_numbers(capsys: Any) -> None:
    long, short = cifar_run("long", 0.7), cifar_run("short", 0.2, epochs=1, tasks=2, done=2)
    shown = tables(printed(capsys, "compare", long, short))
    assert list(shown) == ["ER, epochs 1, 1 run", "ER, epochs 140, 1 run"]
    few, all_of_them = shown.values()
    assert few[0] == "not the paper's settings: epochs 1"
    assert (len(few), len(all_of_them)) == (1 + 1 + 2, 1 + 22)
    ours = {folder: f"{RunFolder(folder).table().r[0]:.3f}" for folder in (long, short)}
    assert few[2].split()[1] == ours[short] != ours[long] == all_of_them[1].split()[1]


def test_json_keeps_every_group(capsys: Any) -> None:
    long, short = cifar_run("long", 0.7), cifar_run("short", 0.2, epochs=1)
    found = json.loads(printed(capsys, "compare", long, short, "--json"))
    assert set(found) == {"er, epochs 1", "er, epochs 140"}
    for key, folder in (("er, epochs 1", short), ("er, epochs 140", long)):
        assert found[key][0]["ours"] == RunFolder(folder).table().r[0]
    assert list(json.loads(printed(capsys, "compare", long, "--json"))) == ["er"]


def test_a_run_of_few_tasks_counts_for_those_it_has(capsys: Any) -> None:
    both = cifar_run("long", 0.7), cifar_run("short", 0.2, order=1, tasks=2, done=2)
    lines = json.loads(printed(capsys, "compare", *both, "--json"))["er"]
    assert [line["runs"] for line in lines] == [2, 2, *[1] * 20]


def test_what_is_not_the_papers_is_said(capsys: Any) -> None:
    ways = {"device": "cpu", "precision": "fp32", "fused": False, "keep_scores": True, "seed": 3}
    cifar_run("same", 0.7, **ways)
    assert "not the paper's" not in printed(capsys, "compare", "same")
    cifar_run("other", 0.7, memory_per_class=None, batch_size=64)
    assert "not the paper's settings: batch size 64, memory all\n" in printed(
        capsys, "compare", "other"
    )
    options = {"margin": 0.3, "top_k": 2}
    make_run(Path("lucir"), "lucir", benchmark="iirc-cifar", options=options)
    assert "not the paper's settings: margin 0.3\n" in printed(capsys, "compare", "lucir")
    summary(Path("bare/iirc-cifar/er/order-0.json"), [0.5] * 22)
    assert "not the paper's" not in printed(capsys, "compare", "bare")
    summary(Path("few/iirc-cifar/er/order-0.json"), [0.5] * 22, settings={"epochs": 3})
    assert "not the paper's settings: epochs 3\n" in printed(capsys, "compare", "few")


def test_our_own_results_have_the_papers_settings(capsys: Any) -> None:
    assert "not the paper's" not in printed(capsys, "compare", RESULTS)


# --- summarise --------------------------------------------------------------------------------


def finished(folder: str, **settings: Any) -> Path:
    """A run with all that a summary tells."""
    path = make_run(Path(folder), **settings)
    manifest = json.loads((path / "manifest.json").read_text())
    versions = dict.fromkeys(("polarbear", "python", "numpy", "torch"), "1")
    environment = {"commit": "c", "device": "cpu", "precision": "fp32", **versions}
    content = {**manifest, "environment": environment, "data": "none"}
    (path / "manifest.json").write_text(json.dumps(content))
    return path


def test_runs_that_would_share_a_file_are_refused(capsys: Any, refused: Any) -> None:
    one, two, _ = finished("runs/a"), finished("runs/b", seed=7), finished("runs/c", order=1)
    for more in ((), ("--overwrite",)):
        error = refused("summarise", "runs", *more)
        assert f"{one} and {two} would both be results/iirc-shapes/er/order-0.json" in error
        assert "--out" in error
    assert not Path("results").exists()
    printed(capsys, "summarise", one)
    printed(capsys, "summarise", two, "--out", "seed-7")
    assert Path("seed-7/iirc-shapes/er/order-0.json").is_file()


def test_another_runs_file_is_written_over_only_on_request(capsys: Any, refused: Any) -> None:
    one, two = finished("a"), finished("b", seed=7)
    file = Path("results/iirc-shapes/er/order-0.json")
    printed(capsys, "summarise", one)
    before = file.read_bytes()
    error = refused("summarise", two)
    assert f"{file} has other scores than {two}" in error
    assert "--overwrite" in error
    assert file.read_bytes() == before
    printed(capsys, "summarise", one)  # the same run again
    printed(capsys, "summarise", two, "--overwrite")
    assert json.loads(file.read_text())["seed"] == 7


def test_a_file_that_is_no_summary_is_not_written_over(capsys: Any, refused: Any) -> None:
    file = Path("results/iirc-shapes/er/order-0.json")
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    assert f"{file} has other scores" in refused("summarise", finished("a"))
    assert file.read_text() == "mine"


def test_a_run_of_few_tasks_can_be_summarised_again(capsys: Any) -> None:
    folder = finished("a", done=2, tasks=2)
    (folder / "finished.json").write_text('{"seconds": 1.0}')
    for _ in range(2):
        printed(capsys, "summarise", folder)


# --- report and fleet -------------------------------------------------------------------------


def test_report_says_that_the_paper_has_no_table(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    make_run(Path("runs/a"), done=2)
    shown = printed(capsys, "report", "runs", "--paper", "--figures", "average-pw-js")
    assert "left out: the paper's numbers: the paper has no table for iirc-shapes-v1\n" in shown


def test_a_fleets_short_runs_have_a_last_score(capsys: Any) -> None:
    short, none = make_run(Path("short"), done=2, tasks=2), make_run(Path("none"), done=0)
    fleet.print_outcomes({str(short): Outcome(True), str(none): Outcome(True)})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1] == ["short", "finished", f"{RunFolder(short).table().r[1]:.3f}"]
    assert lines[2] == ["none", "finished", "–"]
