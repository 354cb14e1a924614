"""Names that others gave harm nothing: no figure, table or page, no file and no terminal."""

import csv
import io
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polarbear
from polarbear.base.names import file_name, json_text, one_line, printable, readable
from polarbear.benchmark.source import Source
from polarbear.cli import main
from polarbear.cli.shared.console import console, print_json
from polarbear.report.build import build_report
from polarbear.report.figures.style import Drawing, new_figure, save, styled
from polarbear.report.options import Options
from polarbear.report.read.runs import read_runs
from polarbear.report.tables.formats import Cell, Table
from synthetic_runs import make_run

#: Any characters at all, halves of them too; and more of those that mean something somewhere.
SIGNS = st.characters(exclude_categories=()) | st.sampled_from("$\\{}_^%&#~|[]*=+-@<>'\"/.:\x1b\n ")
NAMES = st.text(SIGNS, max_size=30)

HOSTILE = (
    r"$\frac{$",
    "er+kd",
    "er kd",
    "熊",
    "狼",
    "long" * 75,
    "half \ud800",
    "bell \x07 \x1b[2J\x00",
    "[bold]x[/nothing]",
    "*",
    "two\nlines | and a pipe",
    "=1+1",
    "../../outside",
    "_hidden",
    "</script><b>",
)

#: Those that matter for files each by itself, the others together.
METHODS = (*HOSTILE[:5], " ".join(HOSTILE[5:]))

no_glyph = pytest.mark.filterwarnings("ignore:Glyph .* missing from font")


# --- one name ---------------------------------------------------------------------------------


@given(NAMES, NAMES)
@settings(deadline=None)
def test_a_file_name_is_no_path_and_nobody_elses(one: str, other: str) -> None:
    made = file_name(one)
    assert Path(made).name == made
    assert made.isascii()
    assert made.strip(". ") == made
    assert len(made) < 100
    assert (made == file_name(other)) == (one == other)


def test_plain_names_are_their_own_files() -> None:
    for name in ("er", "icarl-norm", "my_method", "v1.2"):
        assert file_name(name) == name
    assert file_name(file_name("er kd")) != file_name("er kd")


@given(NAMES)
@settings(deadline=None)
def test_what_is_shown_can_be_written_and_does_nothing(name: str) -> None:
    for shown in (one_line(name), readable(name), printable(name)):
        shown.encode()
        assert not any(sign in shown for sign in "\x1b\x07\x9b\u202e\r")
    assert len(one_line(name).splitlines()) <= 1
    assert json.loads(json_text([name]).encode()) == [name]
    assert "\x1b" not in json_text([name])


def test_endless_names_are_cut_where_they_are_shown() -> None:
    assert readable("x" * 300) == "x" * 99 + "…"
    assert readable("x" * 100) == "x" * 100


# --- tables -----------------------------------------------------------------------------------


@given(st.lists(NAMES, min_size=2, max_size=4))
@settings(deadline=None)
def test_a_table_of_any_names_has_its_lines_and_columns(names: list[str]) -> None:
    row = (*(Cell(name) for name in names), Cell("0.5"))
    table = Table("t", "of " + names[0], (*names, "score"), (row, row))
    lines = table.markdown().splitlines()
    assert len(lines) == 2 + 2 + 2
    for line in lines[2:]:
        assert line.replace(r"\|", "").count("|") == len(names) + 2
    written = list(csv.reader(io.StringIO(table.csv())))
    assert [len(line) for line in written] == [len(names) + 1] * 3
    for cell in (cell for line in written for cell in line):
        assert not cell.lstrip().startswith(("=", "+", "-", "@"))
    for line in table.latex().splitlines():
        assert not line.lstrip().startswith(("[", "*"))


def test_numbers_of_a_table_stay_numbers() -> None:
    table = Table("t", "c", ("name", "fall"), (), (("name", "fall"), ("-x", -0.5), ("er", -3)))
    assert table.csv() == "name,fall\n'-x,-0.5\ner,-3\n"


def test_a_row_of_latex_that_begins_with_a_bracket_is_guarded() -> None:
    rows = ((Cell("[2]"), Cell("1")), (Cell("*"), Cell("2")), (Cell("er"), Cell("3")))
    text = Table("t", "c", ("method", "runs"), rows).latex()
    assert "\n{}[2] & 1 \\\\\n{}* & 2 \\\\\ner & 3 \\\\\n" in text


# --- figures ----------------------------------------------------------------------------------


