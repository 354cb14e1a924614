"""A number of fewer runs than its line has says so: files are of different ages and lack some."""

import csv
import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
import pytest
from scipy import stats

from browser import launched, opened
from doc_pages import ROOT
from polarbear.report.build import draw
from polarbear.report.page.page import page_data, write_page
from polarbear.report.read.groups import Runs
from polarbear.report.read.runs import read_runs
from polarbear.report.read.words import of_n
from polarbear.report.tables.formats import Table
from polarbear.report.tables.results import result_tables
from synthetic_runs import make_run

pytestmark = pytest.mark.usefixtures("one_thread")

RESULTS = ROOT / "results" / "iirc-cifar"
#: Of iCaRL-norm's first five runs, two have all entries; of Kin's ten, all.
METHODS = {"icarl-norm": 5, "kin": 10}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("results") / "iirc-cifar"
    return read_runs([first_runs(name, count, folder) for name, count in METHODS.items()])


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """The same files of iCaRL-norm as if three were older still, and another had ended early."""
    folder = first_runs("icarl-norm", 5, tmp_path_factory.mktemp("results") / "iirc-cifar")
    for order in range(3):
        change(folder / f"order-{order}.json", scores={}, r_jk=None)
    short = content(folder / "order-3.json")["scores"]
    scores = {name: [*values[:-1], None] for name, values in short.items()}
    change(folder / "order-3.json", r=scores["pw_jaccard"], scores=scores)
    return read_runs(folder)


def first_runs(method: str, count: int, folder: Path) -> Path:
    """Copy the first class orders of a method, which may have got more of them."""
    (folder / method).mkdir(parents=True)
    for order in range(count):
        shutil.copy(RESULTS / method / f"order-{order}.json", folder / method)
    return folder / method


