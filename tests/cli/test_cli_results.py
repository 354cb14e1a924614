"""The commands that read results: what they print, what they refuse to write."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from polarbear.cli import main
from polarbear.cli.commands.runs import _all_read
from polarbear.cli.shared.several_runs import print_outcomes
from polarbear.launch.fleet import Outcome
from polarbear.report.read.paper import paper_results
from polarbear.runs.folder import RunFolder
from synthetic_runs import make_run, shapes, summary

RESULTS = Path(__file__).parents[2] / "results"


@pytest.fixture(autouse=True)
def _clean_surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Written results stay in the test's own folder; 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


def printed(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main([str(word) for word in words]) == 0
    return capsys.readouterr().out


# --- what a run found -------------------------------------------------------------------------


def test_a_ratio_says_of_how_many_cases_it_is(capsys: Any) -> None:
    folder = make_run(Path("er"), predictions=True)
    view, tree = shapes(0).test(6), shapes(0).hierarchy
    predicted = np.zeros((len(view), len(view.classes)), bool)
    child = next(i for i, name in enumerate(view.classes) if tree.parent(name))
    predicted[:3, child] = True
    RunFolder(folder).save_predictions(6, predicted)
    shown = " ".join(printed(capsys, "resume", folder).split())
    assert f"of the subclasses it predicts (3 on {len(view)} images) come with" in shown
    (folder / "predictions" / "after_6.npz").write_bytes(b"damaged")
    assert "of the subclasses it predicts come with" in printed(capsys, "resume", folder)


# --- compare ----------------------------------------------------------------------------------


def test_a_difference_that_rounds_to_nothing_has_no_minus(capsys: Any) -> None:
    for order in range(3):
        shutil.copy(RESULTS / f"iirc-cifar/icarl-cnn/order-{order}.json", ".")
    shown = printed(capsys, "compare", ".")
    assert "+0.000" in shown  # 0.1498 after task 21, where the paper has 0.15
    assert "-0.000" not in shown


def cifar_run(folder: str, level: float, **settings: Any) -> Path:
    return make_run(Path(folder), benchmark="iirc-cifar", level=level, **settings)


def tables(shown: str) -> dict[str, list[str]]:
    """The lines below each title."""
    parts = [part.splitlines() for part in shown.strip().split("\n\n")]
    return {part[0]: part[1:] for part in parts}


def beside_paper(capsys: Any, *words: Any) -> Any:
    """The lines of each group of IIRC-CIFAR."""
    found = json.loads(printed(capsys, "compare", *words, "--json"))
    assert list(found) == ["iirc-cifar-v1"]
    return found["iirc-cifar-v1"]


def test_two_groups_of_a_method_have_their_own_numbers(capsys: Any) -> None:
    long, short = cifar_run("long", 0.7), cifar_run("short", 0.2, epochs=1, tasks=2, done=2)
    shown = tables(printed(capsys, "compare", long, short, "--paper"))
    titles = [f"ER, epochs {n}, 1 run (order 0, seed 100)" for n in (1, 140)]
    said = f"{short} has no scores after task 21: it has come to task 1"
    *groups, in_short, last = shown
    assert (groups, last) == (titles, said)
    assert in_short.startswith("ours less the paper's")
    few, all_of_them = (shown[title] for title in titles)
    assert few[0] == "not the paper's settings: epochs 1"
    assert (len(few), len(all_of_them)) == (1 + 1 + 1 + 2 + 1 + 1, 1 + 1 + 22 + 1 + 1)
    ours = {folder: f"{RunFolder(folder).table().r[0]:.3f}" for folder in (long, short)}
    assert few[3].split()[1] == ours[short] != ours[long] == all_of_them[2].split()[1]


def test_a_run_on_each_side_is_no_run_twice(capsys: Any, caplog: pytest.LogCaptureFixture) -> None:
    a, b = make_run(Path("a/er"), level=0.7), make_run(Path("b/er"), level=0.2)
    printed(capsys, "compare", "a", "b")
    assert "both count" not in caplog.text
    again = make_run(Path("a/again"))
    printed(capsys, "compare", "a", "b")
    assert f"{again} and {a} have the same order 0 and seed 100; both count" in caplog.text
    assert str(b) not in caplog.text


def test_json_keeps_every_group(capsys: Any) -> None:
    long, short = cifar_run("long", 0.7), cifar_run("short", 0.2, epochs=1)
    found = beside_paper(capsys, long, short, "--paper")
    assert set(found) == {"er, epochs 1", "er, epochs 140"}
    for key, folder in (("er, epochs 1", short), ("er, epochs 140", long)):
        assert found[key]["tasks"][0]["ours"] == RunFolder(folder).table().r[0]
    assert list(beside_paper(capsys, long)) == ["er"]


def test_a_run_of_few_tasks_counts_for_those_it_has(capsys: Any) -> None:
    both = cifar_run("long", 0.7), cifar_run("short", 0.2, order=1, tasks=2, done=2)
    lines = beside_paper(capsys, *both, "--paper")["er"]["tasks"]
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


def test_the_difference_from_the_paper_has_the_error_of_both_sides(capsys: Any) -> None:
    values = [0.70, 0.66, 0.71, 0.64]
    for order, value in enumerate(values):
        summary(Path(f"r/iirc-cifar/er/order-{order}.json"), [value] + [0.5] * 21, order=order)
    first = beside_paper(capsys, "r")["er"]["tasks"][0]
    # ER in the paper: 0.72 (0.039) over ten orders.
    due = stats.ttest_ind_from_stats(
        *(np.mean(values), np.std(values, ddof=1), 4), *(0.72, 0.039, 10), equal_var=False
    )
    assert first["difference"] == pytest.approx(np.mean(values) - 0.72)
    variances = [np.var(values, ddof=1) / 4, 0.039**2 / 10]
    df = sum(variances) ** 2 / (variances[0] ** 2 / 3 + variances[1] ** 2 / 9)
    half = stats.t.ppf(0.975, df) * first["difference"] / due.statistic
    assert first["half_width"] == pytest.approx(half + 0.005)  # which the paper's rounding may hide
    assert (first["runs"], first["paper_runs"]) == (4, 10)
    shown = printed(capsys, "compare", "r")
    assert f"{first['difference']:+.3f}" in shown.splitlines()[3]
    assert f"±{first['half_width']:.3f}" in shown.splitlines()[3]


def test_one_run_has_no_interval(capsys: Any) -> None:
    cifar_run("one", 0.7)
    shown = printed(capsys, "compare", "one")
    assert "One run on a side has no interval: run more class orders (--orders 0-9)." in shown
    found = beside_paper(capsys, "one")["er"]
    for line in (found["tasks"][0], found["mean"]):
        assert (line["half_width"], line["ours_std"], line["runs"]) == (None, None, 1)
    assert (found["tasks_apart"], found["verdict"]) == (None, None)


def test_the_means_over_tasks_have_the_papers_deviation_at_its_most(capsys: Any) -> None:
    levels = [0.14, 0.16, 0.19, 0.15, 0.17]
    for order, level in enumerate(levels):
        summary(Path(f"r/iirc-cifar/er/order-{order}.json"), [level] * 22, order=order)
    mean = beside_paper(capsys, "r")["er"]["mean"]
    papers = paper_results("iirc-cifar")["er"]
    theirs = papers.mean.mean(), papers.std.mean()
    due = stats.ttest_ind_from_stats(
        *(np.mean(levels), np.std(levels, ddof=1), 5), *theirs, 10, equal_var=False
    )
    assert (mean["task"], mean["runs"], mean["paper_std"]) == ("mean", 5, pytest.approx(theirs[1]))
    assert mean["difference"] == pytest.approx(np.mean(levels) - theirs[0])
    variances = [np.var(levels, ddof=1) / 5, theirs[1] ** 2 / 10]
    df = sum(variances) ** 2 / (variances[0] ** 2 / 4 + variances[1] ** 2 / 9)
    half = stats.t.ppf(0.975, df) * mean["difference"] / due.statistic
    assert mean["half_width"] == pytest.approx(half + 0.005 / 22**0.5)
    line = printed(capsys, "compare", "r").splitlines()[3 + 22]
    assert line.split()[:2] == ["mean", f"{np.mean(levels):.3f}"]


def of_paper(method: str, less: float, tasks: int = 22) -> None:
    """Three runs on the paper's scores, but for some tasks, which are lower."""
    scores = paper_results("iirc-cifar")[method].mean.copy()
    scores[:tasks] -= less
    for order in range(3):
        summary(Path(f"r/iirc-cifar/{method}/order-{order}.json"), [*scores], order=order)


