"""Several views of an image in one step."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fake_graphs
from engine_run import AddsReference, Notes, finish, outcome, shapes_stream, tiny
from polarbear.engine.contract.batch import Batch
from polarbear.engine.contract.check_class import check_class
from polarbear.engine.generator import generator_for
from polarbear.engine.images.transform import TRANSFORMS, augment
from polarbear.engine.trainer import Progress, Trainer
from polarbear.launch.assembly import build_learner
from polarbear.launch.check.learner import check_learner
from polarbear.launch.runner import resume, run
from polarbear.methods.er import ER
from polarbear.runs.folder import RunFolder

pytestmark = pytest.mark.usefixtures("one_thread")


class TwoViews(AddsReference):
    """ER that wants the same logits of both views, and of those of the memory beside."""

    summary = "replays random stored images; two views of an image agree"
    views = 2

    def loss(self, batch: Batch) -> Tensor:
        first, second = batch.views
        return super().loss(batch) + 0.1 * (self.model(first) - self.model(second)).square().mean()


class Beside(TwoViews):
    """The same with memory images in a batch of their own."""

    replay = "reference"


class Flowing(Beside):
    """The same with a memory that changes at every step."""

    selection = "reservoir"


class Once(Flowing):
    """One view of each, for the others to be compared with."""

    views = 1

    def loss(self, batch: Batch) -> Tensor:
        assert batch.views == (batch.images,)
        return ER.loss(self, batch)


class OnceBeside(Once):
    selection = "random"


class TwiceButBlind(Once):
    """Has a second view and does not look at it."""

    views = 2
    loss = ER.loss


class TwiceBesideButBlind(TwiceButBlind):
    selection = "random"


class Never(ER):
    views = 0


class Always(ER):
    views = True


class InWords(ER):
    views = "two"


ALL = ("TwoViews", "Beside", "Flowing")


def own(method: str, **changes: Any) -> Any:
    return tiny(f"{__name__}:{method}", learning_rate=0.1, **changes)


def given(method: str) -> list[tuple[Batch, Batch | None]]:
    """Return what the steps of a run are given."""
    learner = build_learner(own(method, tasks=2), shapes_stream())
    trainer = Trainer(shapes_stream(), learner, (Notes(),))
    inner, steps = learner.method.backward, []

    def backward(batch: Batch, reference: Batch | None) -> Tensor:
        steps.append((batch, reference))
        return inner(batch, reference)

    learner.method.backward = backward  # type: ignore[method-assign]
    finish(trainer)
    return steps


@pytest.mark.parametrize(
    ("one", "two"), [("Once", "TwiceButBlind"), ("OnceBeside", "TwiceBesideButBlind")]
)
def test_the_first_view_is_what_it_would_be_alone(one: str, two: str) -> None:
    pairs = list(zip(given(one), given(two), strict=True))
    beside = [(a, b) for (_, a), (_, b) in pairs if a is not None and b is not None]
    assert beside
    for single, double in [(a, b) for (a, _), (b, _) in pairs] + beside:
        assert torch.equal(single.images, double.images)
        assert torch.equal(single.rows, double.rows)
        assert torch.equal(double.images, double.views[0])


@pytest.mark.parametrize("method", ALL)
def test_the_second_view_shows_the_same_images_varied_otherwise(method: str) -> None:
    batches = [batch for pair in given(method) for batch in pair if batch is not None]
    for batch in batches:
        first, second = batch.views
        assert first.shape == second.shape
        assert not torch.equal(first, second)
        # Cut out elsewhere, most of an image is still there: its mean colour is near.
        apart = (first.mean(dim=(2, 3)) - second.mean(dim=(2, 3))).abs().mean()
        others = (first.mean(dim=(2, 3)) - second.roll(1, 0).mean(dim=(2, 3))).abs().mean()
        assert apart < others / 2 or len(batch.rows) < 8
    assert not torch.equal(batches[0].views[1], batches[1].views[1])


def test_the_second_view_has_a_key_of_its_own() -> None:
    settings, stream = own("TwoViews"), shapes_stream()
    rows = stream[0].train.rows
    order = generator_for(settings.seed, "shuffle", 0, 0).permutation(len(rows))
    random = generator_for(settings.seed, "views", 1, 0, 0)
    plain = TRANSFORMS["plain"]
    jitter = plain.crop.draw(len(rows), random)[: settings.batch_size]
    stored = torch.from_numpy(stream.images("train")[rows[order[: settings.batch_size]]])
    batch, _ = given("TwoViews")[0]
    assert torch.equal(batch.views[1], augment(stored, jitter, plain))


@pytest.mark.parametrize("method", ALL)
def test_captured_steps_see_both_views(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, method: str
) -> None:
    captured = fake_graphs.install(monkeypatch)
    found = []
    for graph in (True, False):
        folder = tmp_path / str(graph)
        assert run(own(method, graph=graph), folder, stream=shapes_stream())
        lines = RunFolder(folder).lines("epochs")
        found.append([(line["loss"], line["valid"]) for line in lines])
    assert len(captured) == 3
    assert found[0] == [pytest.approx(line) for line in found[1]]


@pytest.mark.parametrize("method", ALL)
def test_a_resumed_run_draws_the_same_views(tmp_path: Path, method: str) -> None:
    settings = own(method, tasks=2)
    assert run(settings, tmp_path / "whole", stream=shapes_stream())

    def stop(trainer: Trainer, progress: Progress) -> None:
        if progress.task == 1 and progress.epoch == 1 and progress.step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(settings, tmp_path / "broken", stream=shapes_stream(), on_step=stop, save_every=0)
    assert resume(tmp_path / "broken", stream=shapes_stream())
    assert outcome(tmp_path / "broken") == outcome(tmp_path / "whole")


@pytest.mark.parametrize(
    ("method", "said"),
    [
        (Never, "views must be at least 1, and 2 for two views of each image, not 0"),
        (Always, "views must be at least 1, and 2 for two views of each image, not True"),
        (InWords, "views must be int, not 'two'"),
    ],
)
def test_no_such_number_of_views(method: type[ER], said: str) -> None:
    assert said in [finding.message for finding in check_class(method)]


def test_a_method_may_not_change_the_second_view() -> None:
    class Painter(TwoViews):
        def backward(self, batch: Batch, reference: Batch | None) -> Tensor:
            loss = super().backward(batch, reference)
            batch.views[1].add_(1)
            return loss

    assert not check_learner(TwoViews)
    found = check_learner(Painter, strict=False)
    assert any("it changes batch.views[1], which is not its own" in str(one) for one in found)
