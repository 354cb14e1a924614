"""Frozen networks: features are worked out once, never change, and no checkpoint holds the rest."""

import json
import sys
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fake_graphs
from engine_run import TinyNetwork, interrupt_at, outcome, shapes_stream, tiny
from polarbear.base import how_far
from polarbear.base.errors import PolarbearError
from polarbear.benchmark.stream import Stream
from polarbear.engine.contract.batch import Batch
from polarbear.engine.contract.method import frozen_copy
from polarbear.engine.images.transform import for_evaluation
from polarbear.engine.nets import frozen as frozen_networks
from polarbear.engine.world import World
from polarbear.launch.assembly import build_learner, untrained
from polarbear.launch.checkpoint import from_newest
from polarbear.launch.fleet import Job, run_fleet
from polarbear.launch.prepare import begin
from polarbear.launch.runner import resume, run
from polarbear.launch.trained import load_model
from polarbear.methods.er import ER
from polarbear.runs.folder import RunFolder
from polarbear.runs.guards import RunError

pytestmark = pytest.mark.usefixtures("one_thread")

LOOKED = 8  # images that every learner looks at to know its network again


class Counting(TinyNetwork):
    """Counts the images that pass in this process; batch norm would notice training mode."""

    passed = 0

    def forward(self, images: Tensor) -> Tensor:
        if len(images) != 2:  # a trial of two black images does not count
            Counting.passed += len(images)
        return super().forward(images)


def saying_so() -> nn.Module:
    network = Counting()
    network.frozen = True  # type: ignore[assignment]
    return network


def other_weights() -> nn.Module:
    network = Counting()
    network.frozen = True  # type: ignore[assignment]
    with torch.no_grad():
        network.layers[0].weight[0, 0, 0, 0] += 1e-3  # type: ignore[index, union-attr]
    return network


def broken() -> nn.Module:
    network = Counting()
    torch.nn.init.constant_(network.layers[4].weight, float("nan"))  # type: ignore[arg-type]
    return network


class TwoViews(ER):
    """Sees each image twice."""

    views = 2


class Noting(ER):
    """Keeps what the last step saw."""

    seen: Batch

    def loss(self, batch: Batch) -> Tensor:
        type(self).seen = batch
        return super().loss(batch)


def path(name: str) -> str:
    return f"{__name__}:{name}"


def frozen(method: str, **changes: Any) -> Any:
    return tiny(method, **{"network": path("Counting"), "frozen": True} | changes)


@pytest.fixture(autouse=True)
def _none_passed() -> None:
    Counting.passed = 0


def images_of(stream: Stream) -> int:
    return len(stream.images("train")) + len(stream.images("test"))


def test_every_image_passes_the_network_once_however_long_it_trains(tmp_path: Path) -> None:
    stream = shapes_stream()
    assert run(frozen("er", epochs=3), tmp_path / "run", stream=stream)
    assert Counting.passed == images_of(stream) + LOOKED


def test_methods_see_features_of_images_as_they_are_in_the_file(tmp_path: Path) -> None:
    stream = shapes_stream()
    assert run(frozen(path("Noting")), tmp_path / "run", stream=stream)
    usual = build_learner(tiny("er"), stream)  # the same seed, so the same weights
    batch = Noting.seen
    (pixels,) = usual.train_pixels.batches([batch.rows.numpy()])
    with torch.no_grad():
        expected = usual.model.backbone.eval()(for_evaluation(pixels, usual.transform))
    assert batch.images.shape == (len(batch.rows), 8, 1, 1)
    torch.testing.assert_close(batch.images[:, :, 0, 0], expected)


def test_a_factory_may_say_that_its_network_is_frozen(tmp_path: Path) -> None:
    stream = shapes_stream()
    assert run(frozen("er"), tmp_path / "flag", stream=stream)
    told = tiny("er", network=path("saying_so"))
    assert run(told, tmp_path / "told", stream=stream)
    assert outcome(tmp_path / "flag") == outcome(tmp_path / "told")


