"""Figures for a column, a page and a talk: widths, letters, names that do not cover one another."""

import re
import zlib
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.text import Text

from engine_run import tiny
from polarbear.base.errors import DataError, UnknownNameError
from polarbear.launch import runner
from polarbear.report.build import BY_METHOD, FIGURES, draw
from polarbear.report.figures.labels import apart
from polarbear.report.figures.style import Drawing, save
from polarbear.report.options import SIZES, Options
from polarbear.report.read.cases import few_cases
from polarbear.report.read.families import families
from polarbear.report.read.runs import Runs, read_runs
from polarbear.runs.folder import RunFolder
from polarbear.score.metrics import pw_jaccard
from synthetic_runs import make_run, shapes

pytestmark = pytest.mark.usefixtures("one_thread")

#: Every label named, as large as that asks for.
POSTERS = ("confusion-full",)
#: Of the committed results: the paper's methods, and Kin.
NINE = ("finetune", "er", "er-infinite", "agem", "icarl-cnn", "icarl-norm", "lucir", "kin")
NINE += ("incremental-joint",)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Three methods and a bound over three orders, with all that any figure needs."""
    root = tmp_path_factory.mktemp("runs")
    levels = {"finetune": 0.1, "er": 0.4, "icarl-norm": 0.6, "incremental-joint": 0.8}
    for method, level in levels.items():
        for order in range(3):
            folder = root / method / str(order)
            make_run(folder, method, order, level=level, predictions=True)
            kept = {"finetune": 0, "er": 2_000_000, "icarl-norm": 2_000_000}.get(method, 9_000_000)
            finished = f'{{"seconds": 9, "passes": 1000, "kept": {{"images": {kept}}}}}'
            (folder / "finished.json").write_text(finished)
    return read_runs(root)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Short real runs: ER with two sizes of memory, and Kin, which logs and infers a tree."""
    root = tmp_path_factory.mktemp("trained")
    how: dict[str, Any] = {"network": "small", "epochs": 1, "tasks": 2, "keep_scores": True}
    for method, kept in (("er", 2), ("er", 5), ("kin", 5)):
        assert runner.run(tiny(method, memory_per_class=kept, **how), root / f"{method}-{kept}")
    return read_runs(root)


#: Figures that need what runs keep, log or infer.
OF_TRAINED = ("memory", "inferred-tree", "logged", "decisions")


@pytest.fixture
def drawings(name: str, size: str, runs: Runs, trained: Runs) -> list[Drawing]:
    """A figure, drawn for a size."""
    return draw(name, trained if name in OF_TRAINED else runs, Options(size=size))


def letters(figure: Figure) -> list[Text]:
    """What is written, but for numbers at axes: those outside the limits are not drawn."""
    ticks = {
        label
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        for label in axis.get_ticklabels()
    }
    written = figure.findobj(lambda one: isinstance(one, Text) and one not in ticks)
    return [text for text in written if text.get_visible() and text.get_text().strip()]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_as_wide_as_its_place_and_its_letters_large_enough(
    drawings: list[Drawing], name: str, size: str, tmp_path: Path
) -> None:
    for drawing in drawings[:1]:
        (pdf,) = save(drawing, tmp_path, ("pdf",), size)
        content = pdf.read_bytes()
        box = re.search(rb"/MediaBox \[\s*0 0 ([\d.]+) ([\d.]+)\s*\]", content)
        assert box is not None
        width = float(box[1]) / 72
        assert name in POSTERS or width == pytest.approx(SIZES[size].width, abs=0.01)
        streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", content, flags=re.DOTALL)
        pages = b"".join(zlib.decompress(one) for one in streams if one[:1] == b"x")
        sizes = [float(one) for one in re.findall(rb"/\S+ ([\d.]+) Tf", pages)]
        assert sizes, "nothing is written"
        assert min(sizes) >= 7 * SIZES[size].scale
        assert min(text.get_fontsize() for text in letters(drawing.figure)) >= 7 * SIZES[size].scale


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", [n for n in FIGURES if n not in (*BY_METHOD, "side-by-side")])
def test_nothing_is_cut_off_and_names_do_not_cover_one_another(
    drawings: list[Drawing], size: str
) -> None:
    for drawing in drawings:
        refuse_covered(drawing.figure, size)


def refuse_covered(figure: Figure, size: str) -> None:
    """Find names that leave the figure or cover one another."""
    figure.draw_without_rendering()
    wide, high = figure.bbox.width, figure.bbox.height
    boxes = {one: Text.get_window_extent(one) for one in letters(figure)}  # without arrows
    for text, box in boxes.items():
        slack = 0.02 * figure.dpi
        inside = box.x0 > -slack and box.y0 > -slack
        inside &= box.x1 < wide + slack and box.y1 < high + slack
        assert inside, (text.get_text(), size)
    names = [text for axes in figure.axes for text in axes.texts]
    for one, other in combinations(names, 2):
        a, b = boxes[one].shrunk(0.9, 0.8), boxes[other].shrunk(0.9, 0.8)
        assert not a.overlaps(b), (one.get_text(), other.get_text(), size)


