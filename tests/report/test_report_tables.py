"""Tables say what the groups say, with intervals; bold is fair."""

import csv
import io
import math
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from polarbear.base.errors import DataError
from polarbear.report.options import Options
from polarbear.report.read.runs import Run, Runs, read_runs
from polarbear.report.read.series import average
from polarbear.report.tables.formats import Cell, Table, latex_text, save_table
from polarbear.report.tables.marks import best
from polarbear.report.tables.results import last_scores, result_tables, transfer
from polarbear.report.tables.statistics import statistics_of, statistics_tables
from polarbear.runs.folder import RunFolder
from synthetic_runs import make_run, shapes, summary


def cifar(folder: Path, **scores: list[float]) -> Runs:
    """Runs of two tasks: each method's values are R_1 of its orders, R_0 is 0.7."""
    for method, values in scores.items():
        for order, value in enumerate(values):
            name = method.replace("_", "-")
            file = folder / "iirc-cifar" / name / f"order-{order}.json"
            summary(file, [0.7, value], order=order, seed=100)
    return read_runs(folder)


def test_results_by_task_are_mean_and_interval(tmp_path: Path) -> None:
    runs = cifar(tmp_path, er=[0.30, 0.34], lucir=[0.5, 0.6], incremental_joint=[0.8])
    table = result_tables(runs)[0]
    assert table.name == "results-pw-js"
    assert table.head == ("task", "ER (n = 2)", "LUCIR (n = 2)", "incremental joint (n = 1)")
    # Student's t with one degree of freedom: 12.706.
    half = 12.706 * np.std([0.3, 0.34], ddof=1) / 2**0.5
    assert [cell.text for cell in table.rows[1]] == [
        "1",
        f"0.32 ± {half:.2f}",
        "0.55 ± 0.64",
        "0.80",
    ]
    assert "mean ± 95 % interval over n = 1 to 2 runs" in table.caption
    assert "ER, LUCIR: orders 0, 1, seed 100; incremental joint: order 0" in table.caption


def test_the_csv_has_numbers_in_full_and_the_number_of_runs(tmp_path: Path) -> None:
    runs = cifar(tmp_path, er=[0.3, 0.34], lucir=[1 / 3])
    rows = list(csv.DictReader(io.StringIO(result_tables(runs)[0].csv())))
    er = {"task": "1", "method": "er", "mean": "0.32", "std": "0.028284", "half_width": "0.254124"}
    assert rows[1] == er | {"runs": "2", "orders": "0, 1", "seeds": "100", "best": "0"}
    lucir = {"task": "1", "method": "lucir", "mean": "0.333333", "std": "", "half_width": ""}
    assert rows[3] == lucir | {"runs": "1", "orders": "0", "seeds": "100", "best": "0"}
    assert len(rows) == 4


def bold(runs: Runs, task: int = 1) -> list[bool]:
    """Which methods are bold after a task."""
    return [cell.bold for cell in result_tables(runs)[0].rows[task][1:]]


def test_the_best_is_bold_and_what_a_paired_test_cannot_tell_from_it(tmp_path: Path) -> None:
    hard = np.array([0.0, 0.1, 0.2, 0.3])  # what the orders have in common
    er, lucir = hard + 0.40, hard + np.array([0.38, 0.39, 0.37, 0.38])
    icarl = hard + np.array([0.42, 0.37, 0.41, 0.38])
    runs = cifar(tmp_path, er=er.tolist(), lucir=lucir.tolist(), icarl_cnn=icarl.tolist())
    assert [group.name for group in runs.groups] == ["er", "icarl-cnn", "lucir"]
    # LUCIR is always a little worse than ER, though the orders differ far more than they do.
    assert bold(runs) == [True, True, False]
    table = result_tables(runs)[0]
    assert (
        "Bold: the best mean and all that a paired t-test over the orders cannot" in table.caption
    )
    rows = list(csv.DictReader(io.StringIO(table.csv())))
    assert {row["method"]: row["best"] for row in rows if row["task"] == "1"} == {
        **{"er": "1", "icarl-cnn": "1", "lucir": "0"}
    }


