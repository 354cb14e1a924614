"""Kept raw scores scored by other rules: of real runs on the embedded benchmark."""

import csv
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine_run import tiny
from polarbear.base.errors import DataError
from polarbear.base.sealed import sealed
from polarbear.cli import main
from polarbear.launch.runner import run
from polarbear.report.build import build_report, draw
from polarbear.report.figures.decisions import decisions
from polarbear.report.options import Options
from polarbear.report.read.decided import ORACLES, RULES, decided
from polarbear.report.read.runs import read_runs
from polarbear.report.read.words import of_n
from polarbear.report.tables.decisions import decision_tables
from polarbear.runs.decided import ASKED
from polarbear.runs.folder import RunFolder
from polarbear.score.decide import Seen, decision
from polarbear.score.evaluate import Evaluator
from synthetic_runs import make_run, shapes, summary

pytestmark = pytest.mark.usefixtures("one_thread")

TASKS = 2


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of ER in different orders, one of kin: a method that infers parents."""
    path = tmp_path_factory.mktemp("runs")
    how: dict[str, Any] = {"network": "small", "epochs": 3, "learning_rate": 0.1, "batch_size": 16}
    ready = {"threshold": 0.1}  # to take a class for a parent
    for method, order, options in (("er", 0, {}), ("er", 1, {}), ("kin", 0, ready)):
        settings = tiny(method, order=order, tasks=TASKS, options=options, keep_scores=True, **how)
        assert run(settings, path / f"{method}-{order}")
    return path


def predicted(path: Path, rule: str, after: int) -> Any:
    """What a rule says of a run's raw scores."""
    folder = RunFolder(path)
    stream = shapes(folder.manifest()["settings"]["order"])
    (record,) = (r for r in folder.scores() if (r.after, r.split) == (after, "test"))
    parents = None if record.parents is None else np.array(record.parents)
    about = Seen.of(stream.hierarchy, stream.test(after).classes, parents=parents)
    return decision(rule)(folder.raw(after), about)


def slow_score(path: Path, rule: str, after: int) -> float:
    """R_j by a rule, worked out by the evaluator."""
    stream = shapes(RunFolder(path).manifest()["settings"]["order"])
    return Evaluator(stream).add(after, predicted(path, rule, after))["pw_jaccard"]


@pytest.mark.parametrize("over", ["last", "tasks"])
def test_each_rule_is_asked_of_the_raw_scores_of_each_run(folder: Path, over: Any) -> None:
    found = decided(read_runs(folder), over=over)
    er, kin = found.groups
    assert (found.last, dict(found.left_out)) == (TASKS - 1, {})
    moments = range(TASKS) if over == "tasks" else [TASKS - 1]
    for group, rules in ((er, set(ASKED) - {"top1-parent"}), (kin, ASKED)):
        for rule in rules:
            slow = [np.mean([slow_score(one.path, rule, j) for j in moments]) for one in group.runs]
            assert found.values[group.name][rule] == pytest.approx(slow)
        own = [RunFolder(one.path).table().r[list(moments)].mean() for one in group.runs]
        assert found.values[group.name]["own"] == pytest.approx(own)


def test_a_method_without_parents_cannot_be_asked_for_them(folder: Path) -> None:
    found = decided(read_runs(folder))
    er, kin = found.groups
    assert np.isnan(found.values["er"]["top1-parent"]).all()
    assert found.of(er, "top1-parent").n == 0
    assert found.of(kin, "top1-parent").n == 1


def test_kins_own_rule_is_the_expected_one(folder: Path) -> None:
    found = decided(read_runs(folder)).values["kin"]
    # Kept scores are rounded, so that an image may be decided otherwise.
    assert found["expected"] == pytest.approx(found["own"], abs=0.01)
    # How far apart two rules' scores are depends on the processor: so image by image.
    own = RunFolder(folder / "kin-0").predictions(TASKS - 1)
    otherwise = {
        rule: (predicted(folder / "kin-0", rule, TASKS - 1) != own).any(axis=1).mean()
        for rule in ("expected", "top1-parent")
    }
    assert otherwise["expected"] < 0.01 < otherwise["top1-parent"]