@pytest.mark.parametrize("method", ["icarl-norm", "lucir", "agem", "kin", "joint"])
def test_other_methods_learn_on_features_and_resume(method: str, tmp_path: Path) -> None:
    settings = frozen(method, tasks=1 if method == "joint" else 2, learning_rate=0.1)
    stream = shapes_stream()
    assert run(settings, tmp_path / "whole", stream=stream)
    with pytest.raises(KeyboardInterrupt):
        run(settings, tmp_path / "part", stream=stream, save_every=0, on_step=interrupt_at(7))
    assert resume(tmp_path / "part", stream=stream)
    assert outcome(tmp_path / "part") == outcome(tmp_path / "whole")


def test_captured_steps_are_the_eager_ones(monkeypatch: Any, tmp_path: Path) -> None:
    captured = fake_graphs.install(monkeypatch)
    losses = {}
    for graph in (True, False):
        settings = frozen("er", graph=graph, learning_rate=0.1)
        assert run(settings, tmp_path / str(graph), stream=shapes_stream())
        losses[graph] = [line["loss"] for line in RunFolder(tmp_path / str(graph)).lines("epochs")]
    assert len(captured) == 3
    assert losses[True] == pytest.approx(losses[False])


def test_checkpoints_hold_the_head_alone_and_the_manifest_names_the_weights(tmp_path: Path) -> None:
    stream = shapes_stream()
    with pytest.raises(KeyboardInterrupt):
        run(frozen("er"), tmp_path, stream=stream, save_every=0, on_step=interrupt_at(3))
    _, checkpoint = next(from_newest(tmp_path / "checkpoint"))
    names = {name for name in checkpoint.tensors if name.startswith(("model/", "optimiser/"))}
    assert {name.split("/")[-1] for name in names} == {"head.weight", "head.bias"}
    assert len(RunFolder(tmp_path).manifest()["frozen_weights"]) == 64


def test_a_run_does_not_go_on_with_other_weights(tmp_path: Path, monkeypatch: Any) -> None:
    settings, stream = tiny("er", network=path("saying_so")), shapes_stream()
    with pytest.raises(KeyboardInterrupt):
        run(settings, tmp_path, stream=stream, save_every=0, on_step=interrupt_at(3))
    monkeypatch.setattr(sys.modules[__name__], "saying_so", other_weights)
    with pytest.raises(RunError, match=r"frozen network .*:saying_so has other weights than the"):
        resume(tmp_path, stream=stream)


@pytest.mark.parametrize("method", ["er", "slda", "kin"])
def test_what_was_trained_is_shown_images_not_features(method: str, tmp_path: Path) -> None:
    stream = shapes_stream()
    assert run(frozen(method, learning_rate=0.1), tmp_path / "run", stream=stream)
    view = stream.test(after=2)
    model = load_model(tmp_path / "run", device="cpu")
    found = model.predict(stream.images("test")[view.rows])
    np.testing.assert_array_equal(found, RunFolder(tmp_path / "run").predictions(2))


def test_what_was_trained_is_not_shown_with_other_weights(tmp_path: Path, monkeypatch: Any) -> None:
    told = tiny("er", network=path("saying_so"), tasks=1)
    assert run(told, tmp_path / "run", stream=shapes_stream())
    monkeypatch.setattr(sys.modules[__name__], "saying_so", other_weights)
    with pytest.raises(RunError, match="has other weights than the run began with"):
        load_model(tmp_path / "run", device="cpu")


def test_copies_share_the_network_and_have_no_weights() -> None:
    model = build_learner(frozen("er"), shapes_stream()).model
    copied = frozen_copy(model)
    assert copied.backbone._held is model.backbone._held
    assert [name for name, _ in model.named_parameters()] == ["head.weight", "head.bias"]
    images = torch.randn(4, 3, 32, 32)
    torch.testing.assert_close(copied(images), model(images))
    features = model.features(images)
    torch.testing.assert_close(model(features[:, :, None, None]), model(images))


def test_runs_of_one_command_share_features(tmp_path: Path) -> None:
    stream = shapes_stream()

    def job(name: str) -> Job:
        how = {"settings": frozen(name), "folder": tmp_path / name, "stream": stream}
        return Job(name, lambda shared: begin(**how, shared=shared))

    jobs = [job("er"), job("finetune")]
    outcomes = run_fleet(jobs)
    assert all(outcome.finished for outcome in outcomes.values())
    assert Counting.passed == images_of(stream) + 2 * LOOKED


