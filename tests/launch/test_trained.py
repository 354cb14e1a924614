"""What a run has learnt, loaded again: it predicts what the run predicted, without its data."""

import shutil
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from doc_pages import ROOT
from engine_run import METHODS, interrupt_at, outcome, shapes_stream, tiny
from hard.benchmark_formats import make_benchmark
from polarbear.base.errors import DataError, PolarbearError
from polarbear.base.files import write_json
from polarbear.base.sealed import sealed
from polarbear.benchmark.stream import Stream
from polarbear.data.shapes import shapes
from polarbear.engine.contract.batch import TaskContext
from polarbear.engine.trainer import Progress
from polarbear.launch.prepare import begin
from polarbear.launch.runner import advance, resume, run
from polarbear.launch.stop import Stop
from polarbear.launch.trained import load_model
from polarbear.methods.er import ER
from polarbear.named.registry import find
from polarbear.runs.folder import RunFolder
from polarbear.runs.guards import RunError
from polarbear.runs.own_loop import start_run
from polarbear.runs.result import Result
from polarbear.settings.settings import Settings

pytestmark = pytest.mark.usefixtures("one_thread")


def trained(folder: Path, method: str = "er", **changes: object) -> Settings:
    values = {"epochs": 1, "tasks": 2, "keep_scores": True} | changes
    settings = tiny(method, **values)
    assert run(settings, folder, stream=shapes_stream())
    return settings


def images_after(after: int, stream: Stream | None = None) -> np.ndarray:
    stream = stream or shapes_stream()
    return stream.images("test")[stream.test(after).rows]


def assert_as_in_the_run(folder: Path, after: int = 1) -> None:
    model, kept = load_model(folder, device="cpu"), RunFolder(folder)
    images = images_after(after)
    assert np.array_equal(model.predict(images), kept.predictions(after))
    assert model.scores(images) == pytest.approx(kept.raw(after), rel=1e-3, abs=1e-6)
    assert model.classes == shapes_stream()[after].seen


# Beside the paper's, those that predict by more than the network.
MORE = ("kin", "bic", "il2m", "icarl-nme", "hcv", "slda", "podnet")


@pytest.mark.parametrize("method", [*(m for m in METHODS if m != "joint"), *MORE])
def test_it_predicts_what_the_run_predicted(tmp_path: Path, method: str) -> None:
    trained(tmp_path / "run", method)
    assert_as_in_the_run(tmp_path / "run")


def test_all_classes_of_a_joint_run_are_there(tmp_path: Path) -> None:
    settings = tiny("joint", epochs=1, tasks=None)
    assert run(settings, tmp_path / "run", stream=shapes_stream())
    model = load_model(tmp_path / "run", device="cpu")
    images = images_after(len(shapes_stream()) - 1)
    found, kept = model.predict(images), RunFolder(tmp_path / "run").predictions(0)
    assert len(model.classes) == len(shapes_stream().classes)
    assert np.array_equal(found.sum(axis=0), kept.sum(axis=0))