@pytest.mark.parametrize(
    "scores",
    [
        {"er": [0.5, 0.51], "lucir": [0.1, 0.11]},  # of two orders
        {"er": [0.5, 0.51, 0.52, 0.53], "lucir": [0.1, 0.11, 0.12]},  # of other orders
        {"er": [0.5, 0.51, 0.52]},  # with nobody to compare with
        {"er": [0.5], "lucir": [0.1]},
    ],
)
def test_nothing_is_bold_where_methods_cannot_be_compared(
    tmp_path: Path, scores: dict[str, list[float]]
) -> None:
    runs = cifar(tmp_path, **scores)
    assert not any(bold(runs))
    assert "Nothing is bold" in result_tables(runs)[0].caption


def test_a_method_that_has_not_come_so_far_bars_nobody_from_comparison(tmp_path: Path) -> None:
    runs = three_orders(tmp_path, ("er", 0.9), ("lucir", 0.5))
    assert best(runs.groups, average("pw_jaccard"), 6) == {0}
    make_run(tmp_path / "agem", "agem", done=3)
    runs = read_runs(tmp_path)
    assert best(runs.groups, average("pw_jaccard"), 2) == set()  # of one order alone
    assert best(runs.groups, average("pw_jaccard"), 6) == {runs.names.index("er")}


def test_methods_of_other_seeds_are_not_compared(tmp_path: Path) -> None:
    for method, seed in (("er", 100), ("lucir", 7)):
        for order in range(3):
            file = tmp_path / "iirc-cifar" / method / f"order-{order}.json"
            summary(file, [0.7, 0.5 if method == "er" else 0.2], order=order, seed=seed)
    assert not any(bold(read_runs(tmp_path)))


def test_seeds_of_one_order_count_as_one(tmp_path: Path) -> None:
    for method, level in (("er", 0.5), ("lucir", 0.2)):
        for seed in range(3):
            file = tmp_path / "iirc-cifar" / method / f"order-0{seed}.json"
            summary(file, [0.7, level + 0.01 * seed], order=0, seed=seed)
    assert not any(bold(read_runs(tmp_path)))


def test_bounds_and_oracles_never_win(tmp_path: Path) -> None:
    scores = {"er": 0.3, "lucir": 0.2, "incremental-joint": 0.8, "agem": 0.9}
    for method, level in scores.items():
        for order in range(3):
            file = tmp_path / "iirc-cifar" / method / f"order-{order}.json"
            more = {"oracle": True} if method == "agem" else {}
            summary(file, [0.7, level + 0.01 * order], order=order, seed=1, **more)
    runs = read_runs(tmp_path)
    table = result_tables(runs)[0]
    assert dict(zip(table.head[1:], bold(runs), strict=True)) == {
        "ER (n = 3)": True,
        "A-GEM (oracle) (n = 3)": False,
        "LUCIR (n = 3)": False,
        "incremental joint (n = 3)": False,
    }


def three_orders(folder: Path, *methods: tuple[str, float], **more: Any) -> Runs:
    for method, level in methods:
        for order in range(3):
            make_run(folder / method / str(order), method, order, level=level, **more)
    return read_runs(folder)


def test_a_ratio_over_few_cases_says_so_and_never_wins(tmp_path: Path) -> None:
    """ER predicts two subclasses in all, each with its superclass."""
    runs = three_orders(tmp_path, ("er", 0.9), ("lucir", 0.5), ("agem", 0.3), predictions=True)
    for run in runs.group("er").runs:
        stream = shapes(run.order or 0)
        view, tree = stream.test(6), stream.hierarchy
        predicted = np.zeros((len(view), len(view.classes)), bool)
        child = next(name for name in view.classes if tree.parent(name))
        predicted[:2, [view.classes.index(name) for name in tree.labels_of(child)]] = True
        RunFolder(run.path).save_predictions(6, predicted)
    table = last_scores(read_runs(tmp_path))
    column = table.head.index("implication")
    er, agem, lucir = (row[column] for row in table.rows)
    assert (er.text[:3], er.text[-5:]) == ("0.9", " of 2")
    assert [(one.dim, one.bold) for one in (er, agem, lucir)] == [
        *((True, False), (False, False), (False, True))
    ]
    assert int(lucir.text.partition(" of ")[2].replace(",", "")) > 100
    assert f"**{er.text}**" not in table.markdown()
    assert f'<span style="color:gray">{er.text}</span>' in table.markdown()
    assert rf"\textcolor{{gray}}{{{latex_text(er.text)}}}" in table.latex()
    (line,) = [
        line
        for line in csv.DictReader(io.StringIO(table.csv()))
        if (line["method"], line["score"]) == ("er", "implication")
    ]
    assert (line["cases"], line["images"], line["best"]) == ("2.0", "870.0", "0")


