"""What a run looks at, reckoned before it: the same as the run counts itself."""

from pathlib import Path
from typing import Any

import pytest

import polarbear
from polarbear.launch.assembly import build_learner
from polarbear.launch.prepare import _as_trained
from polarbear.launch.workload import TaskWork, stored_images, work_of
from polarbear.learn import run
from polarbear.methods.presets import settings_for
from polarbear.methods.registry import resolve

TINY: dict[str, Any] = {"epochs": 2, "first_task_factor": 1.0, "device": "cpu"}


def reckoned(name: str, **asked: Any) -> tuple[tuple[TaskWork, ...], int]:
    """The work of a run, and the images that it keeps."""
    settings = settings_for(name, "iirc-shapes", **asked)
    stream = _as_trained(settings, polarbear.load("iirc-shapes"))
    method = build_learner(settings, stream).method
    return work_of(method, settings, stream), stored_images(method, settings, stream)


@pytest.mark.parametrize("memory", [{}, {"memory_total": 40}], ids=["per-class", "total"])
@pytest.mark.parametrize(
    "name",
    ["finetune", "er", "er-infinite", "agem", "gdumb", "er-ace", "ss-il", "ncm", "joint"],
)
def test_passes_are_those_that_a_run_counts(
    name: str, memory: dict[str, Any], tmp_path: Path
) -> None:
    asked = TINY | memory | {"tasks": None if resolve(name).joint else 3}
    done = run(name, "iirc-shapes", folder=tmp_path / "run", progress=False, threads=1, **asked)
    work, _ = reckoned(name, **asked)
    assert sum(task.passes for task in work) == done.folder.facts()["passes"]


def test_validation_and_test_are_looked_at_without_training() -> None:
    stream = polarbear.load("iirc-shapes")
    work, _ = reckoned("er", **TINY)
    for task, found in enumerate(work):
        tested = len(stream.test(after=task)) + len(stream.post_valid(after=task))
        assert (found.valid, found.tested) == (len(stream[task].valid), tested)
        assert found.looks == 2 * found.valid + tested
    complete, _ = reckoned("incremental-joint", **TINY)
    assert complete[3].valid == len(stream.valid(after=3))


@pytest.mark.parametrize("name", ["er", "er-infinite", "er-ace", "finetune", "incremental-joint"])
def test_stored_images_are_those_that_a_run_keeps(name: str, tmp_path: Path) -> None:
    asked = TINY | {"epochs": 1}
    done = run(name, "iirc-shapes", folder=tmp_path / "run", progress=False, threads=1, **asked)
    _, stored = reckoned(name, **asked)
    assert stored * 32 * 32 * 3 == done.folder.facts()["kept"]["images"]
