"""The whole report: its files, what it leaves out, its options and its messages."""

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from polarbear.base.errors import PolarbearError, UnknownNameError, install_line
from polarbear.benchmark.schedule import Schedule
from polarbear.cli import main
from polarbear.data.kinds import Data
from polarbear.named.folder import Blueprint
from polarbear.report.build import BY_METHOD, FIGURES, build_report
from polarbear.report.options import Options, chosen_pair
from polarbear.report.read.runs import read_runs
from synthetic_runs import make_run, summary


def test_everything_is_made_and_listed(tmp_path: Path) -> None:
    for method in ("er", "lucir"):
        make_run(tmp_path / "runs" / method, method, predictions=True)
    heard: list[str] = []
    runs = read_runs(tmp_path / "runs")
    report = build_report(runs, tmp_path / "out", formats=("svg",), say=heard.append)
    parts = {
        name: [f"{name}: {method}" for method in ("ER", "LUCIR")] if name in BY_METHOD else [name]
        for name in FIGURES
    }
    tables = ("tables: results", "tables: statistics", "tables: decisions")
    assert heard == [*itertools.chain(*parts.values()), *tables, "page"]
    lacking = {"memory", "inferred-tree", "logged", "decisions", "bytes-kept"}
    assert set(report.left_out) == lacking
    for one in report.made:
        assert all(file.stat().st_size > 100 for file in one.files)
        assert one.caption.endswith(".")
    made = {one.name for one in report.made}
    assert made >= set(FIGURES) - {*report.left_out, "gallery", "confusion-full"}
    assert made >= {"confusion-er", "gallery-lucir", "results-pw-js", "statistics-splits"}
    contents = (tmp_path / "out" / "contents.md").read_text(encoding="utf-8")
    assert "2 runs, test images: ER (1), LUCIR (1)." in contents
    assert "- **river** ([svg](figures/river.svg)): How the test images" in contents
    assert "- memory: it needs runs of one method with different memory_per_class" in contents
    listed = json.loads((tmp_path / "out" / "contents.json").read_text(encoding="utf-8"))
    assert listed["made"]["results-pw-js"][0] == "tables/results-pw-js.md"
    assert all((tmp_path / "out" / f).is_file() for files in listed["made"].values() for f in files)
    page = (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    linked = json.loads(page.split('id="files">')[1].split("</script>")[0])
    assert linked == {name: files for name, files in listed["made"].items() if name != "page"}
    shown = set(re.findall(r'data-files="(.*?)"', page)[0].split())
    assert shown >= {"average-pw-js", "per-task"}


def test_without_predictions_some_figures_are_left_out_and_say_so(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "a", done=2)
    runs = read_runs(tmp_path / "runs")
    report = build_report(runs, tmp_path / "out", formats=("svg",))
    reason = "no run has kept its predictions"
    left_out = dict.fromkeys(
        ("superclasses", "confusion", "confusion-full", "river", "gallery", "side-by-side"), reason
    )
    left_out["decisions"] = (
        "no run has kept its raw scores: `polarbear run` does with --keep-scores"
    )
    other = ("memory", "inferred-tree", "logged", "bytes-kept")
    assert {k: v for k, v in report.left_out.items() if k not in other} == left_out
    assert f"- river: {reason}" in (tmp_path / "out" / "contents.md").read_text(encoding="utf-8")


def test_several_processes_make_the_same(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "a", done=2)
    runs, only = read_runs(tmp_path / "runs"), ("hierarchy", "river")
    one, two = (
        build_report(runs, tmp_path / str(n), formats=("svg",), only=only, jobs=n) for n in (1, 2)
    )
    assert [m.name for m in one.made] == [m.name for m in two.made]
    assert one.left_out == two.left_out == {"river": "no run has kept its predictions"}
    drawn = [(tmp_path / n / "figures" / "hierarchy.svg").read_bytes() for n in "12"]
    assert drawn[0] == drawn[1]


def test_several_processes_know_a_benchmark_of_your_own(tmp_path: Path) -> None:
    home = own_benchmark(tmp_path)
    make_run(tmp_path / "runs" / "a", benchmark=str(home), predictions=True)
    runs, only = read_runs(tmp_path / "runs"), ("hierarchy", "confusion", "gallery", "river")
    report = build_report(runs, tmp_path / "out", formats=("svg",), only=only, jobs=2)
    assert report.left_out == {}
    assert {"hierarchy", "confusion", "gallery-er", "river"} <= {one.name for one in report.made}


def test_a_benchmark_folder_that_is_gone_stops_no_report(tmp_path: Path) -> None:
    home = own_benchmark(tmp_path)
    make_run(tmp_path / "runs" / "a", benchmark=str(home))
    runs = read_runs(tmp_path / "runs")
    home.rename(tmp_path / "elsewhere")
    only = ("average-pw-js", "hierarchy")
    report = build_report(runs, tmp_path / "out", formats=("svg",), only=only, jobs=2)
    assert "not registered here" in report.left_out["hierarchy"]
    assert "average-pw-js" in {one.name for one in report.made}


def own_benchmark(folder: Path) -> Path:
    """A benchmark folder of drawn noise: two bears and a lamp in two tasks."""
    leaves = ("brown bear", "lamp", "polar bear")
    arrays = {}
    for split, count in (("train", 10), ("test", 3)):
        labels = np.repeat(leaves, count)
        images = np.random.default_rng(0).integers(0, 256, (len(labels), 8, 8, 3), dtype=np.uint8)
        arrays |= {f"{split}_images": images, f"{split}_labels": labels}
    np.savez(folder / "arrays.npz", **arrays)
    tree = folder / "tree.toml"
    tree.write_text('alone = ["lamp"]\n[tree]\nbear = ["polar bear", "brown bear"]\n')
    orders = (Schedule.of([["bear"], ["polar bear", "lamp", "brown bear"]]),)
    return Blueprint("zoo", Data("arrays", folder / "arrays.npz"), tree, orders).write(
        folder / "zoo"
    )


def test_a_benchmark_without_the_papers_numbers_is_told(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "a", done=2)
    runs, only = read_runs(tmp_path / "runs"), ("average-pw-js",)
    report = build_report(runs, tmp_path / "out", Options(paper=True), formats=("svg",), only=only)
    assert report.left_out == {"the paper's numbers": "the paper has no table for iirc-shapes-v1"}
    without = build_report(runs, tmp_path / "out", formats=("svg",), only=only)
    assert without.left_out == {}


def test_a_short_run_is_said_to_be_missing_at_the_end(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "a")
    short = make_run(tmp_path / "runs" / "b", "lucir", done=2)
    only = ("average-pw-js",)
    report = build_report(read_runs(tmp_path / "runs"), tmp_path / "out", formats=(), only=only)
    name, why = f"{short}, from the scores after task 6", "it has come to task 1"
    assert report.left_out == {name: why}
    assert f"- {name}: {why}\n" in (tmp_path / "out" / "contents.md").read_text()


def test_wrong_choices_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    make_run(tmp_path / "a")
    runs, out = read_runs(tmp_path), tmp_path / "out"
    with pytest.raises(PolarbearError, match="no task 7 to show: iirc-shapes-v1 has tasks 0 to 6"):
        build_report(runs, out, Options(tasks=(7,)))
    with pytest.raises(UnknownNameError, match="unknown group of runs 'eer': did you mean 'er'"):
        build_report(runs, out, Options(compare=("er", "eer")))
    with pytest.raises(PolarbearError, match="two groups are compared side by side, not 1"):
        build_report(runs, out, Options(compare=("er",)))
    with pytest.raises(UnknownNameError, match="unknown superclass 'sqare'"):
        build_report(runs, out, Options(superclass="sqare"))
    with pytest.raises(UnknownNameError, match="unknown format 'eps'"):
        build_report(runs, out, formats=("eps",))
    with pytest.raises(UnknownNameError, match="unknown figure 'rivers': did you mean 'river'"):
        build_report(runs, out, only=("rivers",))
    assert not out.exists()


def test_the_best_two_are_compared_unless_named(tmp_path: Path) -> None:
    for method, level in (("finetune", 0.1), ("er", 0.5), ("lucir", 0.8)):
        make_run(tmp_path / method, method, level=level)
    groups = list(read_runs(tmp_path).groups)
    assert [g.name for g in chosen_pair(Options(), groups)] == ["lucir", "er"]
    make_run(tmp_path / "joint", "incremental-joint", level=0.9)
    groups = list(read_runs(tmp_path).groups)
    assert [g.name for g in chosen_pair(Options(), groups)] == ["lucir", "er"]  # no bound
    make_run(tmp_path / "stopped", "kin", done=1, level=0.95)  # its first task is easy
    groups = list(read_runs(tmp_path).groups)
    assert [g.name for g in chosen_pair(Options(), groups)] == ["lucir", "er"]
    named = Options(compare=("finetune", "lucir"))
    assert [g.name for g in chosen_pair(named, groups)] == ["finetune", "lucir"]


def command(*words: object) -> int:
    return main(["report", *map(str, words)])


def test_the_command_says_what_it_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    make_run(tmp_path / "a", seed=1)
    make_run(tmp_path / "b", seed=2, done=3)
    out = tmp_path / "out"
    choices = ("--formats", "png,pdf", "--figures", "average-pw-js,gallery", "--tasks", "0,2")
    assert command(tmp_path, "--out", out, *choices) == 0
    said = capsys.readouterr().out
    assert "iirc-shapes-v1, runs of ER (2)" in said
    assert f"1 figure and 9 tables in {out}" in said
    assert "left out: gallery: no run has kept its predictions" in said
    assert sorted(file.name for file in (out / "figures").iterdir()) == [
        *("average-pw-js.pdf", "average-pw-js.png")
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--tasks", "0,x"), "--tasks are whole numbers with commas between them"),
        (("--formats", "pgn"), "unknown format 'pgn': did you mean 'png'"),
        (("--compare", "er", "x"), "unknown group of runs 'x'"),
    ],
)
def test_the_command_refuses_wrong_choices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    make_run(tmp_path / "a", done=1)
    assert command(tmp_path, "--out", tmp_path / "out", *words) == 2
    assert message in capsys.readouterr().err