def test_a_learner_made_anew_has_the_features_there_were() -> None:
    learner = build_learner(frozen("er"), shapes_stream())
    again = untrained(learner, shapes_stream())
    assert again.train_pixels is learner.train_pixels
    assert again.test_pixels is learner.test_pixels


class Listening(World):
    """The first of two processes, which notes how much is sent at once; the other has nothing."""

    def __init__(self) -> None:
        super().__init__(rank=0, size=2)
        self.sent: list[int] = []

    def reduce(self, tensor: Tensor) -> Tensor:
        self.sent.append(len(tensor))
        return tensor.clone()


def test_features_are_sent_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """All at once would be there twice: on ImageNet, gigabytes that a GPU may not have."""
    learner, images = build_learner(tiny("er"), shapes_stream()), shapes_stream().images("train")
    world, at_once = Listening(), 100
    monkeypatch.setattr(frozen_networks, "the_world", lambda: world)
    monkeypatch.setattr(frozen_networks, "SENT_AT_ONCE", at_once)
    network = frozen_networks.Frozen(Counting())
    network.features_of(learner.train_pixels, learner.transform, learner.machine)
    assert sum(world.sent) == len(images) > 2 * at_once
    assert max(world.sent) == at_once


def test_long_work_on_features_says_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    """A large network takes minutes before the first task, in which nothing else is shown."""
    seconds = count(0, 10)
    monkeypatch.setattr(how_far, "time", SimpleNamespace(monotonic=lambda: next(seconds)))
    monkeypatch.setattr(frozen_networks, "AT_ONCE", 100)
    build_learner(frozen("er"), shapes_stream())
    said = [record.getMessage() for record in caplog.records if record.levelname == "INFO"]
    # A hundred take ten seconds: the next line would come with the last of the 580.
    assert said == ["features of train images: 300 of 580, about 28 s left"]


def test_a_folder_keeps_features_for_later_runs(tmp_path: Path, caplog: Any) -> None:
    stream, folder = shapes_stream(), tmp_path / "features"
    settings = frozen("er", features_in=str(folder))
    assert run(settings, tmp_path / "first", stream=stream)
    files = sorted(folder.iterdir())
    assert [file.suffix for file in files] == [".npz"] * 2
    Counting.passed = 0
    assert run(settings, tmp_path / "second", stream=stream)
    assert Counting.passed == LOOKED
    assert outcome(tmp_path / "second") == outcome(tmp_path / "first")
    # Another network, or another preparation, has files of its own.
    assert run(frozen("er", features_in=str(folder), seed=7), tmp_path / "seed", stream=stream)
    changes = {"features_in": str(folder), "preparation": "cifar"}
    assert run(frozen("er", **changes), tmp_path / "prepared", stream=stream)
    assert len(list(folder.iterdir())) == 6
    for file in files:
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    assert run(settings, tmp_path / "damaged", stream=stream)
    assert "the features are worked out again" in caplog.text
    assert outcome(tmp_path / "damaged") == outcome(tmp_path / "first")


def test_data_without_a_checksum_are_kept_in_memory_alone(tmp_path: Path) -> None:
    stream = shapes_stream()
    assert stream.source is not None
    unnamed = replace(stream, source=replace(stream.source, checksum=""))
    with pytest.raises(PolarbearError, match="these data have no checksum"):
        build_learner(frozen("er", features_in=str(tmp_path)), unnamed)
    build_learner(frozen("er"), unnamed)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(PolarbearError, match="TwoViews wants 2 views of each image"):
        build_learner(frozen(path("TwoViews")), shapes_stream())
    with pytest.raises(PolarbearError, match="features that are no numbers, of 8 of 8 images"):
        build_learner(frozen("er", network=path("broken")), shapes_stream())


def test_settings_of_the_manifest_say_that_it_was_frozen(tmp_path: Path) -> None:
    assert run(frozen("er", tasks=1, epochs=1), tmp_path / "run", stream=shapes_stream())
    written = json.loads((tmp_path / "run" / "manifest.json").read_text())["settings"]
    assert (written["frozen"], written["network"]) == (True, path("Counting"))
    assert run(tiny("er", tasks=1, epochs=1), tmp_path / "usual", stream=shapes_stream())
    assert "frozen_weights" not in RunFolder(tmp_path / "usual").manifest()