def content(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


def change(file: Path, **entries: Any) -> None:
    file.write_text(json.dumps(content(file) | entries), encoding="utf-8")


def files(method: str) -> list[dict[str, Any]]:
    orders = range(METHODS[method])
    return [content(RESULTS / method / f"order-{order}.json") for order in orders]


def by_hand(values: list[float], places: int) -> str:
    """A mean with its 95 % interval, as SciPy has it."""
    half = stats.t.ppf(0.975, len(values) - 1) * stdev(values) / len(values) ** 0.5
    return f"{mean(values):.{places}f} ± {half:.{places}f}"


def tables(runs: Runs) -> dict[str, Table]:
    return {table.name: table for table in result_tables(runs, paper=True)}


def line(table: Table, name: str) -> dict[str, str]:
    """The line of a method by the heads of its columns."""
    (row,) = (row for row in table.rows if row[0].text == name)
    return dict(zip(table.head, (cell.text for cell in row), strict=True))


def records(table: Table, **asked: str) -> list[dict[str, str]]:
    """The lines of the CSV file that have what is asked."""
    rows = csv.DictReader(io.StringIO(table.csv()))
    return [row for row in rows if asked.items() <= row.items()]


# --- tables -----------------------------------------------------------------------------------


def test_forward_transfer_of_two_of_five_files_is_a_mean_of_two(runs: Runs) -> None:
    table = tables(runs)["transfer"]
    told = [one["told"]["forward_transfer"][-1] for one in files("icarl-norm") if one.get("told")]
    norm, kin = line(table, "iCaRL-norm"), line(table, "Kin")
    assert (norm["n"], len(told)) == ("5", 2)
    assert norm["forward transfer"] == by_hand(told, 2) + " (n = 2)"
    assert norm["average incremental score"] == by_hand(
        [mean(one["r"]) for one in files("icarl-norm")], 2
    )
    assert not any("(n = " in cell for cell in kin.values())
    (row,) = records(table, method="icarl-norm", score="forward_transfer")
    assert (row["runs"], float(row["mean"])) == ("2", pytest.approx(mean(told), abs=1e-6))
    (row,) = records(table, method="icarl-norm", score="forgetting")
    assert row["runs"] == "5"


@pytest.mark.parametrize("name", ["transfer", "last-scores"])
def test_a_cost_of_two_of_five_files_says_so(runs: Runs, name: str) -> None:
    table = tables(runs)[name]
    norm = line(table, "iCaRL-norm")
    costs = [norm[head] for head in ("image passes", "seconds", "bytes kept")]
    assert costs == ["11.2 M (n = 2)", "468", "7.07 M (n = 2)"]
    counts = [row["runs"] for row in records(table, method="icarl-norm") if "cost" in row["score"]]
    assert counts == ["2", "5", "2"]
    assert "A number with its n in brackets" in table.caption
    whole = tables(read_runs(RESULTS / "kin"))[name]
    assert "(n = " not in whole.markdown().partition("\n")[2]
    assert "in brackets" not in whole.caption


def test_cases_that_two_of_five_files_tell_say_so(runs: Runs) -> None:
    table = tables(runs)["last-scores"]
    told = [one["told"]["implication"][-1] for one in files("icarl-norm") if one.get("told")]
    ratio = by_hand([one["scores"]["implication"][-1] for one in files("icarl-norm")], 2)
    assert line(table, "iCaRL-norm")["implication"] == f"{ratio} of {mean(told):,.0f} (n = 2)"
    (row,) = records(table, method="icarl-norm", score="implication")
    assert (row["runs"], row["cases_runs"]) == ("5", "2")


def test_a_table_is_of_the_runs_that_have_its_score(older: Runs) -> None:
    found = tables(older)
    table = found["results-jaccard"]
    assert table.head == ("task", "iCaRL-norm (n = 2)")
    assert "over n = 2 runs (orders 3, 4, seed 100)" in table.caption
    (row,) = records(table, task="5")
    assert (row["runs"], row["orders"]) == ("2", "3, 4")
    assert found["results-pw-js"].head == ("task", "iCaRL-norm (n = 5)")
    assert found["results-per-task"].head == ("task", "iCaRL-norm (n = 2)")


def test_a_cell_of_runs_that_came_so_far_says_how_many(older: Runs) -> None:
    found = tables(older)
    for name in ("results-pw-js", "results-beside-paper"):
        ends = [row[1].text.endswith("(n = 4)") for row in found[name].rows]
        assert ends == [False] * 21 + [True], name
        assert records(found[name], task="21")[0]["runs"] == "4"
    last = [one["r"][-1] for one in files("icarl-norm") if one["order"] != 3]
    assert found["results-pw-js"].rows[-1][1].text == by_hand(last, 2) + " (n = 4)"


def test_a_score_that_one_of_the_last_runs_has_says_so(older: Runs) -> None:
    (row,) = tables(older)["last-scores"].rows
    assert [row[1].text, row[5].text[-8:]] == ["4", " (n = 1)"]  # Jaccard, of order 4 alone


# --- figures ----------------------------------------------------------------------------------


def test_an_oracle_stands_beside_what_the_same_runs_predicted(runs: Runs) -> None:
    (drawing,) = draw("decisions", runs)
    (axes,) = drawing.figure.axes
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names == [f"iCaRL-norm ({of_n(2)})", f"Kin ({of_n(10)})"]
    there = [one for one in files("icarl-norm") if "expected-tree" in one.get("r_by_rule", {})]
    ours, oracle = (bar.lines[0].get_xdata()[0] for bar in axes.containers)
    assert ours == pytest.approx(mean(one["r"][-1] for one in there))
    assert oracle == pytest.approx(mean(one["r_by_rule"]["expected-tree"][-1] for one in there))
    assert "12 runs with kept raw scores" in drawing.caption
    assert "iCaRL-norm: orders 3, 4, seed 100" in drawing.caption


def test_bytes_of_fewer_runs_are_named(runs: Runs) -> None:
    (axes,) = draw("bytes-kept", runs)[0].figure.axes
    assert axes.get_title(loc="left").endswith(f"; bytes of iCaRL-norm ({of_n(2)})")
    (axes,) = draw("bytes-kept", read_runs(RESULTS / "kin"))[0].figure.axes
    assert "bytes" not in axes.get_title(loc="left")


def test_a_curve_is_labelled_with_the_runs_that_it_is_of(older: Runs, tmp_path: Path) -> None:
    three = read_runs(first_runs("lucir", 3, tmp_path))
    both = Runs(older.benchmark, (*older.groups, *three.groups))
    for name, count in (("average-pw-js", 5), ("average-jaccard", 2), ("per-task", 2)):
        (drawing,) = draw(name, both)
        names = [text.get_text() for text in drawing.figure.axes[0].texts]
        assert names == [f"LUCIR ({of_n(3)})", f"iCaRL-norm ({of_n(count)})"][::-1], name
        assert f"over n = {min(3, count)} to {max(3, count)} runs" in drawing.caption
    for name in ("questions", "forgetting"):
        (legend,) = draw(name, both)[0].figure.legends
        names = [text.get_text() for text in legend.get_texts()]
        assert names == [f"iCaRL-norm ({of_n(2)})", f"LUCIR ({of_n(3)})"], name


def test_of_two_runs_of_five_no_band_is_drawn(older: Runs) -> None:
    (axes,) = draw("average-jaccard", older)[0].figure.axes
    assert not axes.collections
    assert axes.get_title(loc="left") == f"means, {of_n(2)}"
    (axes,) = draw("average-pw-js", older)[0].figure.axes
    assert len(axes.collections) == 1


def test_panels_of_other_runs_give_a_span(tmp_path: Path) -> None:
    first_runs("icarl-norm", 5, tmp_path)
    for order in range(3):
        file = tmp_path / "icarl-norm" / f"order-{order}.json"
        scores = content(file)["scores"]
        del scores["late_recall"]
        change(file, scores=scores)
    (drawing,) = draw("questions", read_runs(tmp_path))
    (legend,) = drawing.figure.legends
    assert [text.get_text() for text in legend.get_texts()] == [f"iCaRL-norm ({of_n(2, 5)})"]
    assert legend.get_title().get_text() == "mean, 95 % interval where n ≥ 3"
    assert [bool(axes.collections) for axes in drawing.figure.axes] == [True, True, False]


def test_a_point_is_a_mean_of_runs_that_have_both_its_scores(older: Runs) -> None:
    (drawing,) = draw("levels", older)
    (axes,) = drawing.figure.axes
    scores = files("icarl-norm")[4]["scores"]
    point = axes.containers[0].lines[0]
    assert point.get_xdata()[0] == pytest.approx(scores["pw_jaccard/subclass"][-1])
    assert axes.get_title(loc="left") == "one run"
    assert "one run per method (order 4, seed 100). Left out: 4 runs without" in drawing.caption


def test_the_end_of_a_memory_of_fewer_runs_says_so(tmp_path: Path) -> None:
    for size, order, done in ((5, 0, 7), (5, 1, 2), (20, 0, 7)):
        make_run(tmp_path / f"{size}-{order}", order=order, memory_per_class=size, done=done)
    _, right = draw("memory", read_runs(tmp_path))[0].figure.axes
    assert [tick.get_text() for tick in right.get_xticklabels()] == ["5 (n = 1)", "20"]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Three orders after three tasks, to which other superclasses have come in each."""
    root = tmp_path_factory.mktemp("begun")
    for order in range(3):
        make_run(root / str(order), order=order, done=3, predictions=True)
    return read_runs(root)


def test_a_superclass_that_came_to_fewer_runs_is_marked(begun: Runs) -> None:
    (drawing,) = draw("superclasses", begun)
    names = page_data(begun, images=False)["families"]["names"]
    seen = [{name for task in run.classes[:3] for name in task} for run in begun.groups[0].runs]
    shown = {text.get_position()[1]: text.get_text() for text in drawing.figure.axes[0].texts}
    counts = [sum(name in one for one in seen) for name in names[:-1]]
    assert set(counts) == {2, 3}
    for row, count in enumerate(counts):
        assert shown.get(row, "").endswith("*") is (0 < count < 3), names[row]
    assert "*: of fewer of them" in drawing.caption


# --- the page ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as one:
        yield one


def cells(site: Any, table: str, row: int) -> list[str]:
    """The cells of a line, words one space apart."""
    found = site.page.locator(f"{table} tbody tr").nth(row).locator("td").all_inner_texts()
    return [" ".join(text.split()) for text in found]


def test_the_page_says_it_too(browser: Any, runs: Runs, tmp_path: Path) -> None:
    with opened(browser, write_page(runs, tmp_path, images=False)) as site:
        norm, kin = (cells(site, "#costs", row) for row in (0, 1))
        assert norm[0].endswith(" (n = 2)")
        assert norm[1:] == ["468", "7.07 MB (n = 2)"]
        assert not any("(n = " in cell for cell in kin)
        heads = site.page.locator("#results thead th").all_inner_texts()
        place = next(i for i, text in enumerate(heads) if text.startswith("implication")) - 1
        norm, kin = (cells(site, "#results", row)[place] for row in (0, 1))
        assert norm.endswith("of 19,660 (n = 2)")
        assert "(n = " not in kin
        assert "iCaRL-norm 7.07 MB (n = 2) and 0.1" in site.page.locator(
            "#kept svg"
        ).first.get_attribute("aria-label")
        assert site.errors == []


def test_the_page_marks_scores_of_fewer_runs(browser: Any, older: Runs, tmp_path: Path) -> None:
    with opened(browser, write_page(older, tmp_path, images=False)) as site:
        count, _, jaccard, *_ = cells(site, "#results", 0)
        assert count.startswith("4 of 5")
        assert jaccard.endswith("(n = 1)")
        heat = site.page.locator("#heat h3 .soft").first
        assert heat.inner_text() == "mean of 2 runs"
        site.page.locator("details summary").first.click()
        (last,) = cells(site, "#by-task", 21)
        assert last.endswith("(n = 4)")
        assert site.errors == []


def test_the_page_marks_superclasses_that_came_to_fewer_runs(
    browser: Any, begun: Runs, tmp_path: Path
) -> None:
    data = page_data(begun, images=False)["families"]
    with opened(browser, write_page(begun, tmp_path, images=False)) as site:
        for row, (n,) in enumerate(data["n"]):
            (cell,) = cells(site, "#families", row)
            assert cell.endswith(f"(n = {n})") is (0 < n < 3)
        ink = "(node) => getComputedStyle(node).color"
        mark = site.page.locator("#families td small").first
        assert mark.evaluate(ink) == mark.locator("..").evaluate(ink)  # on every shade
        assert site.errors == []
    assert np.ptp([n for (n,) in data["n"]]) > 0