def test_a_ratio_of_unknown_cases_does_not_win(tmp_path: Path) -> None:
    table = last_scores(three_orders(tmp_path, ("er", 0.9), ("lucir", 0.5)))
    column = {name: i for i, name in enumerate(table.head)}
    assert table.rows[0][column["pw-JS"]].bold
    assert not any(row[column["implication"]].bold for row in table.rows)


def test_transfer_and_cost_stand_beside_the_results(tmp_path: Path) -> None:
    runs = three_orders(tmp_path, ("er", 0.6), ("lucir", 0.4), predictions=True)
    for run in runs.group("er").runs:
        (run.path / "finished.json").write_text(
            '{"seconds": 90, "passes": 123000, "kept": {"images": 5000000, "networks": 2000000}}'
        )
    table = transfer(read_runs(tmp_path))
    er = dict(zip(table.head, (cell.text for cell in table.rows[0]), strict=True))
    assert {name: er[name] for name in ("method", "n", "orders", "seeds")} == {
        **{"method": "ER", "n": "3", "orders": "0–2", "seeds": "100"}
    }
    costs = [er[name] for name in ("image passes", "seconds", "bytes kept")]
    assert costs == ["123 k", "90", "7 M"]
    lucir = dict(zip(table.head, (cell.text for cell in table.rows[1]), strict=True))
    assert [lucir[name] for name in ("image passes", "seconds", "bytes kept")] == ["–", "1", "–"]
    # By hand, from the runs' own numbers.
    group = runs.group("er")
    average = np.mean([run.scores["pw_jaccard"].mean() for run in group.runs])
    r_jk = [run.by_task["pw_jaccard"] for run in group.runs]
    backward = np.mean([(r[6, :6] - np.diagonal(r)[:6]).mean() for r in r_jk])
    before = [
        [
            forward_by_hand(run, task)
            for task in range(1, 7)
            if forward_by_hand(run, task) is not None
        ]
        for run in group.runs
    ]
    forward = np.mean([np.mean(each) for each in before])
    numbers = {
        line["score"]: float(line["mean"])
        for line in csv.DictReader(io.StringIO(table.csv()))
        if line["method"] == "er"
    }
    assert numbers["average_incremental"] == pytest.approx(average, abs=1e-6)
    assert numbers["backward_transfer"] == pytest.approx(backward, abs=1e-6)
    assert numbers["forward_transfer"] == pytest.approx(forward, abs=1e-6)
    assert numbers["cost/passes"] == 123000


def test_a_summary_of_joint_training_says_of_what_its_ratios_are(tmp_path: Path) -> None:
    make_run(tmp_path / "er")
    told = {"implication": [40], "images": [870], "forward_transfer": [None]}
    file = tmp_path / "iirc-shapes" / "joint" / "order-0.json"
    summary(file, [0.9], order=0, seed=100, scores={"implication": [0.75]}, told=told)
    runs = read_runs(tmp_path)
    table = last_scores(runs)
    column = table.head.index("implication")
    assert [row[column].text for row in table.rows if row[0].text == "joint"] == ["0.75 of 40"]
    table = transfer(runs)
    column = table.head.index("average incremental score")
    assert [row[0].text for row in table.rows] == ["ER", "joint"]
    assert [row[column].text == "–" for row in table.rows] == [False, True]  # one task is no mean


def forward_by_hand(run: Run, task: int) -> float | None:
    """pw-JS right before a task, image by image, on those that carry a class seen and a new one."""
    stream = shapes(run.order or 0)
    view, predicted = stream.test(task - 1), run.predictions(task - 1)
    assert predicted is not None
    new, found = set(stream.schedule.tasks[task]), []
    for image, leaf in enumerate(view.leaf):
        if new & set(stream.hierarchy.labels_of(stream.hierarchy.names[leaf])):
            true = {c for c, yes in zip(view.classes, view.targets[image], strict=True) if yes}
            said = {c for c, yes in zip(view.classes, predicted[image], strict=True) if yes}
            both = len(true & said)
            found.append(both / len(true | said) * both / max(1, len(said)))
    return float(np.mean(found)) if found else None


