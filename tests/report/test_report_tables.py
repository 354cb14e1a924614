"""Tables say what the groups say, as the paper prints it; bold is the best within noise."""

import csv
import io
import math
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from polarbear.base.errors import DataError
from polarbear.report.options import Options
from polarbear.report.read.runs import Runs, read_runs
from polarbear.report.tables.formats import Cell, Table, latex_text, save_table
from polarbear.report.tables.results import best_within_noise, last_scores, result_tables
from polarbear.report.tables.statistics import statistics_of, statistics_tables
from synthetic_runs import make_run, summary

NAN = float("nan")


def cifar(folder: Path, **scores: list[float]) -> Runs:
    """Runs of two tasks: each method's values are R_1 of its orders, R_0 is 0.7."""
    for method, values in scores.items():
        for order, value in enumerate(values):
            name = method.replace("_", "-")
            file = folder / "iirc-cifar" / name / f"order-{order}.json"
            summary(file, [0.7, value], order=order, seed=100)
    return read_runs(folder)


def test_results_by_task_are_mean_and_deviation(tmp_path: Path) -> None:
    runs = cifar(tmp_path, er=[0.30, 0.34], lucir=[0.5, 0.6], incremental_joint=[0.8])
    table = result_tables(runs)[0]
    assert table.name == "results-pw-js"
    assert table.head == ("task", "ER", "LUCIR", "incremental joint")
    assert [cell.text for cell in table.rows[1]] == [
        *("1", f"0.32 ({np.std([0.3, 0.34], ddof=1):.3f})", "0.55 (0.071)", "0.80")
    ]
    assert [cell.bold for cell in table.rows[1]] == [False, False, True, False]
    assert "mean ± standard deviation over 1 to 2 runs" in table.caption


def test_the_csv_has_numbers_in_full_and_the_number_of_runs(tmp_path: Path) -> None:
    runs = cifar(tmp_path, er=[0.3, 0.34], lucir=[1 / 3])
    rows = list(csv.DictReader(io.StringIO(result_tables(runs)[0].csv())))
    assert rows[1] == {"task": "1", "method": "er", "mean": "0.32", "std": "0.028284", "runs": "2"}
    assert rows[3] == {"task": "1", "method": "lucir", "mean": "0.333333", "std": "", "runs": "1"}
    assert len(rows) == 4


@pytest.mark.parametrize(
    ("pairs", "lower", "best"),
    [
        ([(0.5, 0.02), (0.49, NAN), (0.48, 0.9)], False, [True, True, False]),
        ([(0.5, NAN), (0.49, 0.9)], False, [True, False]),
        ([(0.5, 0.0), (0.5, 0.0)], False, [True, True]),
        ([(NAN, NAN), (0.1, 0.01)], False, [False, True]),
        ([(NAN, NAN)], False, [False]),
        ([(0.5, 0.02), (0.1, 0.02), (0.11, 0.02)], True, [False, True, True]),
    ],
)
def test_bold_is_the_best_within_its_own_noise(
    pairs: list[tuple[float, float]], lower: bool, best: list[bool]
) -> None:
    assert best_within_noise(pairs, lower=lower) == best


def test_last_scores_compare_each_score_its_own_way(tmp_path: Path) -> None:
    make_run(tmp_path / "a", "er", level=0.2)
    make_run(tmp_path / "b", "lucir", level=0.6)
    make_run(tmp_path / "c", "joint", level=0.9)
    runs = read_runs(tmp_path)
    table = last_scores(runs)
    assert [row[0].text for row in table.rows] == ["ER", "LUCIR", "joint"]
    column = {name: i for i, name in enumerate(table.head)}
    bold = {name: [row[i].bold for row in table.rows] for name, i in column.items()}
    assert bold["pw-JS"] == [False, True, False]
    assert bold["sibling error"] == [True, False, False]
    assert not any(bold["labels ÷ true"])
    shown = float(table.rows[1][column["late recall"]].text)
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
    assert {row[:3] for row in table.records[1:]} == {("er", 2, 6)}


def test_a_run_of_few_tasks_is_not_called_unfinished(tmp_path: Path) -> None:
    (make_run(tmp_path / "a", done=2, tasks=2) / "finished.json").write_text('{"seconds": 1.0}')
    make_run(tmp_path / "b", seed=1)
    table = last_scores(read_runs(tmp_path))
    assert "fewer than all tasks in 1 of 2 runs." in table.caption


def test_the_paper_stands_beside_ours(tmp_path: Path) -> None:
    for method in ("er", "finetune"):
        summary(tmp_path / "iirc-cifar" / method / "order-0.json", [0.5] * 22)
    table = {t.name: t for t in result_tables(read_runs(tmp_path), paper=True)}
    beside = table["results-beside-paper"]
    assert beside.head == ("task", "ER", "ER, paper")
    assert [cell.text for cell in beside.rows[21]] == ["21", "0.50", "0.13 (0.005)"]
    assert not any(t.name == "results-jaccard" for t in table.values())
    lines = beside.csv().splitlines()
    assert lines[0] == "task,method,mean,std,runs,paper mean,paper std"
    assert lines[22] == "21,er,0.5,,1,0.13,0.005"


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
    tables = [Table("t", "c_1", ("x", "y & z"), ((awkward, Cell("1")),) * n) for n in (2, 60)]
    packages = r"\documentclass{article}\usepackage{booktabs,graphicx,longtable}"
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
