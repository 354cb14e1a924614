"""Data that lack images of a published benchmark: refused, or named so wherever they go."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from polarbear import Source, Stream, check_stream, load, save_predictions, start_run
from polarbear.base.errors import DataError, PartialDataError, PolarbearError
from polarbear.cli import main
from polarbear.data.shapes import shapes
from polarbear.launch.prepare import begin
from polarbear.methods.presets import settings_for
from polarbear.named.registry import (
    find,
    lasting_name,
    nominal_stream,
    partial_name,
    register,
    short_name,
)
from polarbear.named.shipped import IMAGENET, LEFT_OUT
from polarbear.report.build import draw
from polarbear.report.read.paper import paper_results
from polarbear.report.read.runs import read_runs

TINY = ("--epochs", "1", "--tasks", "2", "--threads", "1", "--device", "cpu", "--network", "small")


@pytest.fixture(autouse=True)
def _some_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def without(train: int = 0, test: int = 0) -> Source:
    """The images of iirc-shapes, but so many of its first leaf."""
    whole = shapes()
    kept = [
        np.delete(np.arange(len(leaf)), np.flatnonzero(leaf == 0)[:absent])
        for leaf, absent in ((whole.train_leaf, train), (whole.test_leaf, test))
    ]
    return replace(
        whole,
        train=whole.train[kept[0]],
        train_leaf=whole.train_leaf[kept[0]],
        test=whole.test[kept[1]],
        test_leaf=whole.test_leaf[kept[1]],
        origin="the-folder",
    )


@pytest.fixture
def gaps() -> str:
    """The name of a benchmark whose data lack 3 training images and a test image of a leaf."""
    source = without(train=3, test=1)
    register(replace(find("iirc-shapes"), name="gaps", open_source=lambda *_: source))
    return "gaps"


# --- load


def test_a_lack_is_an_error_that_says_how_much_of_what(gaps: str) -> None:
    leaf = find(gaps).hierarchy().leaves[0]
    with pytest.raises(PartialDataError) as error:
        load(gaps)
    assert str(error.value) == (
        "the-folder has not all images of gaps-v1: 2,897 training images of 2,900 in 29 classes; "
        f"1 class has fewer than 100 training images ({leaf}: 97); 1 class has fewer than 30 test "
        f"images ({leaf}: 29). Complete the data; or, to go on with what is there, add --partial "
        "(in Python, partial=True), and every result says so"
    )


def test_partial_data_are_named_so(gaps: str) -> None:
    for stream in (load(gaps, partial=True), load("gaps-partial"), load("gaps-v1-partial")):
        assert stream.name == "gaps-v1-partial"
        assert len(stream.train_leaf) == 2897


def test_whole_data_keep_their_name() -> None:
    assert load("iirc-shapes", partial=True).name == load("iirc-shapes").name == "iirc-shapes-v1"


def test_listed_rows_are_named_by_what_they_lack() -> None:
    leaves = find("iirc-shapes").hierarchy().leaves
    short = load("iirc-shapes", leaf_train=leaves * 99, leaf_test=leaves * 30)
    whole = load("iirc-shapes", leaf_train=leaves * 100, leaf_test=leaves * 30)
    assert (short.name, whole.name) == ("iirc-shapes-v1-partial", "iirc-shapes-v1")


def test_more_images_than_published_are_others_partial_or_not() -> None:
    whole = shapes()
    rows = np.append(np.arange(len(whole.train_leaf)), 0)
    more = replace(whole, train=whole.train[rows], train_leaf=whole.train_leaf[rows])
    register(replace(find("iirc-shapes"), name="more", open_source=lambda *_: more))
    for partial in (False, True):
        with pytest.raises(DataError, match=r"has more images than more-v1.*: 101\. Remove those"):
            load("more", partial=partial)


# --- ImageNet


def imagenet(train: dict[str, int], *, test: int = 50, left_out: bool = True) -> Stream:
    """A stream with ImageNet's number of images but for a few classes."""
    leaves = [
        n for n in find("cil-imagenet-full").hierarchy().names if left_out or n not in LEFT_OUT
    ]
    counts = np.full(len(leaves), 1300)
    counts[:105] -= 179  # so many classes have fewer than 1,300; which, nobody needs to know here
    counts[0] -= 1_300_000 - 105 * 179 - IMAGENET.in_all
    counts[[leaves.index(name) for name in train]] = list(train.values())
    names = np.array(leaves)
    listed = {"leaf_train": np.repeat(names, counts), "leaf_test": np.repeat(names, test)}
    return load("iirc-imagenet-full", **listed)