def test_a_verdict_is_by_the_mean_over_tasks_and_by_how_many_are_apart(capsys: Any) -> None:
    of_paper("er", 0.0)
    of_paper("lucir", 0.3)  # whose deviations are wide
    of_paper("agem", 0.1, tasks=3)  # as many as chance puts there in one of ten cases
    of_paper("icarl-norm", 0.06, tasks=4)  # in one of fifty
    of_paper("icarl-cnn", 0.1, tasks=1)
    found = beside_paper(capsys, "r")
    said = {name: (one["tasks_apart"], one["verdict"]) for name, one in found.items()}
    assert said["er"] == (0, "within chance")
    assert said["lucir"][1] == "differs"
    assert said["icarl-cnn"] == (1, "within chance")
    assert said["agem"] == (3, "within chance")
    assert said["icarl-norm"] == (4, "differs")
    assert (
        abs(found["icarl-norm"]["mean"]["difference"]) < found["icarl-norm"]["mean"]["half_width"]
    )
    in_short = tables(printed(capsys, "compare", "r"))
    (lines,) = (lines for title, lines in in_short.items() if title.startswith("ours less"))
    assert [line.split()[0] for line in lines] == [
        "ER",
        "A-GEM",
        "iCaRL-CNN",
        "iCaRL-norm",
        "LUCIR",
    ]
    shown = dict(line.rsplit("  ", 1) for line in lines)
    assert {words.split()[0]: v.strip() for words, v in shown.items()}["iCaRL-norm"] == "differs"