def test_a_group_has_mean_deviation_and_number(folder: Path) -> None:
    found = decided(read_runs(folder))
    er, kin = found.groups
    one, two = found.values["er"]["top1"]
    both, std = found.of(er, "top1"), abs(one - two) / 2**0.5
    assert (both.mean, both.std, both.n) == pytest.approx(((one + two) / 2, std, 2))
    single = found.of(kin, "own")
    assert (single.mean, single.n) == (found.values["kin"]["own"][0], 1)
    assert np.isnan(single.std)


def test_the_threshold_of_a_run_that_predicts_by_it_is_its_own(
    folder: Path, tmp_path: Path
) -> None:
    """An inclusive method takes a score of exactly 0 for a yes, which raw scores do not tell."""
    shutil.copytree(folder / "er-0", tmp_path / "er")
    run_folder = RunFolder(tmp_path / "er")
    run_folder.save_raw(TASKS - 1, np.ones_like(run_folder.raw(TASKS - 1)))
    found = decided(read_runs(tmp_path)).values["er"]
    assert found["threshold"] == found["own"] != slow_score(tmp_path / "er", "threshold", TASKS - 1)


def test_joint_training_stands_at_the_last_task(tmp_path: Path) -> None:
    assert run(tiny("joint", tasks=None, epochs=1, keep_scores=True), tmp_path / "joint")
    make_run(tmp_path / "er")  # so that there are several tasks
    found = decided(read_runs(tmp_path))
    (joint,) = found.groups
    assert found.last == joint.tasks - 1 > 0
    assert found.of(joint, "expected-tree").n == 1
    assert list(found.left_out) == [tmp_path / "er"]
    with pytest.raises(DataError, match="no run's raw scores can be used"):
        decided(read_runs(tmp_path), over="tasks")


def test_runs_without_raw_scores_are_named(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "runs")
    bare = make_run(tmp_path / "runs" / "bare", seed=8)
    small = summary(tmp_path / "runs" / "iirc-shapes" / "er" / "order-4.json", [0.5] * 7)
    lost, short = tmp_path / "runs" / "er-0", tmp_path / "runs" / "er-1"
    (lost / "raw" / f"after_{TASKS - 1}.npz").unlink()
    RunFolder(short).save_raw(TASKS - 1, RunFolder(short).raw(TASKS - 1)[:-1])
    found = decided(read_runs(tmp_path / "runs"))
    assert [group.name for group in found.groups] == ["kin"]
    assert found.left_out[bare] == "it was run without --keep-scores"
    assert found.left_out[small] == "its summary was written without its raw scores"
    assert f"has no raw scores after task {TASKS - 1}" in found.left_out[lost]
    assert "give --root of the run's data" in found.left_out[short]


def test_summaries_from_before_say_what_they_know(folder: Path, tmp_path: Path) -> None:
    """The likeliest class's score, and the paper's rule where the run predicted by it."""
    assert main(["summarise", str(folder), "--out", str(tmp_path)]) == 0
    file = tmp_path / "iirc-shapes" / "er" / "order-4.json"
    settings = json.loads((file.parent / "order-0.json").read_text("utf-8"))["settings"]
    summary(file, [0.5, 0.3], r_top1=[0.6, 0.4], order=4, seed=100, settings=settings)
    found = decided(read_runs(tmp_path))
    er, _ = found.groups
    values = {rule: found.values["er"][rule][-1] for rule in RULES}
    assert [values[rule] for rule in ("own", "threshold", "top1")] == [0.3, 0.3, 0.4]
    assert (found.of(er, "top1").n, found.of(er, "expected-tree").n) == (3, 2)
    assert not found.left_out