def test_last_scores_compare_each_score_its_own_way(tmp_path: Path) -> None:
    runs = three_orders(tmp_path, ("er", 0.2), ("lucir", 0.6), ("joint", 0.9), predictions=True)
    table = last_scores(runs)
    assert [row[0].text for row in table.rows] == ["ER", "LUCIR", "joint"]
    column = {name: i for i, name in enumerate(table.head)}
    bold = {name: [row[i].bold for row in table.rows] for name, i in column.items()}
    assert bold["pw-JS"] == [False, True, False]
    assert bold["sibling error"] == [True, False, False]
    assert not any(bold["labels ÷ true"])
    shown = float(table.rows[1][column["late recall"]].text.split()[0])
    assert shown == pytest.approx(runs.group("lucir").mean("late_recall")[6], abs=0.005)


def test_last_scores_of_unfinished_runs_are_those_all_have(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "er", done=3)
    make_run(tmp_path / "b", "lucir", done=5)
    table = last_scores(read_runs(tmp_path))
    assert "Scores after task 2" in table.caption
    assert "fewer than all tasks in 2 of 2 runs" in table.caption


def test_a_short_run_is_not_among_the_last_scores(tmp_path: Path) -> None:
    for order in (0, 1):
        make_run(tmp_path / f"er-{order}", order=order)
    make_run(tmp_path / "er-2", order=2, done=3)
    make_run(tmp_path / "lucir", "lucir", done=2)
    table = last_scores(read_runs(tmp_path))
    assert "Scores after task 6" in table.caption
    assert [[cell.text for cell in row[:2]] for row in table.rows] == [["ER", "2"]]
    assert "over n = 2 runs (orders 0, 1, seed 100). Left out: 2 runs without" in table.caption
    known = [row for row in table.records[1:] if row[6] != ""]  # nobody knows what it cost
    assert {row[:5] for row in known} == {("er", 2, "0, 1", "100", 6)}


def test_a_run_of_few_tasks_is_not_called_unfinished(tmp_path: Path) -> None:
    (make_run(tmp_path / "a", done=2, tasks=2) / "finished.json").write_text('{"seconds": 1.0}')
    make_run(tmp_path / "b", seed=1)
    table = last_scores(read_runs(tmp_path))
    assert "one run per method (order 0, seed 1). Left out: 1 run without scores" in table.caption
    assert "fewer than all tasks in 1 of 2 runs." in result_tables(read_runs(tmp_path))[0].caption


def test_the_paper_stands_beside_ours(tmp_path: Path) -> None:
    for method in ("er", "finetune"):
        summary(tmp_path / "iirc-cifar" / method / "order-0.json", [0.5] * 22)
    table = {t.name: t for t in result_tables(read_runs(tmp_path), paper=True)}
    beside = table["results-beside-paper"]
    assert beside.head == ("task", "ER (n = 1)", "ER, paper")
    assert [cell.text for cell in beside.rows[21]] == ["21", "0.50", "0.13 (0.005)"]
    assert not any(t.name == "results-jaccard" for t in table.values())
    lines = beside.csv().splitlines()
    assert lines[0] == "task,method,mean,std,half_width,runs,orders,seeds,paper mean,paper std"
    assert lines[22] == "21,er,0.5,,,1,–,–,0.13,0.005"


def test_a_wide_table_shrinks_and_a_long_one_breaks() -> None:
    short, long = (
        Table("t", "c", ("x", "y"), ((Cell("a"), Cell("1")),) * n).latex() for n in (50, 51)
    )
    assert r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%" in short
    assert short.count(r"\begin{tabular}") == short.count(r"\end{tabular}}") == 1
    assert short.count("{") == short.count("}")
    assert r"\begin{table}" not in long
    assert long.count(r"x & y \\") == 2  # on the first page and on those after it
    assert long.index(r"\endfirsthead") < long.index(r"\endhead") < long.index("a & 1")
    assert long.count("{") == long.count("}")