def of_orders(folder: str, method: str, orders: Any, level: float = 0.5, **settings: Any) -> Path:
    for order in orders:
        make_run(Path(folder) / f"{method}-{order}", method, order, level=level, **settings)
    return Path(folder)


def r(folder: Path, task: int) -> float:
    return float(RunFolder(folder).table().r[task])


def test_two_folders_are_compared_order_by_order(capsys: Any) -> None:
    of_orders("a", "er", range(4)), of_orders("b", "lucir", range(1, 5), 0.6)
    found = json.loads(printed(capsys, "compare", "a", "b", "--json"))
    (pair,) = found["compared"]
    assert pair["paired_by_order"] == [1, 2, 3]
    a = [[r(Path(f"a/er-{o}"), j) for o in (1, 2, 3)] for j in range(7)]
    b = [[r(Path(f"b/lucir-{o}"), j) for o in (1, 2, 3)] for j in range(7)]
    for line, ours, theirs in zip(pair["tasks"], a, b, strict=True):
        due = stats.ttest_rel(ours, theirs)
        assert (line["a"], line["b"]) == pytest.approx((np.mean(ours), np.mean(theirs)))
        assert line["p"] == pytest.approx(due.pvalue)
        assert line["difference"] + line["half_width"] == pytest.approx(
            due.confidence_interval(0.95).high
        )
        assert (line["n"], line["paired"]) == ([3, 3], True)
    over = stats.ttest_rel(np.mean(a, axis=0), np.mean(b, axis=0))
    assert pair["mean"]["p"] == pytest.approx(over.pvalue)
    shown = printed(capsys, "compare", "a", "b").splitlines()
    assert shown[:3] == [
        "a: ER, 4 runs (orders 0–3, seed 100) in a",
        "b: LUCIR, 4 runs (orders 1–4, seed 100) in b",
        "paired by the 3 class orders that both have; 95 % intervals (t)",
    ]
    assert shown[4 + 7].split()[0] == "mean"


def test_seeds_of_an_order_count_once(capsys: Any) -> None:
    of_orders("a", "er", (0, 1)), of_orders("b", "lucir", (0, 1))
    more = make_run(Path("a/again"), "er", 0, 7)
    (pair,) = json.loads(printed(capsys, "compare", "a", "b", "--json"))["compared"]
    mean = ((r(more, 0) + r(Path("a/er-0"), 0)) / 2 + r(Path("a/er-1"), 0)) / 2
    assert pair["tasks"][0]["a"] == pytest.approx(mean)
    assert pair["tasks"][0]["n"] == [2, 2]