def test_a_mean_of_fewer_runs_than_there_are_says_so(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["summarise", str(folder), "--out", str(tmp_path)]) == 0
    file = tmp_path / "iirc-shapes" / "er" / "order-4.json"
    settings = json.loads((file.parent / "order-0.json").read_text("utf-8"))["settings"]
    summary(file, [0.5, 0.3], r_top1=[0.6, 0.4], order=4, seed=100, settings=settings)
    capsys.readouterr()
    assert main(["decide", str(tmp_path)]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("ER "))
    assert line.count("(n = 2)") == 2  # expected and expected-tree
    (table,) = decision_tables(read_runs(tmp_path), Options())
    assert [cell.text.endswith("(n = 2)") for cell in table.rows[0]].count(True) == 2


def test_a_figure_has_the_methods_whose_oracle_is_known(folder: Path, tmp_path: Path) -> None:
    settings = RunFolder(folder / "er-0").manifest()["settings"]
    file = tmp_path / "iirc-shapes" / "er" / "order-4.json"
    summary(file, [0.5, 0.3], r_top1=[0.6, 0.4], order=4, seed=100, settings=settings)
    with pytest.raises(DataError, match="what an oracle makes of its raw scores"):
        decisions(read_runs(tmp_path), Options())
    (drawn,) = decisions(read_runs([tmp_path, folder / "kin-0"]), Options())
    assert "1 run with kept raw scores" in drawn.caption


@pytest.mark.parametrize("over", ["last", "tasks"])
def test_summaries_say_what_their_runs_said(folder: Path, tmp_path: Path, over: Any) -> None:
    assert main(["summarise", str(folder), "--out", str(tmp_path)]) == 0
    whole, small = (decided(read_runs(one), over=over) for one in (folder, tmp_path))
    assert [group.name for group in small.groups] == ["er", "kin"]
    assert not small.left_out
    for group in ("er", "kin"):
        for rule in RULES:
            given = whole.values[group][rule], small.values[group][rule]
            np.testing.assert_allclose(*given, err_msg=f"{group} {rule}")


def test_damaged_parents_leave_their_run_out(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "runs")
    lines = RunFolder(tmp_path / "runs" / "kin-0").lines("scores")
    changed = [json.dumps(sealed({**line, "parents": [0]})) + "\n" for line in lines]
    (tmp_path / "runs" / "kin-0" / "scores.jsonl").write_text("".join(changed))
    found = decided(read_runs(tmp_path / "runs"))
    assert [group.name for group in found.groups] == ["er"]
    assert "inferred parents must be" in found.left_out[tmp_path / "runs" / "kin-0"]


def test_without_any_raw_scores_that_is_an_error(tmp_path: Path) -> None:
    make_run(tmp_path / "er")
    with pytest.raises(DataError, match=r"no run has kept its raw scores: .* --keep-scores"):
        decided(read_runs(tmp_path))


def test_raw_scores_are_of_test_images(folder: Path) -> None:
    with pytest.raises(DataError, match="of test images alone"):
        decided(read_runs(folder, split="post_valid"))


# --- the command ------------------------------------------------------------------------------


def test_the_command_shows_a_line_per_method(folder: Path, capsys: Any) -> None:
    assert main(["decide", str(folder)]) == 0
    title, *head, er, kin = capsys.readouterr().out.splitlines()
    assert title == f"pw-JS after task {TASKS - 1}, iirc-shapes-v1, mean ± 95 % interval over runs"
    columns = ["method", "runs", "orders", "seeds", *RULES, "(oracle)"]
    assert sorted(" ".join(head).split()) == sorted(columns)
    found = decided(read_runs(folder))
    one, two = found.values["er"]["own"]
    # Student's t with one degree of freedom is 12.706, the error of a mean of two half of this.
    half = 12.706 * abs(one - two) / 2
    interval = [f"{(one + two) / 2:.3f}", "±", f"{half:.3f}"]
    assert " ".join(interval) in er
    assert er.split()[:2] == ["ER", "2"]
    assert "–" in er.split()  # no parents
    assert "–" not in kin.split()