@pytest.mark.parametrize("left_out", [True, False])
def test_a_whole_imagenet_lacks_nothing(left_out: bool) -> None:
    stream = imagenet({}, left_out=left_out)
    assert stream.name == "iirc-imagenet-full-v1"
    assert IMAGENET.lacking(stream) == ""


def test_a_single_image_missing_in_imagenet_shows_in_the_sum() -> None:
    stream = imagenet({"n02123045": 1299})
    assert stream.name == "iirc-imagenet-full-v1-partial"
    assert IMAGENET.lacking(stream) == "1,281,166 training images of 1,281,167 in 1,000 classes"


def test_classes_below_imagenets_smallest_are_named() -> None:
    lacking = IMAGENET.lacking(imagenet({"n02123045": 700, "n02123159": 0}, test=49))
    assert "2 classes have fewer than 732 training images" in lacking
    assert "(n02123159: 0, n02123045: 700)" in lacking
    assert "998 classes have fewer than 50 test images" in lacking


@pytest.mark.parametrize("name", ["iirc-imagenet-lite", "cil-imagenet-full"])
def test_the_real_sample_is_refused_or_partial(imagenet_root: Path, name: str) -> None:
    with pytest.raises(PartialDataError, match="4,000 training images of 1,281,167"):
        load(name, root=imagenet_root)
    stream = load(name, root=imagenet_root, partial=True)
    assert stream.name == f"{name}-v1-partial"
    assert len(stream.images("test")) == 2000


# --- names


def test_a_partial_benchmark_is_found_by_its_name() -> None:
    found = find("iirc-imagenet-full-partial")
    assert (found.id, short_name(found)) == (
        "iirc-imagenet-full-v1-partial",
        "iirc-imagenet-full-partial",
    )
    assert short_name(find("iirc-imagenet-full-v2-partial")) == "iirc-imagenet-full-v2-partial"
    assert lasting_name("iirc-imagenet-full-partial") == "iirc-imagenet-full-partial"
    assert nominal_stream("iirc-cifar-partial") is None


def test_the_preset_is_that_of_the_benchmark() -> None:
    for name in ("iirc-imagenet-lite-partial", "iirc-imagenet-lite-v1-partial"):
        partial, whole = settings_for("icarl-cnn", name), settings_for("icarl-cnn", name[:18])
        assert replace(partial, benchmark=whole.benchmark) == whole


def test_partial_results_have_no_place_beside_the_papers() -> None:
    assert paper_results("iirc-cifar-v1")
    assert not paper_results("iirc-cifar-v1-partial")


def test_a_benchmark_without_published_counts_cannot_be_partial() -> None:
    register(replace(find("iirc-shapes"), name="uncounted", images_per_leaf=None))
    with pytest.raises(PolarbearError, match="nobody has published how many images uncounted has"):
        partial_name("uncounted")


# --- commands