def test_other_orders_are_compared_unpaired(capsys: Any) -> None:
    of_orders("a", "er", (0, 1, 2)), of_orders("b", "er", (3, 4), epochs=3)
    (pair,) = json.loads(printed(capsys, "compare", "a", "b", "--json"))["compared"]
    ours, theirs = ([r(path, 2) for path in Path(x).iterdir()] for x in "ab")
    due = stats.ttest_ind(ours, theirs, equal_var=False)
    assert pair["tasks"][2]["p"] == pytest.approx(due.pvalue)
    assert (pair["tasks"][2]["n"], pair["tasks"][2]["paired"]) == ([3, 2], False)
    shown = printed(capsys, "compare", "a", "b")
    assert "unpaired, as they share fewer than two class orders" in shown
    assert "b: ER, epochs 3, 2 runs (orders 3, 4, seed 100) in b" in shown


def test_two_single_runs_are_compared(capsys: Any) -> None:
    a, b = make_run(Path("a")), make_run(Path("b"), order=1)
    (pair,) = json.loads(printed(capsys, "compare", f"{a}/", b, "--json"))["compared"]
    assert pair["tasks"][3]["difference"] == pytest.approx(r(a, 3) - r(b, 3))
    assert pair["tasks"][3]["half_width"] is None


def test_folders_of_several_methods_are_compared_method_by_method(
    capsys: Any, refused: Any
) -> None:
    for folder, methods in (("old", ("er", "lucir")), ("new", ("er", "agem"))):
        for method in methods:
            of_orders(folder, method, (0, 1))
    shown = printed(capsys, "compare", "old", "new")
    assert shown.count("a: ") == shown.count("b: ER, 2 runs (orders 0, 1, seed 100) in new") == 1
    assert "LUCIR is in old alone" in shown
    assert "A-GEM is in new alone" in shown
    of_orders("others", "icarl-cnn", (0,)), of_orders("others", "icarl-norm", (0,))
    assert "have no method in common" in refused("compare", "old", "others")
    message = refused("compare", "old", "old/er-0")
    assert "old/er-0 is in both old and old/er-0" in message


def test_our_own_results_have_the_papers_settings(capsys: Any) -> None:
    assert "not the paper's" not in printed(capsys, "compare", RESULTS / "iirc-cifar")


def test_results_of_several_benchmarks_are_compared_one_after_another(
    capsys: Any, caplog: pytest.LogCaptureFixture
) -> None:
    alone = printed(capsys, "compare", RESULTS / "iirc-cifar")
    with_numbers = [title for title, lines in tables(alone).items() if lines]
    assert len(with_numbers) == 7 + 1  # methods, and the table of all of them
    (others,) = (title for title in tables(alone) if title.startswith("The paper has no numbers"))
    assert {"finetune", "Kin"} < {*re.split(", |for |[.]", others)}
    shown = printed(capsys, "compare", RESULTS)
    fives, fifty, second = (
        f"{name}: the paper has no table for it\n\n"
        for name in ("cil-cifar-b0-5-v1", "cil-cifar-v1", "iirc-cifar-v2")
    )
    assert shown == f"{fives}{fifty}iirc-cifar-v1\n\n{alone}{second}"
    assert caplog.messages == [f"left out: {RESULTS / 'ablations'} (give that folder to see it)"]
    one = printed(capsys, "compare", RESULTS / "iirc-cifar", "--json")
    assert printed(capsys, "compare", RESULTS, "--json") == one  # a program reads either alike


def test_ablations_are_compared_where_they_are_asked_for(capsys: Any) -> None:
    shown = printed(capsys, "compare", RESULTS / "ablations")
    assert "not the paper's settings: epochs 70" in shown


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
        shown = printed(capsys, "summarise", folder)
        assert shown.endswith("results/iirc-shapes/er/order-0.json (2 of 7 tasks)\n")


