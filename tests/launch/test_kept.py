"""What a run says at its end that it trained on and keeps, beside what can be counted by hand."""

from pathlib import Path

import pytest
from torch import Tensor

from engine_run import tiny
from polarbear.engine.contract.batch import Batch
from polarbear.engine.nets.networks import build_backbone
from polarbear.launch.runner import run
from polarbear.methods.agem import AGEM
from polarbear.methods.er_ace import ERACE
from polarbear.runs.cost import Cost
from polarbear.runs.folder import RunFolder
from synthetic_runs import make_run, shapes

pytestmark = pytest.mark.usefixtures("one_thread")

TASKS, EPOCHS, PER_CLASS = 2, 2, 3
IMAGE = 32 * 32 * 3


@pytest.mark.parametrize("method", ["finetune", "er", "incremental-joint", "kin"])
def test_a_finished_run_says_what_it_took_and_keeps(method: str, tmp_path: Path) -> None:
    settings = tiny(
        *(method,), tasks=TASKS, epochs=EPOCHS, first_task_factor=1.0, memory_per_class=PER_CLASS
    )
    assert run(settings, tmp_path / "run")
    folder, stream = RunFolder(tmp_path / "run"), shapes(0)
    first, second = (len(stream[task].train) for task in range(TASKS))
    classes = [len(stream[task].classes) for task in range(TASKS)]
    stored = PER_CLASS * sum(classes)
    replayed = {"er": PER_CLASS * classes[0], "kin": PER_CLASS * classes[0]}.get(method, 0)
    passes = EPOCHS * (first + second + replayed)
    kept = folder.facts()["kept"]
    if method == "incremental-joint":
        union = len(stream.train(after=1))
        assert kept["images"] == union * IMAGE
        passes = EPOCHS * (first + union)
    else:
        assert kept["images"] == (0 if method == "finetune" else stored * IMAGE)
    assert folder.facts()["passes"] == passes == sum(epoch.images for epoch in folder.epochs())
    weights = build_backbone(settings.network, seed=0).parameters()
    size = sum(4 * one.numel() for one in weights)  # less than the whole: the head grows
    assert (kept["networks"] > TASKS * size) is (method == "kin")
    seconds = folder.seconds()  # alone on its device, so that all of them are its own
    alone = pytest.approx(seconds, rel=1e-9)
    assert Cost.of(folder) == Cost(passes, seconds, sum(kept.values()), alone)


class Counted:
    """Counts the images that steps are given, mixed into a method."""

    taken = 0

    def backward(self, batch: Batch, reference: Batch | None) -> Tensor:
        Counted.taken += len(batch.images) + (0 if reference is None else len(reference.images))
        return super().backward(batch, reference)  # type: ignore[misc, no-any-return]


class CountedAGEM(Counted, AGEM):
    """Draws from a memory that is filled between tasks."""


class CountedERACE(Counted, ERACE):
    """Draws from a reservoir that every step fills."""


@pytest.mark.parametrize("method", ["CountedAGEM", "CountedERACE"])
def test_memory_images_beside_a_steps_own_are_passes(method: str, tmp_path: Path) -> None:
    Counted.taken = 0
    assert run(tiny(f"test_kept:{method}", tasks=TASKS, memory_per_class=PER_CLASS), tmp_path / "r")
    folder = RunFolder(tmp_path / "r")
    own = sum(epoch.images for epoch in folder.epochs())
    assert Cost.of(folder).passes == Counted.taken > own


def test_no_passes_are_a_number_and_unknown_ones_are_none(tmp_path: Path) -> None:
    folder = RunFolder(make_run(tmp_path / "run"))
    assert Cost.of(folder).passes is None  # as of a loop of one's own, which writes no epochs
    (folder.path / "finished.json").write_text('{"seconds": 1.0, "passes": 0}')
    assert Cost.of(folder).passes == 0


def test_an_unfinished_run_counts_its_passes_alone(tmp_path: Path) -> None:
    assert run(tiny("er", tasks=1), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    passes = folder.facts()["passes"]
    (folder.path / "finished.json").unlink()
    assert Cost.of(folder) == Cost(passes, None, None)