def test_a_run_on_partial_data_says_so_everywhere(
    gaps: str, capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    command = ("run", "er", "--benchmark", gaps, *TINY)
    assert "not all images of gaps-v1: 2,897 training images of 2,900" in refused(*command)
    assert main([*command, "--partial"]) == 0
    folder = Path("runs/gaps-partial/er/order-0-seed-100")
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["settings"]["benchmark"] == "gaps-partial"
    assert main(["runs"]) == 0
    assert "gaps-partial" in capsys.readouterr().out
    assert read_runs("runs").benchmark == "gaps-v1-partial"
    assert main(["summarise", "runs", "--out", "results"]) == 0
    assert main(["report", "results", "--out", "report"]) == 0
    summary = json.loads(Path("results/gaps-partial/er/order-0.json").read_text())
    assert "--benchmark gaps-partial" in summary["command"]
    assert "Report on gaps-v1-partial" in Path("report/contents.md").read_text()
    made = json.loads(Path("report/contents.json").read_text())["made"]
    assert [name for name in made if not name.endswith("-partial")] == ["page"]
    for figure in Path("report/figures").glob("*.svg"):
        assert ">partial data</text>" in figure.read_text(), figure
    (drawing,) = draw("levels", read_runs("runs"))
    assert drawing.name == "levels-partial"
    assert main(["resume", str(folder)]) == 0  # which needs no word


def test_a_run_of_ones_own_loop_says_so(gaps: str) -> None:
    folder = start_run("runs/mine", load(gaps, partial=True), method="mine")
    assert folder.manifest()["settings"]["benchmark"] == "gaps-v1-partial"


def test_a_run_in_python_cannot_hide_that_images_are_missing(gaps: str, tmp_path: Path) -> None:
    settings, stream = settings_for("er", gaps, epochs=1, tasks=1), load(gaps, partial=True)
    with pytest.raises(PolarbearError, match="lacks images: name the benchmark 'gaps-partial'"):
        begin(settings, tmp_path / "run", stream=stream)


def test_a_run_on_whole_data_is_not_called_partial(refused: Callable[..., str]) -> None:
    said = refused("run", "er", "--benchmark", "iirc-shapes", *TINY, "--partial")
    assert "iirc-shapes-v1 has all of its images: leave out --partial" in said


def test_describe_refuses_partial_data_or_tells_what_they_lack(
    imagenet_root: Path, capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    command = ("describe", "iirc-imagenet-full", "--root", str(imagenet_root))
    assert "4,000 training images of 1,281,167 in 1,000 classes" in refused(*command)
    assert main([*command, "--partial"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("iirc-imagenet-full-v1-partial, order 0")
    assert "Partial data: 4,000 training images of 1,281,167" in text
    assert "No in-task validation images in 35 of 35 tasks: on a plateau, no rate" in text
    assert main([*command, "--partial", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "iirc-imagenet-full-v1-partial"


@pytest.mark.parametrize("more", [(), ("--partial",), ("--cost",)])
def test_describe_refuses_a_root_without_all_classes(
    imagenet_root: Path, tmp_path: Path, refused: Callable[..., str], more: tuple[str, ...]
) -> None:
    """Counts from elsewhere would pass for those of the data that were asked for."""
    for split in ("train", "val"):
        (tmp_path / split).mkdir()
        for one in sorted((imagenet_root / split).iterdir())[2:]:
            (tmp_path / split / one.name).symlink_to(one)
    command = ("describe", "iirc-imagenet-lite", "--root", str(tmp_path))
    assert "train lacks 2 of the classes: 'n01440764', 'n01443537'" in refused(*command, *more)


def test_predictions_for_partial_data_are_scored_as_such(
    gaps: str, capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    stream = load(gaps, partial=True)
    file = save_predictions("mine.npz", stream, {0: stream.test(after=0).targets})
    assert main(["score", str(file)]) == 0  # the file says it itself
    assert capsys.readouterr().out.startswith("gaps-v1-partial, order 0")
    assert "is for benchmark gaps-v1-partial" in refused("score", str(file), "--benchmark", gaps)
    assert main(["score", str(file), "--benchmark", gaps, "--partial"]) == 0


def test_check_stream_takes_partial_data(gaps: str) -> None:
    assert not [f for f in check_stream(load(gaps, partial=True)) if f.level == "error"]