@pytest.mark.parametrize("example", ["bias_correction:BiC", "nearest_means:NearestMeans"])
def test_the_examples_predict_what_their_runs_predicted(
    tmp_path: Path, example: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples")
    trained(tmp_path / "run", example)
    assert_as_in_the_run(tmp_path / "run")
    del sys.modules[example.partition(":")[0]]


@pytest.mark.parametrize("rule", ["top1", "expected", "top1-per-level", "expected-tree"])
def test_it_decides_by_the_rule_of_the_run(tmp_path: Path, rule: str) -> None:
    trained(tmp_path / "run", decision=rule)
    assert_as_in_the_run(tmp_path / "run")


def test_inferred_parents_are_known_to_the_rule(tmp_path: Path) -> None:
    trained(tmp_path / "run", "kin", decision="top1-parent", options={"threshold": 0.1})
    assert_as_in_the_run(tmp_path / "run")


def test_loading_changes_nothing_in_the_folder(tmp_path: Path) -> None:
    trained(tmp_path / "run")
    before = outcome(tmp_path / "run"), sorted((tmp_path / "run").rglob("*"))
    load_model(tmp_path / "run").predict(images_after(1))
    assert (outcome(tmp_path / "run"), sorted((tmp_path / "run").rglob("*"))) == before


def test_the_network_gives_the_scores_of_a_method_without_others(tmp_path: Path) -> None:
    trained(tmp_path / "run", "finetune")
    model, images = load_model(tmp_path / "run", device="cpu"), images_after(1)
    with torch.no_grad():
        logits = model.network(model.prepared(images))
    assert np.array_equal(logits.numpy(), model.scores(images))
    assert not model.network.training


def test_a_result_does_as_well_as_a_folder(tmp_path: Path) -> None:
    trained(tmp_path / "run")
    model = load_model(Result(RunFolder(tmp_path / "run")))
    assert model.names(np.eye(len(model.classes), dtype=bool)[:1]) == [model.classes[:1]]
    assert model.predict(images_after(1)[:0]).shape == (0, len(model.classes))


def test_neither_data_nor_benchmark_are_needed(tmp_path: Path) -> None:
    make_benchmark(tmp_path)
    benchmark = str(tmp_path / "mine")
    settings = replace(tiny("er", epochs=1, tasks=2), benchmark=benchmark)
    assert run(settings, tmp_path / "run")
    own = find(benchmark)
    titles, colours = own.hierarchy().titles, own.colours
    before = load_model(tmp_path / "run", device="cpu")
    assert before.titles == tuple(titles.get(name, name) for name in before.classes)
    images = np.random.default_rng(0).integers(0, 256, (5, *before.size, 3), np.uint8)
    expected = before.scores(images)
    for file in tmp_path.iterdir():
        if file.name != "run":
            shutil.rmtree(file) if file.is_dir() else file.unlink()
    after = load_model(tmp_path / "run", device="cpu")
    assert after.titles == after.classes == before.classes
    assert np.array_equal(after.scores(images), expected)
    assert colours is None or after.learner.transform.mean == colours.mean


def test_of_a_run_that_stopped_between_tasks_it_has_what_came_so_far(tmp_path: Path) -> None:
    settings = tiny("kin", epochs=1, tasks=3, keep_scores=True)
    prepared = begin(settings, tmp_path / "run", stream=shapes_stream())
    going = advance(prepared, Stop(), save_every=1e9)
    while next(going) != Progress(task=2):
        pass
    going.close()
    assert_as_in_the_run(tmp_path / "run")
    assert resume(tmp_path / "run", stream=shapes_stream())
    assert_as_in_the_run(tmp_path / "run", after=2)


def test_a_run_that_stopped_within_its_first_task_has_nothing_to_load(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(
            tiny("er", tasks=2),
            tmp_path / "run",
            stream=shapes_stream(),
            on_step=interrupt_at(4),
            save_every=0,
        )
    with pytest.raises(RunError, match=r"stopped within task 0, .* `polarbear resume .*run` goes"):
        load_model(tmp_path / "run")


def test_a_folder_without_its_checkpoint_says_so(tmp_path: Path) -> None:
    trained(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "checkpoint")
    with pytest.raises(RunError, match="has no whole checkpoint, which holds the network"):
        load_model(tmp_path / "run")


def test_a_loop_of_ones_own_has_no_network_here(tmp_path: Path) -> None:
    start_run(tmp_path / "run", shapes_stream(), method="mine")
    with pytest.raises(RunError, match="recorded by a loop of one's own"):
        load_model(tmp_path / "run")


def test_the_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    trained(tmp_path / "one")
    trained(tmp_path / "other", learning_rate=0.1)
    shutil.rmtree(tmp_path / "one" / "checkpoint")
    shutil.copytree(tmp_path / "other" / "checkpoint", tmp_path / "one" / "checkpoint")
    with pytest.raises(RunError, match="is of other settings than its manifest"):
        load_model(tmp_path / "one")


def test_for_a_run_of_an_earlier_version_the_data_tell_the_size(tmp_path: Path) -> None:
    settings = tiny("er", epochs=1, tasks=2, keep_scores=True)
    assert run(settings, tmp_path / "run")
    manifest = RunFolder(tmp_path / "run").manifest()
    assert manifest.pop("images")["size"] == [32, 32]
    write_json(tmp_path / "run" / "manifest.json", sealed(manifest))
    model, stream = (
        load_model(tmp_path / "run", device="cpu"),
        Stream.from_source(
            shapes(), find("iirc-shapes").hierarchy(), find("iirc-shapes").schedule(0)
        ),
    )
    kept = RunFolder(tmp_path / "run").predictions(1)
    assert np.array_equal(model.predict(images_after(1, stream)), kept)


# Images


def test_files_are_brought_to_the_size_it_learnt_from(tmp_path: Path) -> None:
    trained(tmp_path / "run")
    model, (first, second, *_) = load_model(tmp_path / "run", device="cpu"), images_after(1)
    Image.fromarray(first).save(tmp_path / "small.png")
    wide = np.zeros((64, 100, 3), np.uint8)
    wide[:, 18:82] = second.repeat(2, axis=0).repeat(2, axis=1)
    Image.fromarray(wide).save(tmp_path / "wide.png")
    files = [tmp_path / "small.png", str(tmp_path / "wide.png")]
    found = model.read(files)
    assert np.array_equal(found[0], first)
    assert found.shape == (2, 32, 32, 3)
    assert np.abs(found[1].astype(int) - second).mean() < 8  # blurred a little
    expected = model.scores(found)
    for i, (file, scores, predicted) in enumerate(model.predict_files(files)):
        assert (file, scores.tolist()) == (Path(files[i]), expected[i].tolist())
        assert np.array_equal(predicted, model.decide(expected)[i])
    with pytest.raises(DataError, match=r"absent\.png"):
        model.read([tmp_path / "absent.png"])


def test_oblong_images_must_have_the_very_size(tmp_path: Path) -> None:
    trained(tmp_path / "run")
    model = replace(load_model(tmp_path / "run", device="cpu"), size=(8, 12))
    Image.fromarray(np.zeros((8, 12, 3), np.uint8)).save(tmp_path / "fits.png")
    Image.fromarray(np.zeros((12, 8, 3), np.uint8)).save(tmp_path / "turned.png")
    assert model.read([tmp_path / "fits.png"]).shape == (1, 8, 12, 3)
    with pytest.raises(DataError, match=r"turned\.png is 12×8, .* images of 8×12"):
        model.read([tmp_path / "turned.png"])


@pytest.mark.parametrize(
    "images",
    [np.zeros((2, 32, 32, 3)), np.zeros((2, 16, 16, 3), np.uint8), np.zeros((32, 32, 3), np.uint8)],
)
def test_other_arrays_are_refused(tmp_path: Path, images: np.ndarray) -> None:
    trained(tmp_path / "run")
    with pytest.raises(DataError, match=r"due is uint8 \(n, 32, 32, 3\); read\(files\) makes them"):
        load_model(tmp_path / "run", device="cpu").predict(images)


# Methods whose scores need what no checkpoint has


class Remembering(ER):
    """It keeps in plain Python what its scores need."""

    def begin_task(self, context: TaskContext) -> None:
        self.scale = 2.0

    def scores(self, images: Tensor) -> Tensor:
        return self.scale * super().scores(images)


class Looking(ER):
    """It looks at images of memory whenever it predicts."""

    def scores(self, images: Tensor) -> Tensor:
        return super().scores(images) + self.context.stored_images(0).mean()


class Counting(ER):
    """It predicts by how often a class came."""

    def scores(self, images: Tensor) -> Tensor:
        return super().scores(images) + self.context.class_counts.log()


def test_a_method_that_keeps_too_little_says_what_to_do(tmp_path: Path) -> None:
    found = {}
    for method in (Remembering, Looking, Counting):
        trained(tmp_path / method.__name__, f"{__name__}:{method.__name__}")
        model = load_model(tmp_path / method.__name__, device="cpu")
        with pytest.raises((AttributeError, PolarbearError)) as raised:
            model.predict(images_after(1))
        found[method] = f"{raised.value} {' '.join(getattr(raised.value, '__notes__', []))}"
    assert "has no attribute 'scale'" in found[Remembering]
    assert "asks for images of the run" in found[Looking]
    assert "depend on context.class_counts" in found[Counting]
    assert all("need in a buffer, a parameter or self.networks" in said for said in found.values())


def test_a_method_that_has_changed_since_is_refused(tmp_path: Path) -> None:
    trained(tmp_path / "run", f"{__name__}:{Changing.__name__}")
    Changing.head = "cosine"
    try:
        with pytest.raises(RunError, match="has the method, the network or PyTorch changed since"):
            load_model(tmp_path / "run")
    finally:
        Changing.head = "linear"


class Changing(ER):
    """Its head becomes another."""

    head = "linear"
