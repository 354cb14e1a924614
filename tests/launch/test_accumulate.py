"""Steps in parts: the run of whole steps, for every method; what batch norm makes of it."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import fake_graphs
from engine_run import interrupt_at, newest_checkpoint, shapes_stream, tiny, trainer_for
from polarbear.base.errors import PolarbearError
from polarbear.engine.trainer import Trainer
from polarbear.launch.runner import run, train
from polarbear.learn import Batch, Method, bce
from polarbear.methods.catalogue import METHODS
from polarbear.runs.folder import RunFolder
from polarbear.runs.guards import RunError

pytestmark = pytest.mark.usefixtures("one_thread")

#: Low, for rounding alone changes what a high rate makes of it.
HOW: dict[str, Any] = {
    "learning_rate": 0.01,
    "epochs": 1,
    "first_task_factor": 1,
    "tasks": 2,
    "batch_size": 34,
    "memory_per_class": 3,
    "network": "engine_run:network_without_batch_norm",
}
PARTS = 4  # of 9, 9, 8 and 8 images; an epoch's last step has other numbers


class AsksLate(Method):
    """A loss of sums that need the network: each image's features should be near their mean."""

    replay, keep, views = "mixed", "last", 2

    def begin_task(self, context: Any) -> None:
        self.register_buffer("usual", torch.zeros(8))
        self.register_buffer("images", torch.zeros(context.seen))
        self.register_buffer("far", torch.full((2,), float("inf")))

    def loss(self, batch: Batch) -> Tensor:
        features, others = (self.model.features(view) for view in batch.views)
        self.log("told twice", features.mean())
        centre = self.world.mean(features.mean(dim=0))
        spread = self.world.mean((features - centre).square().sum(dim=1).mean())
        self.usual.lerp_(features.detach().mean(dim=0), 0.1)
        self.images += self.world.sum(batch.targets.sum(dim=0))
        self.log("spread", spread)
        apart = (others - centre).square().sum(dim=1).mean() / spread.sqrt().clamp(min=1e-3)
        return bce(self.model.head(features), batch.targets) + 0.1 * apart


class AsksSometimes(AsksLate):
    """One that asks for a sum only where an image is from memory."""

    def loss(self, batch: Batch) -> Tensor:
        loss = bce(self.model(batch.images), batch.targets)
        return loss + 0 * self.world.sum(loss) if batch.rows.min() % 2 else loss


OWN = f"{__name__}:AsksLate"


def wanted(method: str, **changes: Any) -> Any:
    return tiny(method, **HOW | changes)


def trained(folder: Path, method: str, **changes: Any) -> RunFolder:
    assert run(wanted(method, **changes), folder, stream=shapes_stream())
    return RunFolder(folder)


def assert_same_run(whole: RunFolder, other: RunFolder) -> None:
    for mine, theirs in zip(whole.epochs(), other.epochs(), strict=True):
        assert theirs.loss == pytest.approx(mine.loss, rel=1e-5)
        assert theirs.own == pytest.approx(mine.own, rel=1e-4)
    assert [r.to_json() for r in other.scores()] == [r.to_json() for r in whole.scores()]
    (_, mine), (_, theirs) = (newest_checkpoint(one.path / "checkpoint") for one in (whole, other))
    assert mine.tensors.keys() == theirs.tensors.keys()
    for key, tensor in mine.tensors.items():
        scale = float(tensor.double().abs().max()) if tensor.numel() else 0.0
        near = {"rtol": 1e-4, "atol": 1e-5 * scale} if tensor.is_floating_point() else {}
        torch.testing.assert_close(theirs.tensors[key], tensor, msg=key, **near)


@pytest.mark.parametrize("method", [*METHODS, OWN])
def test_a_run_in_parts_is_the_run_of_whole_steps(method: str, tmp_path: Path) -> None:
    whole = trained(tmp_path / "whole", method)
    assert_same_run(whole, trained(tmp_path / "parts", method, accumulate=PARTS))