def test_the_command_names_what_is_left_out(folder: Path, tmp_path: Path, capsys: Any) -> None:
    bare = make_run(tmp_path / "bare", seed=8)
    assert main(["decide", str(folder), str(bare), "--over", "tasks"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"pw-JS over tasks 0 to {TASKS - 1}, ")
    assert f"left out: {bare}: it was run without --keep-scores\n" in said


def test_json_has_every_number(folder: Path, capsys: Any) -> None:
    assert main(["decide", str(folder), "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    found = decided(read_runs(folder))
    assert (content["over"], content["last_task"]) == ("last", TASKS - 1)
    assert content["left_out"] == {}
    for group in found.groups:
        for rule in RULES:
            given = content["groups"][group.name][rule]
            one = found.of(group, rule)
            if not one.n:
                assert given is None
                continue
            assert (given["mean"], given["runs"]) == (one.mean, one.n)
            assert given["std"] == (None if one.n == 1 else one.std)
            assert given["half_width"] == (None if one.n == 1 else one.half_width)
            assert given["oracle"] == (rule in ORACLES) == (rule == "expected-tree")


# --- in a report ------------------------------------------------------------------------------


def test_a_report_has_the_table_and_the_figure(folder: Path, tmp_path: Path) -> None:
    runs = read_runs(folder)
    report = build_report(runs, tmp_path, formats=("svg",), only=("decisions",))
    files = [file for one in report.made if one.name == "decisions" for file in one.files]
    assert sorted(file.suffix for file in files) == [".csv", ".md", ".svg", ".tex"]
    shown = (tmp_path / "tables" / "decisions.md").read_text(encoding="utf-8")
    assert "| expected-tree (oracle) |" in shown
    with (tmp_path / "tables" / "decisions.csv").open(encoding="utf-8", newline="") as lines:
        rows = {(row["method"], row["rule"]): row for row in csv.DictReader(lines)}
    found = decided(runs)
    for group in found.groups:
        for rule in RULES:
            row, one = rows[group.name, rule], found.of(group, rule)
            assert row["oracle"] == str(rule == "expected-tree")
            assert row["mean"] == (str(round(one.mean, 6)) if one.n else "")
            assert row["runs"] == str(one.n)


def test_the_figure_shows_knowledge_and_decision(folder: Path) -> None:
    runs = read_runs(folder)
    found = decided(runs)
    (drawing,) = draw("decisions", runs)
    (axes,) = drawing.figure.axes
    shown = {bar.get_label(): bar.lines[0].get_xdata().tolist() for bar in axes.containers}
    assert shown == {
        "decision: what was predicted": [found.of(group, "own").mean for group in found.groups],
        "knowledge: expected-tree (oracle)": [
            found.of(group, "expected-tree").mean for group in found.groups
        ],
    }
    assert "expected-tree (oracle)" in drawing.caption
    names = [t.get_text() for t in axes.get_yticklabels()]
    assert names == [f"ER ({of_n(2)})", f"Kin ({of_n(1)})"]


def test_a_run_that_stopped_early_is_left_out_with_the_reason(tmp_path: Path) -> None:
    for seed, tasks in ((1, 3), (2, 2)):
        settings = tiny("er", tasks=tasks, keep_scores=True, seed=seed)
        assert run(settings, tmp_path / str(seed))
    found = decided(read_runs(tmp_path))
    assert found.last == 2
    assert found.left_out[tmp_path / "2"].startswith("it has no scores after task 2")
    (tmp_path / "1" / "raw" / "after_2.npz").write_bytes(b"x")
    with pytest.raises(DataError, match="no run's raw scores can be used"):
        decided(read_runs(tmp_path))


def test_an_oracles_own_decision_is_said_to_be_one(tmp_path: Path) -> None:
    settings = tiny("er", tasks=2, keep_scores=True, decision="top1-per-level")
    assert run(settings, tmp_path / "er")
    found = decided(read_runs(tmp_path))
    (group,) = found.groups
    assert found.is_oracle(group, "own")
    assert not found.is_oracle(group, "threshold")
    assert found.is_oracle(group, "expected-tree")
