"""Figures show the numbers of the runs: data in the axes, labels, colours, files."""

import base64
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from polarbear.base.errors import DataError, UnknownNameError
from polarbear.methods.catalogue import METHODS
from polarbear.report.build import draw
from polarbear.report.figures.confusion import confusion_shares
from polarbear.report.figures.confusion import shades as shades_of
from polarbear.report.figures.gallery import _short, chosen_rows, labels_of
from polarbear.report.figures.river import KINDS, kinds_of, label_river
from polarbear.report.figures.style import FORMATS, save
from polarbear.report.options import Options
from polarbear.report.palette import looks
from polarbear.report.read.answers import answers, comparable_runs
from polarbear.report.read.paper import paper_results
from polarbear.report.read.runs import Runs, read_runs
from polarbear.report.read.words import of_n
from synthetic_runs import make_run, shapes, summary


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Two methods of two orders each, the first order with predictions; and a joint run."""
    root = tmp_path_factory.mktemp("runs")
    for method, level in (("er", 0.4), ("icarl-norm", 0.6)):
        for order in (0, 1):
            folder = root / method / str(order)
            make_run(folder, method, order, level=level, predictions=order == 0)
    make_run(root / "joint", "joint", level=0.8)
    return read_runs(root)


def cells(image: Any, size: int) -> np.ndarray:
    """The values of a picture, of which each is many equal pixels: (size, size) or with colours."""
    pixels = np.asarray(image.get_array())
    times = len(pixels) // size
    kept = pixels[::times, ::times]
    np.testing.assert_array_equal(pixels, kept.repeat(times, axis=0).repeat(times, axis=1))
    return kept


def shades(shares: np.ndarray) -> np.ndarray:
    """The colours of shares: (s, s, 4)."""
    return np.asarray(shades_of()(shares, bytes=True))


def lines(axes: object) -> dict[str, np.ndarray]:
    return {line.get_label(): line.get_ydata() for line in axes.get_lines()}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("figure", "score"), [("average-pw-js", "pw_jaccard"), ("average-jaccard", "jaccard")]
)
def test_averages_are_the_groups_means_with_a_band(runs: Runs, figure: str, score: str) -> None:
    (drawing,) = draw(figure, runs)
    (axes,) = drawing.figure.axes
    drawn = lines(axes)
    assert list(drawn) == [f"ER ({of_n(2)})", f"iCaRL-norm ({of_n(2)})", f"joint ({of_n(1)})"]
    for group, label in zip(runs.groups, drawn, strict=True):
        mean = group.mean(score)
        np.testing.assert_array_equal(drawn[label], mean[~np.isnan(mean)])
    assert not axes.collections  # of two runs an interval would be wider than the axes
    assert axes.get_xlabel() == "after task"
    assert "over n = 1 to 2 runs" in drawing.caption
    assert [text.get_text() for text in axes.texts] == list(drawn)
    assert [text.get_color() for text in axes.texts] == [line.get_color() for line in axes.lines]


def test_a_band_is_the_interval_of_three_runs_or_more(tmp_path: Path) -> None:
    for order, level in enumerate((0.4, 0.5, 0.7)):
        make_run(tmp_path / str(order), order=order, level=level)
    group = read_runs(tmp_path).groups[0]
    (axes,) = draw("average-pw-js", read_runs(tmp_path))[0].figure.axes
    band = axes.collections[0].get_paths()[0].vertices
    mean, std = group.mean("pw_jaccard"), group.std("pw_jaccard")
    half = 4.302653 * std / 3**0.5  # Student's t with two degrees of freedom
    expected = np.unique(np.append(mean - half, mean + half))
    np.testing.assert_allclose(np.unique(band[:, 1]), expected, rtol=1e-6)
    assert axes.get_title(loc="left") == f"mean and 95 % interval, {of_n(3)}"


def test_sister_figures_have_the_same_order_and_limits(runs: Runs) -> None:
    drawn = [
        draw(name, runs)[0].figure.axes[0]
        for name in ("average-pw-js", "average-jaccard", "per-task")
    ]
    assert len({axes.get_ylim() for axes in drawn}) == 1
    names = [[line.get_label() for line in axes.get_lines()] for axes in drawn]
    assert names[0] == names[1] == [*names[2], f"joint ({of_n(1)})"]  # which has no tasks


def test_long_names_leave_room_for_the_curves(runs: Runs, tmp_path: Path) -> None:
    long = "er, memory 50, total memory 2000, learning rate 0.5, network resnet20, epochs 12, beta"
    named = replace(runs, groups=(replace(runs.groups[0], name=long), *runs.groups[1:]))
    for name in ("average-pw-js", "questions"):
        (drawing,) = draw(name, named)
        save(drawing, tmp_path, ("png",))
        axes = drawing.figure.axes[0].get_position()
        assert axes.width > 0.2, name
        legends = [text for legend in drawing.figure.legends for text in legend.get_texts()]
        names = [text.get_text() for text in (*legends, *drawing.figure.axes[0].texts)]
        assert any("total memory 2000" in text.replace("\n", " ") for text in names)


def test_a_figure_of_tasks_that_no_run_has_come_to_needs_no_legend(tmp_path: Path) -> None:
    for seed in range(2):
        make_run(tmp_path / str(seed), "er", seed=seed, done=1)
    assert draw("forgetting", read_runs(tmp_path), Options(tasks=(3, 5)))


def test_curves_have_the_looks_of_their_methods(runs: Runs) -> None:
    drawn = draw("average-pw-js", runs)[0].figure.axes[0].get_lines()
    for line, look in zip(drawn, looks(runs.groups).values(), strict=True):
        assert (line.get_color(), line.get_marker()) == (look.colour, look.marker)
        assert line.is_dashed() is look.dashed


def test_per_task_is_the_diagonal(runs: Runs) -> None:
    drawn = lines(draw("per-task", runs)[0].figure.axes[0])
    for group in runs.groups[:2]:
        expected = np.diagonal(group.by_task_mean())
        np.testing.assert_array_equal(drawn[f"{group.title} ({of_n(2)})"], expected)
    assert not any("joint" in name for name in drawn)


def test_forgetting_follows_the_chosen_tasks(runs: Runs) -> None:
    panels = draw("forgetting", runs, Options(tasks=(0, 4, 6)))[0].figure.axes
    assert [p.get_title() for p in panels if p.get_visible()] == [
        f"images of task {task}" for task in (0, 4, 6)
    ]
    (line,) = (one for one in panels[1].get_lines() if one.get_label() == f"ER ({of_n(2)})")
    assert line.get_xdata().tolist() == [4, 5, 6]
    np.testing.assert_array_equal(line.get_ydata(), runs.groups[0].by_task_mean()[4:, 4])


def test_questions_are_three_curves(runs: Runs) -> None:
    panels = draw("questions", runs)[0].figure.axes
    for axes, score in zip(panels, ("implication", "sibling_error", "late_recall"), strict=True):
        expected = runs.groups[0].mean(score)[1:]
        np.testing.assert_array_equal(lines(axes)[f"ER ({of_n(2)})"], expected)


def test_the_papers_curves_are_dotted_beside_ours(tmp_path: Path) -> None:
    for method in ("er", "incremental-joint", "finetune"):
        summary(tmp_path / "iirc-cifar" / method / "order-0.json", [0.5] * 22)
    figure = draw("average-pw-js", read_runs(tmp_path), Options(paper=True))[0].figure
    drawn = {line.get_label(): line for line in figure.axes[0].get_lines()}
    theirs = [name for name in drawn if name.endswith("the paper")]
    assert theirs == ["ER, the paper", "incremental joint, the paper"]
    assert drawn[theirs[0]].get_ydata()[[0, 21]].tolist() == [0.72, 0.13]
    assert drawn[theirs[0]].get_linestyle() == "--"
    assert drawn[theirs[0]].get_color() == drawn["ER"].get_color()
    assert drawn["ER"].get_linestyle() == "-"


def test_the_papers_tables_are_whole() -> None:
    sizes = {"iirc-cifar-v1": (22, 7), "iirc-imagenet-lite": (10, 5), "iirc-imagenet-full": (35, 5)}
    for name, (tasks, methods) in sizes.items():
        results = paper_results(name)
        assert len(results) == methods
        assert {one.mean.shape for one in results.values()} == {(tasks,)}
        assert set(results) <= set(METHODS)
    full = paper_results("iirc-imagenet-full")
    assert np.flatnonzero(~np.isnan(full["joint"].mean)).tolist() == [34]
    assert (full["lucir"].mean[34], full["lucir"].std[34]) == (0.01, 0.015)
    for none in ("iirc-shapes-v1", "iirc-cifar-v2", "iirc-imagenet-full-v2"):
        assert paper_results(none) == {}


def test_memory_shows_each_size(tmp_path: Path) -> None:
    for size, level in ((20, 0.4), (5, 0.2), (100, 0.6)):
        make_run(tmp_path / str(size), memory_per_class=size, level=level)
    runs = read_runs(tmp_path)
    left, right = draw("memory", runs)[0].figure.axes
    assert list(lines(left)) == [f"{size} ({of_n(1)})" for size in (5, 20, 100)]
    ends = right.collections[-1].get_offsets()[:, 1]
    np.testing.assert_array_equal(ends, [group.mean("pw_jaccard")[6] for group in runs.groups])
    assert [tick.get_text() for tick in right.get_xticklabels()] == ["5", "20", "100"]


def test_memory_of_a_short_run_has_no_end(tmp_path: Path) -> None:
    for size, done in ((5, 7), (20, 2)):
        make_run(tmp_path / str(size), memory_per_class=size, done=done)
    _, right = draw("memory", read_runs(tmp_path))[0].figure.axes
    ends = np.asarray(right.collections[-1].get_offsets().filled(np.nan)[:, 1])
    assert np.isnan(ends).tolist() == [False, True]
    assert np.isfinite(right.get_ylim()).all()


def test_bands_are_inside_the_axes(tmp_path: Path) -> None:
    for order, level in ((0, 0.45), (1, 0.5), (2, 0.6)):
        make_run(tmp_path / str(order), order=order, level=level)
    runs = read_runs(tmp_path)
    group = runs.groups[0]
    highest = float((group.mean("pw_jaccard") + group.half_width("pw_jaccard")).max())
    assert 0.75 < highest < 1
    assert draw("average-pw-js", runs)[0].figure.axes[0].get_ylim()[1] > highest


def test_runs_that_get_nothing_right_are_drawn(tmp_path: Path) -> None:
    scores = make_run(tmp_path / "run") / "scores.jsonl"
    scores.write_text(re.sub(r'("\w*jaccard[^"]*"): [\d.e-]+', r"\1: 0.0", scores.read_text()))
    (drawing,) = draw("levels", read_runs(tmp_path))
    assert drawing.figure.axes[0].get_ylim() == (0, 1.02)


def test_hierarchy_counts_subclasses(runs: Runs) -> None:
    (axes,) = draw("hierarchy", runs)[0].figure.axes
    assert [bar.get_height() for bar in axes.patches] == [4, 4, 4, 3, 3, 3, 3]
    names = [tick.get_text() for tick in axes.get_xticklabels()]
    assert names == ["circle", "square", "triangle", "arrow", "cross", "heart", "star"]


def test_confusion_is_drawn_beside_the_truth(runs: Runs) -> None:
    (drawing,) = draw("confusion", runs, Options(tasks=(1, 6)))
    grid = drawing.figure.axes[:6]
    view, run = shapes(0).test(6), runs.groups[0].runs[0]
    predicted = run.predictions(6)
    assert predicted is not None
    truth = confusion_shares(view.targets, view.targets)
    np.testing.assert_array_equal(cells(grid[1].images[0], 36), shades(truth))
    expected = confusion_shares(predicted, view.targets)
    np.testing.assert_array_equal(cells(grid[3].images[0], 36), shades(expected))
    names = [drawing.figure.get_supxlabel(), drawing.figure.get_supylabel()]
    assert names == ["label given, to the right", "a label the images carry, downwards"]
    assert [axes.get_ylabel() for axes in grid[::2]] == ["ground truth", "ER", "iCaRL-norm"]
    assert "Without joint: no predictions" in drawing.caption


def test_confusion_in_full_names_every_label_in_order_of_arrival(runs: Runs) -> None:
    drawings = draw("confusion-full", runs)
    assert [d.name for d in drawings] == ["confusion-er", "confusion-icarl-norm"]
    left, right = drawings[0].figure.axes[:2]
    tree, classes = shapes(0).hierarchy, shapes(0).classes
    for axes in (left, right):
        rows = [text.get_text() for text in axes.texts[::2]]
        assert rows == [tree.title(name) for name in classes]
        assert [t.get_fontweight() for t in axes.texts[::2]] == [
            "bold" if tree.children(name) else "normal" for name in classes
        ]
    assert right.get_title() == "ER, after task 6"
    truth = shapes(0).test(6).targets
    expected = shades(confusion_shares(truth, truth))
    np.testing.assert_array_equal(cells(left.images[0], 36), expected)


def test_confusion_in_full_after_each_task_asked_for(runs: Runs) -> None:
    drawings = draw("confusion-full", runs, Options(tasks=(1, 5)))
    assert [d.name for d in drawings] == [
        f"confusion-{method}-after-{task}" for method in ("er", "icarl-norm") for task in (1, 5)
    ]
    assert drawings[0].figure.axes[1].get_title() == "ER, after task 1"


def test_no_format_loses_cells_of_a_matrix(runs: Runs, tmp_path: Path) -> None:
    """At 72 points an inch, a small matrix of many labels would lose rows and columns."""
    (svg,) = save(draw("confusion", runs)[0], tmp_path, ("svg",))
    packed = re.findall(r'base64,\s*([^"]+)"', svg.read_text(encoding="utf-8"))
    sizes = [Image.open(io.BytesIO(base64.b64decode(one))).size for one in packed]
    # Three rows after tasks 0, 1, 5 and 6: each a whole number of pixels a label.
    labels = [len(shapes(0).test(after).classes) for after in (0, 1, 5, 6)]
    squares = [size for size in sizes if size[0] == size[1]]
    assert len(squares) == 3 * 4
    for place, (width, _) in enumerate(squares):
        assert width % labels[place % 4] == 0
        assert width >= 512


def test_many_matrices_have_no_more_pixels_than_some(tmp_path: Path) -> None:
    """With all their pixels, each further group of settings would take 16 MB until all is drawn."""
    for size in range(1, 31):
        make_run(tmp_path / str(size), memory_per_class=size, done=4, predictions=True)
    runs = read_runs(tmp_path)
    for kept in (10, 30):
        some = replace(runs, groups=runs.groups[:kept])
        figure = draw("confusion", some)[0].figure
        pictures = [np.asarray(image.get_array()) for axes in figure.axes for image in axes.images]
        assert len(pictures) == 3 * (kept + 1)
        assert all(picture.dtype == np.uint8 for picture in pictures)
        assert sum(picture.nbytes for picture in pictures) < 80e6
        assert all(len(picture) >= (512 if kept == 10 else 390) for picture in pictures)


def test_kinds_of_labels() -> None:
    # Columns: the superclass, its two subclasses, a class from elsewhere; the truth is the first.
    predicted = np.array(
        [[1, 1, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [1, 1, 1, 0], [1, 1, 1, 1], [0, 0, 0, 0]], bool
    )
    targets = np.tile(np.array([1, 1, 0, 0], bool), (6, 1))
    family = np.array([1, 1, 1, 0], bool)
    kinds = kinds_of(predicted, targets, family, 0, np.zeros(6, bool))
    names = [list(KINDS)[i] for i in kinds.argmax(axis=0)]
    assert names == [
        "superclass and subclass",
        "superclass alone",
        "subclass alone",
        "a wrong sibling",
        "a label from elsewhere",
        "no label",
    ]
    assert (kinds.sum(axis=0) == 1).all()
    ones = np.ones(1, bool)
    young = kinds_of(predicted[1:2, [0, 2, 3]], targets[:1, [0, 2, 3]], family[[0, 2, 3]], 0, ones)
    assert young[:, 0].tolist() == [False, True, *[False] * 5]


def test_the_river_flows_from_the_superclass_on(runs: Runs) -> None:
    run, options = runs.groups[0].runs[0], Options(superclass="square")
    river = label_river(run, "square", options)
    assert river.tasks == (2, 3, 4, 5, 6)
    np.testing.assert_allclose(river.shares.sum(axis=0), 1)
    given = answers(run, 6)
    tree, view = given.hierarchy, given.view
    mine = tree.closure[view.leaf, tree.index("square")]
    right = (given.predicted == view.targets).all(axis=1)
    assert river.shares[0, -1] == pytest.approx(right[mine].mean())
    column = view.classes.index("square")
    assert river.above[-1] == pytest.approx(given.predicted[mine, column].mean())
    panels = draw("river", runs, options)[0].figure.axes
    assert [axes.get_title() for axes in panels] == ["ER", "iCaRL-norm"]
    assert [text.get_text() for text in panels[0].texts] == ["1", "3"]
    assert panels[0].figure.get_suptitle() == "test images of “square”"
    assert len(panels[0].collections) >= len(KINDS)
    with pytest.raises(UnknownNameError, match="unknown superclass 'sqare': did you mean 'square'"):
        draw("river", runs, Options(superclass="sqare"))


@pytest.mark.parametrize("name", ["river", "forgetting"])
def test_panels_above_an_empty_place_have_numbers(tmp_path: Path, name: str) -> None:
    for method in ("er", "lucir", "agem"):
        make_run(tmp_path / method, method, predictions=True)
    (drawing,) = draw(name, read_runs(tmp_path), Options(tasks=(0, 1, 2)))
    drawing.figure.draw_without_rendering()
    shown = [axes for axes in drawing.figure.axes if axes.get_visible()]
    numbered = [any(tick.label1.get_visible() for tick in a.xaxis.get_major_ticks()) for a in shown]
    assert numbered == [False, True, True]
    assert [axes.get_xlabel() != "" for axes in shown] == numbered


def test_the_gallery_marks_right_wrong_and_missing_labels(runs: Runs) -> None:
    run, rows = runs.groups[0].runs[0], chosen_rows(shapes(0))
    assert len(rows) == 6
    tree = shapes(0).hierarchy
    drawings = draw("gallery", runs)
    texts = [text.get_text() for text in drawings[0].figure.axes[0].texts]
    moments = [int(t.removeprefix("after task ")) for t in texts if t.startswith("after task")]
    assert (moments[0], moments[-1], len(moments)) == (0, 6, 5)  # as many as a page is wide
    written: list[str] = []
    for after in moments:
        given = answers(run, after)
        for row in rows:
            said = labels_of(given, int(row))
            place = np.flatnonzero(given.view.rows == row)
            if said is None:
                assert not place.size
                continue
            classes = np.array(given.view.classes)
            right, wrong, missing = ([n for m, n in said if m == mark] for mark in "✓✗–")
            assert {*right, *wrong} == {*classes[given.predicted[place[0]]]}
            assert {*right, *missing} == {*classes[given.view.targets[place[0]]]}
            written += [f"✓ {_short(tree, name)}" for name in right]
    written.append("✓ right")  # what the mark means
    assert [d.name for d in drawings] == ["gallery-er", "gallery-icarl-norm"]
    (axes,) = drawings[0].figure.axes
    assert sorted(t for t in texts if t.startswith("✓")) == sorted(written)
    assert len(axes.images) == 6
    shown = shapes(0).images("test")[rows[:1]][0]
    np.testing.assert_array_equal(cells(axes.images[0], len(shown)), shown)


def test_two_methods_side_by_side(runs: Runs) -> None:
    (drawing,) = draw("side-by-side", runs, Options(compare=("er", "icarl-norm")))
    texts = [text.get_text() for text in drawing.figure.axes[0].texts]
    assert texts.count("ER") == texts.count("iCaRL-norm") == 6
    with pytest.raises(DataError, match="joint has no predictions"):
        draw("side-by-side", runs, Options(compare=("er", "joint")))


def test_figures_are_left_out_where_their_data_are_missing(tmp_path: Path) -> None:
    summary(tmp_path / "iirc-cifar" / "er" / "order-0.json", [0.5] * 22)
    runs = read_runs(tmp_path)
    reasons = {
        "average-jaccard": "no run has the score 'jaccard'",
        "per-task": "no run has scores by task",
        "forgetting": "no run has scores by task",
        "questions": "no run has the score 'implication'",
        "memory": "different memory_per_class",
        **dict.fromkeys(("confusion", "river", "gallery"), "no run has kept its predictions"),
    }
    for name, reason in reasons.items():
        with pytest.raises(DataError, match=reason):
            draw(name, runs)
    with pytest.raises(UnknownNameError, match="unknown figure 'rivr': did you mean 'river'"):
        draw("rivr", runs)


def test_damaged_predictions_and_absent_data_are_told(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "a", predictions=True)
    (folder / "predictions" / "after_6.npz").write_bytes(b"no zip")
    with pytest.raises(DataError, match=r"the predictions are damaged: .*after_6\.npz"):
        draw("confusion", read_runs(tmp_path))
    cifar = make_run(tmp_path / "b", benchmark="iirc-cifar", done=1) / "predictions"
    cifar.mkdir()
    np.savez(cifar / "after_0.npz", bits=np.zeros(1, np.uint8), shape=np.array([2, 3]))
    with pytest.raises(DataError, match="nowhere"):
        draw("confusion", read_runs(tmp_path / "b"), Options(root=tmp_path / "nowhere"))


def test_a_damaged_file_takes_only_its_own_run_away(tmp_path: Path) -> None:
    for name, method, seed in (("a", "er", 1), ("b", "er", 2), ("c", "lucir", 1)):
        make_run(tmp_path / name, method, seed=seed, predictions=True)
    runs = read_runs(tmp_path)
    whole = tmp_path / "a" / "predictions" / "after_3.npz"
    whole.write_bytes(whole.read_bytes()[:50])
    assert [(group.name, run.seed) for group, run in comparable_runs(runs)] == [
        ("er", 2),
        ("lucir", 1),
    ]
    (tmp_path / "b" / "predictions" / "after_0.npz").write_bytes(b"no zip")
    (drawing,) = draw("confusion", runs)
    assert [axes.get_ylabel() for axes in drawing.figure.axes[:8:4]] == ["ground truth", "LUCIR"]
    assert "Without ER: no predictions" in drawing.caption


def test_files_are_of_their_format_and_the_same_each_time(runs: Runs, tmp_path: Path) -> None:
    first, second = (
        save(draw("average-pw-js", runs)[0], tmp_path / name, FORMATS) for name in "ab"
    )
    assert [file.name for file in first] == [f"average-pw-js.{form}" for form in FORMATS]
    heads = (b"%PDF-", b"<?xml", b"\x89PNG\r\n")
    for one, other, head in zip(first, second, heads, strict=True):
        content = one.read_bytes()
        assert content.startswith(head)
        assert content == other.read_bytes()
    assert b"after task" in first[1].read_bytes()
    with pytest.raises(UnknownNameError, match="unknown format 'pgn': did you mean 'png'"):
        save(draw("hierarchy", runs)[0], tmp_path, ["pgn"])


def test_drawing_leaves_the_readers_settings_alone(runs: Runs) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    draw("questions", runs)
    assert dict(matplotlib.rcParams) == before
