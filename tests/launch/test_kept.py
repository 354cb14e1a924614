"""What a run says at its end that it trained on and keeps, beside what can be counted by hand."""

from pathlib import Path

import pytest

from engine_run import tiny
from polarbear.engine.nets.networks import build_backbone
from polarbear.launch.runner import run
from polarbear.runs.cost import Cost
from polarbear.runs.folder import RunFolder
from synthetic_runs import shapes

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
    assert Cost.of(folder) == Cost(passes, folder.seconds(), sum(kept.values()))


def test_an_unfinished_run_counts_its_passes_alone(tmp_path: Path) -> None:
    assert run(tiny("er", tasks=1), tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    passes = folder.facts()["passes"]
    (folder.path / "finished.json").unlink()
    assert Cost.of(folder) == Cost(passes, None, None)