@no_glyph
@given(NAMES)
@settings(deadline=None, max_examples=15)
def test_a_figure_takes_any_name(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    with styled():
        figure = new_figure(3, 2)
        axes = figure.add_subplot()
        axes.set_title(readable(name))
        axes.text(0, 0, readable(f"$\\frac{{$ {name}"))
    folder = tmp_path_factory.mktemp("figure")
    (svg,) = save(Drawing("figure", "", figure), folder, ("svg",))
    ElementTree.parse(svg)


@pytest.fixture
def hostile_benchmark() -> str:
    """A registered benchmark whose classes have all of the names."""
    inner, leaves = HOSTILE[:2], HOSTILE[2:]
    tree = polarbear.Hierarchy.from_children({inner[0]: leaves[:6], inner[1]: leaves[6:]})
    order = polarbear.Schedule.of([inner, *([name] for name in leaves[:3]), leaves[3:]])
    leaf = np.repeat(np.arange(len(leaves)), 10)
    images = np.random.default_rng(0).integers(0, 256, (len(leaf), 8, 8, 3), dtype=np.uint8)

    def source(root: Path, hierarchy: polarbear.Hierarchy) -> Source:
        return Source(tree.leaves, images, leaf, images, leaf)

    polarbear.register(
        polarbear.Benchmark(
            "hostile", 1, "", lambda: tree, lambda: (order,), polarbear.SplitRule(), source
        )
    )
    return "hostile"


@no_glyph
@pytest.mark.filterwarnings("ignore:constrained_layout not applied")
def test_a_whole_report_of_hostile_names(tmp_path: Path, hostile_benchmark: str) -> None:
    for i, method in enumerate(METHODS):
        settings = {"network": method, "options": {method: method}}
        folder = tmp_path / "runs" / str(i)
        make_run(folder, method, benchmark=hostile_benchmark, predictions=True, **settings)
    runs = read_runs(tmp_path / "runs")
    report = build_report(runs, tmp_path / "report" / "out", Options(), formats=("svg",))
    lacking = {"memory", "inferred-tree", "logged", "decisions", "bytes-kept"}
    assert set(report.left_out) == lacking
    made = {one.name: one for one in report.made}
    assert len([name for name in made if name.startswith("gallery-")]) == len(METHODS)
    assert len([name for name in made if name.startswith("confusion-")]) == len(METHODS)
    files = [file for one in report.made for file in one.files]
    assert len(set(files)) == len(files)
    for file in files:
        text = file.read_text(encoding="utf-8")
        assert "\x1b" not in text
        if file.suffix == ".svg":
            ElementTree.fromstring(text)
    assert list((tmp_path / "report").iterdir()) == [tmp_path / "report" / "out"]
    listed = json.loads((tmp_path / "report/out/contents.json").read_text(encoding="utf-8"))
    assert set(listed["groups"]) == set(METHODS)
    assert report.page is not None
    assert "</script><b>" not in report.page.read_text(encoding="utf-8")


def test_every_curve_is_named(tmp_path: Path) -> None:
    """Two classes of one name, and one that Matplotlib would hide."""
    from polarbear.report.build import draw

    for method in ("mine:Mine", "yours:Mine", "mine:_Mine"):
        make_run(tmp_path / method.replace(":", "-"), method)
    runs = read_runs(tmp_path)
    for name in ("average-pw-js", "forgetting"):
        figure = draw(name, runs)[0].figure
        legends = [text for legend in figure.legends for text in legend.get_texts()]
        shown = {text.get_text().strip() for text in (*legends, *figure.axes[0].texts)}
        assert shown == {"mine:Mine", "yours:Mine", "_Mine"}


# --- the terminal -----------------------------------------------------------------------------


def test_no_command_passes_escape_sequences_on(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    name = "\x1b]0;title\x07\x9b2J\ud800"
    make_run(tmp_path / "runs" / "a", f"x:{name}")
    (tmp_path / "runs" / "b").mkdir()
    (tmp_path / "runs" / "b" / "manifest.json").write_text(json.dumps({"format": name}))
    out = tmp_path / "out"
    for words in (
        ("runs", tmp_path / "runs"),
        ("runs", tmp_path / "runs", "--json"),
        ("report", tmp_path / "runs", "--out", out, "--figures", "average-pw-js"),
    ):
        assert main([str(word) for word in words]) == 0
        captured = capsys.readouterr()
        for text in (captured.out, captured.err):
            text.encode()
            assert not any(sign in text for sign in "\x1b\x07\x9b")


def test_the_screen_prints_lines_and_names_as_they_are(capsys: Any) -> None:
    console().print("two\nlines\tof [bold]text[/bold] \x1b[1m")
    assert capsys.readouterr().out == "two\nlines   of [bold]text[/bold] �[1m\n"
    print_json({"name": "bär\x9b"})
    assert capsys.readouterr().out == '{\n  "name": "bär\\u009b"\n}\n'