@pytest.mark.parametrize("method", ["lucir", "agem", "derpp", "bic", "eeil", OWN])
def test_captured_steps_in_parts_are_those_of_whole_steps(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = trained(tmp_path / "whole", method)
    captured = fake_graphs.install(monkeypatch)
    assert_same_run(whole, trained(tmp_path / "parts", method, accumulate=PARTS))
    assert len(captured) == (3 if method in ("bic", "eeil") else 2)  # which have a phase more


def shown(trainer: Trainer) -> list[int]:
    """Return the list to which the images of every pass through the network are counted."""
    sizes: list[int] = []

    def note(backbone: torch.nn.Module, images: tuple[Tensor], _: Tensor) -> None:
        if backbone.training:
            sizes.append(len(images[0]))

    trainer.learner.model.backbone.register_forward_hook(note)
    return sizes


@pytest.mark.parametrize(
    ("method", "passes"),
    [("er", 4), ("lucir", 4), ("er-ace", 8), ("derpp", 12 + 3), ("agem", 8 + 6)],
)
def test_the_network_sees_a_part_at_a_time(method: str, passes: int) -> None:
    """What is asked before the network costs no pass; A-GEM takes all parts but one twice."""
    options = {"beside": 16} if method == "derpp" else {}
    trainer, _ = trainer_for(wanted(method, accumulate=PARTS, options=options), shapes_stream())
    steps = trainer.steps()
    while trainer.progress.task == 0:
        next(steps)
    sizes, taken = shown(trainer), trainer.progress.step
    while trainer.progress.step == taken or not trainer.progress.begun:
        sizes.clear()
        next(steps)
    if method == "derpp":
        assert sizes.pop(0) == 34  # what is stored is worked out for all, without gradients
    assert (max(sizes), len(sizes)) == (9, passes)


def test_batch_norm_sees_parts_and_its_statistics_are_their_mean() -> None:
    found = {}
    for parts in (1, 2):
        settings = wanted("er", accumulate=parts, network="engine_run:TinyNetwork")
        trainer, _ = trainer_for(settings, shapes_stream())
        norm, maps = trainer.learner.model.backbone.layers[1], []
        norm.register_forward_hook(lambda module, given, _, maps=maps: maps.append(given[0]))
        next(trainer.steps())
        found[parts] = norm, maps
    norm, maps = found[2]
    assert [len(part) for part in maps] == [17, 17]
    expected = 0.9 + 0.1 * torch.stack([part.var(dim=(0, 2, 3)) for part in maps]).mean(dim=0)
    torch.testing.assert_close(norm.running_var, expected)
    torch.testing.assert_close(norm.running_mean, found[1][0].running_mean)
    assert norm.num_batches_tracked == 1


def test_parts_draw_numbers_of_their_own_and_the_same_ones_again(tmp_path: Path) -> None:
    how = {"accumulate": PARTS, "network": "engine_run:dropping_network"}
    first, again = (trained(tmp_path / name, OWN, **how) for name in ("first", "again"))
    assert first.path.joinpath("scores.jsonl").read_bytes() == (
        again.path.joinpath("scores.jsonl").read_bytes()
    )
    assert [r.loss for r in first.epochs()] == [r.loss for r in again.epochs()]


def test_parts_that_ask_for_different_sums_are_refused(tmp_path: Path) -> None:
    with pytest.raises(PolarbearError, match="parts of a step ask AsksSometimes's"):
        trained(tmp_path / "run", f"{__name__}:AsksSometimes", accumulate=PARTS)


def test_parts_of_less_than_two_images_are_refused() -> None:
    with pytest.raises(PolarbearError, match="accumulate must be at most 17, so that each part"):
        wanted("er", accumulate=18)
    assert wanted("er", batch_size=1).accumulate == 1


def test_whoever_goes_on_chooses_the_parts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole, folder = trained(tmp_path / "whole", "lucir"), tmp_path / "run"
    more: dict[str, Any] = {"stream": shapes_stream()}
    with pytest.raises(KeyboardInterrupt):
        run(wanted("lucir"), folder, on_step=interrupt_at(9), save_every=0, **more)
    with caplog.at_level(logging.WARNING, "polarbear"):
        assert train(wanted("lucir", accumulate=3), folder, **more)
    assert "began with accumulate 1, goes on with 3: scores may differ" in caplog.text
    assert_same_run(whole, RunFolder(folder))
    with pytest.raises(RunError, match=r"of other settings \(accumulate\)"):
        train(wanted("lucir", accumulate=3), folder, **more)