def test_a_run_without_its_environment_is_left_out_and_the_others_written() -> None:
    finished("runs/a")
    make_run(Path("runs/b"), order=1)  # nothing of where it was made
    words = [sys.executable, "-m", "polarbear", "summarise", "runs"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "results/iirc-shapes/er/order-0.json"
    assert done.stderr.startswith("left out: runs/b")
    assert done.stderr.count("\n") == 1
    assert not Path("results/iirc-shapes/er/order-1.json").exists()


@pytest.mark.parametrize(
    "name",
    [
        "../../outside",
        "/tmp/outside",
        "..",
        "a/../../../b:C",
        "..:Class",
        ":",
        "x\0y",
        "n" * 300,
        "\ud800",
    ],
)
@pytest.mark.parametrize("key", ["method", "benchmark"])
def test_summaries_stay_in_their_folder(
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    key: str,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = tmp_path / "deep" / "down" / "here"
    here.mkdir(parents=True)
    monkeypatch.chdir(here)
    file = finished("a") / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest["settings"][key] = name
    file.write_text(json.dumps(manifest))
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    if main(["summarise", "a", "--out", "kept"]) == 0:
        (written,) = {path for path in tmp_path.rglob("*") if path.is_file()} - before
        assert (here / "kept") in written.parents
        assert len(written.relative_to(here).parts) == 4
        assert json.loads(written.read_text())[key] == name
    else:  # no such folder can be asked for
        assert caplog.messages[0].startswith("left out: a")


# --- reading is safe ------------------------------------------------------------------------------


def spoiled(folder: str, how: str) -> Path:
    """A finished run with one file damaged."""
    path = finished(folder, seed=5)
    texts = {
        "brackets": ("manifest.json", "[" * 100_000),
        "no settings": ("manifest.json", '{"format": 1}'),
        "a line that is a list": ("scores.jsonl", "[]\n"),
        "infinite": ("scores.jsonl", (path / "scores.jsonl").read_text().replace("0.", "1e999")),
        "no seconds": ("finished.json", "[]"),
    }
    if how in texts:
        (path / texts[how][0]).write_text(texts[how][1])
        return path
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["settings"]["order"] = [1]
    (path / "manifest.json").write_text(json.dumps(manifest))
    return path


DAMAGES = ("brackets", "no settings", "a line that is a list", "infinite", "order")


@pytest.mark.parametrize("how", DAMAGES)
def test_one_damaged_run_is_left_out_by_name(
    how: str, capsys: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    finished("runs/good")
    bad = spoiled("runs/bad", how)
    for words in (
        ("runs", "runs"),
        ("summarise", "runs"),
        ("report", "runs", "--figures", "average-pw-js", "--formats", "svg"),
    ):
        caplog.clear()
        assert main(list(words)) == 0, words
        (told,) = [message for message in caplog.messages if str(bad) in message]
        assert told.startswith(("left out: ", "unreadable: "))
        assert len(told.splitlines()) == 1
    capsys.readouterr()
    listed = json.loads(printed(capsys, "runs", "runs", "--json"))
    assert [line["state"] for line in listed] == ["unreadable", "finished"]
    assert str(bad) in listed[0]["problem"]


def test_a_run_whose_end_is_damaged_is_not_summarised(caplog: pytest.LogCaptureFixture) -> None:
    finished("runs/good")
    bad = spoiled("runs/bad", "no seconds")
    manifest = json.loads((bad / "manifest.json").read_text())
    manifest["settings"]["order"] = 1
    (bad / "manifest.json").write_text(json.dumps(manifest))
    assert main(["summarise", "runs"]) == 0
    assert str(bad) in caplog.messages[-1]
    assert not Path("results/iirc-shapes/er/order-1.json").exists()


@pytest.mark.parametrize("how", DAMAGES)
def test_one_damaged_result_is_left_out_of_a_comparison(
    how: str, capsys: Any, caplog: pytest.LogCaptureFixture
) -> None:
    cifar_run("runs/good", 0.5)
    bad = spoiled("runs/bad", how)
    assert main(["compare", "runs"]) == 0
    assert caplog.messages[0].startswith(f"left out: {bad}")
    assert capsys.readouterr().out.startswith("ER, 1 run")


def test_where_every_run_is_damaged_that_is_an_error(
    capsys: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for how in DAMAGES:
        spoiled(f"runs/{how}", how)
    for command in ("runs", "summarise", "report", "compare"):
        caplog.clear()
        assert main([command, "runs"]) == 2
        assert len(caplog.messages) == len(DAMAGES)
        assert capsys.readouterr().err.startswith("polarbear: ")


def test_classes_that_the_benchmark_does_not_have_spoil_no_other_run() -> None:
    from polarbear.report.build import build_report
    from polarbear.report.read.runs import read_runs

    make_run(Path("runs/a"), "lucir", predictions=True)
    file = make_run(Path("runs/b"), "er", predictions=True) / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest["classes"][0][0] = "no such class"
    manifest["settings"]["order"] = 10**30
    file.write_text(json.dumps(manifest))
    figures = ("confusion", "gallery", "river")
    made = build_report(read_runs("runs"), "out", formats=("svg",), only=figures)
    assert made.left_out == {}
    assert {"confusion", "gallery-lucir", "river", "page"} <= {one.name for one in made.made}


TRACE = "open({file!r}, 'w').close()\n"


def test_reading_results_imports_nothing_that_they_name(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever reads results that others made need not trust them."""
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    trace = tmp_path / "trace"
    Path("evil.py").write_text(TRACE.format(file=str(trace)))
    for method in ("evil:Method", "evil", "er"):
        folder = f"runs/{method.replace(':', '-')}"
        finished(folder, method=method, network="evil:network", options={"a": 1})
    cifar = {"benchmark": "iirc-cifar", "options": {"a": 1}, "network": "evil:network"}
    for method in ("evil:Method", "er"):
        make_run(Path("cifar") / method.replace(":", "-"), method, **cifar)
    told = {"method": "evil:Method", "options": {"a": 1}, "network": "evil:network"}
    summary(Path("results/iirc-cifar/er/order-0.json"), [0.5] * 22, method="er", settings=told)
    np.savez("predictions.npz", benchmark="evil:benchmark")
    for words in (
        ("runs", "runs"),
        ("compare", "cifar"),
        ("compare", "results"),
        ("summarise", "runs", "--out", "summaries"),
        ("report", "runs", "--figures", "average-pw-js", "--formats", "svg"),
        ("score", "predictions.npz"),
        ("describe", "evil:benchmark"),
        ("describe", "evil"),
    ):
        assert main(list(words)) == (2 if words[0] in ("score", "describe") else 0), words
        assert not trace.exists(), words
    command = json.loads(
        Path("summaries/iirc-shapes/evil.Method/order-0.json").read_text(encoding="utf-8")
    )["command"]
    assert "--options.a 1" in command
    # The module is where `polarbear run` would find it.
    assert main(["run", "evil:Method", "--benchmark", "iirc-shapes"]) == 2
    assert trace.exists()


# --- report and fleet -------------------------------------------------------------------------


def test_report_says_that_the_paper_has_no_table(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    make_run(Path("runs/a"), done=2)
    shown = printed(capsys, "report", "runs", "--paper", "--figures", "average-pw-js")
    assert "left out: the paper's numbers: the paper has no table for iirc-shapes-v1\n" in shown


def test_a_fleets_short_runs_have_a_last_score(capsys: Any) -> None:
    short, none = make_run(Path("short"), done=2, tasks=2), make_run(Path("none"), done=0)
    print_outcomes({str(short): Outcome(True), str(none): Outcome(True)})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1] == ["short", "finished", f"{RunFolder(short).table().r[1]:.3f}"]
    assert lines[2] == ["none", "finished", "–"]


def test_runs_that_were_finished_are_not_read_again(tmp_path: Path) -> None:
    make_run(tmp_path / "finished")
    make_run(tmp_path / "going", order=1, done=1)
    first = _all_read(tmp_path, {})
    again = _all_read(tmp_path, first)
    assert list(again) == [str(tmp_path / "finished"), str(tmp_path / "going")]
    assert [again[path] is first[path] for path in again] == [True, False]
    shutil.rmtree(tmp_path / "finished")
    assert list(_all_read(tmp_path, again)) == [str(tmp_path / "going")]