@pytest.mark.parametrize("name", ["levels", "average-pw-js", "average-jaccard", "per-task"])
def test_the_names_of_nine_methods_stand_apart_in_a_column(name: str) -> None:
    committed = read_runs(Path(__file__).parents[2] / "results" / "iirc-cifar")
    (drawing,) = draw(name, committed, Options(size="column", paper=True, methods=NINE))
    refuse_covered(drawing.figure, "column")


def test_an_unknown_size_is_told(runs: Runs) -> None:
    with pytest.raises(UnknownNameError, match="unknown size 'colum': did you mean 'column'"):
        draw("levels", runs, Options(size="colum"))


def test_names_are_put_apart_and_stay_in_their_limits() -> None:
    random = np.random.default_rng(0)
    for count in range(1, 9):
        wanted, heights = random.random(count), np.full(count, 0.1)
        places = np.array(apart(wanted.tolist(), heights.tolist(), 0.0, 1.0))
        assert places.min() >= 0.05 - 1e-9
        assert places.max() <= 0.95 + 1e-9
        assert (np.argsort(places) == np.argsort(wanted)).all()
        assert (np.diff(np.sort(places)) >= 0.1 - 1e-9).all()
    assert apart([0.2, 0.8], [0.1, 0.1], 0, 1) == [0.2, 0.8]


def test_chosen_methods_are_shown_alone_in_their_usual_order(runs: Runs) -> None:
    options = Options(methods=("icarl-norm", "finetune"))
    (axes,) = draw("average-pw-js", runs, options)[0].figure.axes
    assert [line.get_label() for line in axes.get_lines()] == ["finetune", "iCaRL-norm"]
    with pytest.raises(UnknownNameError, match="unknown method in these runs 'lucir'"):
        draw("average-pw-js", runs, Options(methods=("er", "lucir")))
    with pytest.raises(UnknownNameError, match="unknown group of runs 'er'"):
        draw("levels", runs, Options(methods=("finetune",), compare=("er", "finetune")))


def test_the_whole_is_drawn_against_the_details(runs: Runs) -> None:
    (drawing,) = draw("levels", runs)
    (axes,) = drawing.figure.axes
    assert axes.get_xlim() == axes.get_ylim()
    points = {c.lines[0].get_color(): c for c in axes.containers}
    assert len(points) == 4
    group = runs.group("er")
    x, y = (group.mean(f"pw_jaccard/{level}")[6] for level in ("subclass", "superclass"))
    line = axes.containers[1].lines[0]
    assert (line.get_xdata()[0], line.get_ydata()[0]) == (x, y)
    bars = axes.containers[1].lines[2]
    across = bars[0].get_segments()[0][:, 0]
    half = group.half_width("pw_jaccard/subclass")[6]
    np.testing.assert_allclose(across, [x - half, x + half])
    assert {"ER", "finetune", "iCaRL-norm"} < {text.get_text() for text in axes.texts}


def test_scores_stand_over_the_bytes_kept(runs: Runs, tmp_path: Path) -> None:
    (axes,) = draw("bytes-kept", runs)[0].figure.axes
    places = [container.lines[0].get_xdata()[0] for container in axes.containers]
    assert places[1] == places[2] == 2_000_000
    assert places[3] == 9_000_000
    ticks = dict(
        zip(axes.get_xticks(), [t.get_text() for t in axes.get_xticklabels()], strict=True)
    )
    assert ticks[places[0]] == "0"  # finetune keeps nothing
    assert ticks[1e6] == "1 MB"
    make_run(tmp_path / "old")
    with pytest.raises(DataError, match="no run says how many bytes it keeps"):
        draw("bytes-kept", read_runs(tmp_path))


def test_the_map_of_superclasses_has_the_mean_of_each_family(runs: Runs) -> None:
    found = families(runs)
    names = [group.name for group in found.groups]
    column, row = names.index("er"), found.names.index("square")
    expected = []
    for run in runs.group("er").runs:
        view, predicted = shapes(run.order or 0).test(6), run.predictions(6)
        column_of = view.classes.index("square")
        mine = view.targets[:, column_of]
        expected.append(pw_jaccard(predicted, view.targets)[mine].mean())
    assert found.values[row, column] == pytest.approx(np.mean(expected))
    assert found.counts == (3, 3, 3, 3)
    (drawing,) = draw("superclasses", runs)
    axes = drawing.figure.axes[0]
    assert [t.get_text() for t in axes.get_yticklabels()][-1] == "no superclass"
    cells = {t.get_position(): t.get_text() for t in axes.texts}
    assert cells[column, row] == f"{found.values[row, column]:.2f}"[1:]


def test_a_curve_over_few_cases_is_grey(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", predictions=True)
    nothing = np.zeros_like(shapes(0).test(3).targets)
    RunFolder(folder).save_predictions(3, nothing)
    few = read_runs(tmp_path)
    group = few.groups[0]
    # Nothing is predicted after task 3; before task 1 no class has a superclass.
    assert few_cases(group, "implication").tolist() == [True, False, False, True, *[False] * 3]
    assert not few_cases(group, "sibling_error").any()
    panel = draw("questions", few)[0].figure.axes[0]
    ours, grey = panel.get_lines()
    assert np.isnan(ours.get_ydata()[2])
    np.testing.assert_array_equal(grey.get_ydata()[2], group.mean("implication")[3])