@pytest.mark.skipif(
    shutil.which("pdflatex") is None,
    reason="needs pdflatex (Debian: texlive-latex-recommended), which is not installed",
)
def test_latex_takes_them(tmp_path: Path) -> None:
    awkward = Cell("a_b & 50 % – ± # $ ^ ~ { } \\", bold=True)
    grey = Cell("1 ≥ 0", dim=True)
    tables = [Table("t", "c_1", ("x", "y & z"), ((awkward, grey),) * n) for n in (2, 60)]
    packages = r"\documentclass{article}\usepackage{booktabs,graphicx,longtable,xcolor}"
    parts = [packages, r"\begin{document}", *(t.latex() for t in tables), r"\end{document}"]
    (tmp_path / "all.tex").write_text("\n".join(parts), encoding="utf-8")
    words = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "all.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert (tmp_path / "all.pdf").exists()


def test_tables_in_three_forms(tmp_path: Path) -> None:
    rows = ((Cell("a_b"), Cell("0.50 (0.010)", bold=True)), (Cell("c|d"), Cell("–")))
    table = Table("t", "50 % ± 1", ("x", "ER & co"), rows)
    assert table.markdown() == (
        "50 % ± 1\n\n| x | ER & co |\n| --- | ---: |\n| a_b | **0.50 (0.010)** |\n| c\\|d | – |\n"
    )
    latex = table.latex()
    for part in (
        *(r"\toprule", r"\midrule", r"\bottomrule", r"\begin{tabular}{lr}", r"\label{tab:t}"),
        *(r"x & ER \& co \\", r"a\_b & \textbf{0.50 (0.010)} \\", r"\caption{50 \% $\pm$ 1}"),
    ):
        assert part in latex
    assert table.csv() == "x,ER & co\na_b,0.50 (0.010)\nc|d,–\n"
    files = save_table(table, tmp_path / "out")
    assert [file.name for file in files] == ["t.md", "t.tex", "t.csv"]
    assert files[1].read_text(encoding="utf-8") == latex
    assert latex_text("\\{x}^~") == r"\textbackslash{}\{x\}\textasciicircum{}\textasciitilde{}"


def test_statistics_are_the_papers(tmp_path: Path) -> None:
    runs = cifar(tmp_path, er=[0.3])
    table = {t.name: t for t in statistics_tables(runs, Options())}
    assert [cell.text for cell in table["statistics-splits"].rows[0][1:]] == [
        *("46,160", "5,770", "40,000", "5,000", "5,000", "10,000")
    ]
    assert [cell.text for cell in table["statistics-classes"].rows[0][1:]] == [
        *("15", "77", "23", "115")
    ]
    sizes = {
        row[0].text: [cell.text for cell in row] for row in table["statistics-class-sizes"].rows
    }
    assert sizes["vehicles"][2:5:2] == ["8", "1,280"]
    assert sizes["bus"][1] == "vehicles"
    assert sizes["mushroom"][1:3] == ["–", "–"]
    assert (sizes["bus"][4], sizes["mushroom"][4]) == ("320", "400")
    tasks = table["statistics-tasks"].rows
    assert [cell.text for cell in tasks[0]][:5] == ["0", "10", "10", "10", "8,160"]
    assert len(tasks) == 22


def test_statistics_of_a_second_version_are_its_own(tmp_path: Path) -> None:
    summary(tmp_path / "iirc-cifar-v2" / "er" / "order-0.json", [0.5] * 22, order=0)
    counted = statistics_of(read_runs(tmp_path), Options())
    assert counted.name == "iirc-cifar-v2"
    assert {size.train for size in counted.class_sizes} == {320}


def test_statistics_without_data_count_classes_alone(tmp_path: Path) -> None:
    file = tmp_path / "iirc-imagenet-full" / "er" / "order-0.json"
    summary(file, [0.5] * 35, order=0)
    runs = read_runs(tmp_path)
    counted = statistics_of(runs, Options())
    assert counted.splits is None
    tables = statistics_tables(runs, Options())
    assert tables[0].name == "statistics-classes"
    assert [cell.text for cell in tables[0].rows[0][1:]] == ["85", "788", "210", "1,083"]


def test_a_benchmark_that_is_not_registered_has_no_statistics(tmp_path: Path) -> None:
    summary(tmp_path / "unheard-of" / "er" / "order-0.json", [0.5, 0.4])
    with pytest.raises(DataError, match=r"not registered here .unknown benchmark 'unheard-of'"):
        statistics_tables(read_runs(tmp_path), Options())
    assert math.isclose(read_runs(tmp_path).groups[0].mean("pw_jaccard")[1], 0.4)