def test_the_command_refuses_empty_and_mixed_folders(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(tmp_path) == 2
    assert f"there is no run with scores in {tmp_path}" in capsys.readouterr().err
    make_run(tmp_path / "a", done=1)
    summary(tmp_path / "iirc-cifar" / "er" / "order-0.json", [0.5])
    assert command(tmp_path) == 2
    assert f"iirc-shapes-v1: {tmp_path / 'a'}" in capsys.readouterr().err


def test_the_systems_errors_come_with_their_file_and_what_to_do(
    tmp_path: Path, refused: Callable[..., str]
) -> None:
    make_run(tmp_path / "a", done=1)
    (tmp_path / "file").touch()
    words = ("report", tmp_path / "a", "--formats", "png", "--figures", "memory", "--out")
    for out, remedy in (
        (tmp_path / "file", "a file lies where a folder is needed: choose another folder"),
        (tmp_path / "file" / "out", "a file lies where a folder is needed: choose another folder"),
        (tmp_path / ("x" * 300), "choose a shorter name"),
    ):
        message = refused(*words, out)
        assert message.startswith(f"polarbear: {out}")
        assert remedy in message
        assert "Errno" not in message


REFUSE = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {refused!r}:
            raise ModuleNotFoundError(f"{{name}} is refused here", name=name.split(".")[0])

sys.meta_path.insert(0, Refuse())
from polarbear.report.build import build_report
from polarbear.report.read.runs import read_runs

runs = read_runs(sys.argv[1])
build_report(runs, sys.argv[2], formats=("png",), only=("confusion", "gallery", "memory"))
"""


def without(refused: tuple[str, ...], *words: Path) -> subprocess.CompletedProcess[str]:
    code = REFUSE.format(refused=refused)
    arguments = [sys.executable, "-W", "error", "-c", code, *map(str, words)]
    return subprocess.run(arguments, capture_output=True, text=True)


def test_a_report_needs_no_torch(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "a", predictions=True)
    done = without(("torch", "torchvision", "safetensors"), tmp_path / "runs", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    for name in ("confusion", "gallery-er"):
        assert (tmp_path / "out" / "figures" / f"{name}.png").stat().st_size > 1000


def test_what_to_install_is_said_where_matplotlib_is_missing(tmp_path: Path) -> None:
    make_run(tmp_path / "runs" / "a", done=1)
    done = without(("matplotlib",), tmp_path / "runs", tmp_path / "out")
    assert f"figures need: {install_line('report')}" in done.stderr
    assert not (tmp_path / "out").exists()
