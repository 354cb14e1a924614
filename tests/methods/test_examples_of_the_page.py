"""BiC and nearest means as the documentation shows them: their equations, steps and the check."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

import fake_graphs
from doc_pages import ROOT, blocks
from engine_run import outcome, shapes_stream, tiny
from polarbear.launch.check.learner import check_learner
from polarbear.launch.runner import resume, run
from polarbear.runs.folder import RunFolder
from tiny_learner import at_task, batch_for, class_images, random_images, scores_of, slow_bce

PAGE = "docs/your-own-method.md"
FILES = {"BiC": "bias_correction", "NearestMeans": "nearest_means"}

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(params=FILES)
def example(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """An example of the page, from its file: the dotted path of its class."""
    name = request.param
    load(monkeypatch, name)
    return f"{FILES[name]}:{name}"


def load(monkeypatch: pytest.MonkeyPatch, name: str) -> Any:
    """Return the class that the page shows."""
    module = ModuleType(FILES[name])
    monkeypatch.setitem(sys.modules, FILES[name], module)
    exec((ROOT / "examples" / f"{FILES[name]}.py").read_text(encoding="utf-8"), vars(module))
    return getattr(module, name)


@pytest.mark.parametrize("name", FILES)
def test_the_page_shows_the_file_and_it_is_short(name: str) -> None:
    code = (ROOT / "examples" / f"{FILES[name]}.py").read_text(encoding="utf-8")
    assert [block.text for block in blocks(PAGE) if f"class {name}(" in block.text] == [code]
    assert len(code.splitlines()) <= 45


def test_the_check_finds_nothing(example: str) -> None:
    module, _, name = example.partition(":")
    assert check_learner(getattr(sys.modules[module], name)) == ()


def test_captured_steps_are_the_eager_ones(
    example: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    captured = fake_graphs.install(monkeypatch)
    losses = {}
    for graph in (True, False):
        settings = tiny(example, graph=graph, learning_rate=0.1)
        assert run(settings, tmp_path / str(graph), stream=shapes_stream())
        losses[graph] = [line["loss"] for line in RunFolder(tmp_path / str(graph)).lines("epochs")]
    assert len(captured) == (5 if example.endswith("BiC") else 3)
    assert losses[True] == pytest.approx(losses[False])


def test_a_run_resumed_ends_as_one_that_was_not(example: str, tmp_path: Path) -> None:
    settings, steps = tiny(example, tasks=2, epochs=1, batch_size=64), []
    more = {"stream": shapes_stream(), "save_every": 0}
    assert run(settings, tmp_path / "whole", on_step=lambda *at: steps.append(at), **more)
    for stop in range(1, len(steps), 5):
        left = iter(range(stop - 1))

        def stopping(*_: object, left: Iterator[int] = left) -> None:
            if next(left, None) is None:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            run(settings, tmp_path / f"{stop}", on_step=stopping, **more)
        assert resume(tmp_path / f"{stop}", **more)
        assert outcome(tmp_path / f"{stop}") == outcome(tmp_path / "whole"), stop


def test_bic_distils_from_corrected_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = at_task(load(monkeypatch, "BiC"))
    assert learner.correction.tolist() == [1.0, 0.0]  # a task begins anew
    learner.before.copy_(torch.tensor([0.5, 0.25]))
    batch = batch_for(learner)
    logits, before = scores_of(learner, batch.images), learner.teacher(batch.images).detach()
    then = torch.sigmoid(0.5 * before + 0.25)  # all of the teacher's classes came with task 0
    kept, taught = slow_bce(logits[:, :4], then), slow_bce(logits, batch.targets)
    expected = 4 / 7 * kept + 3 / 7 * taught
    assert learner.loss(batch).item() == pytest.approx(expected, rel=1e-5)


def test_bic_corrects_the_logits_of_new_classes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = at_task(load(monkeypatch, "BiC"))
    learner.model.eval()
    learner.correction.data.copy_(torch.tensor([0.5, 0.25]))
    images = random_images(5, 3)
    logits, found = learner.model(images), learner.scores(images)
    torch.testing.assert_close(found[:, :4], logits[:, :4])
    torch.testing.assert_close(found[:, 4:], 0.5 * logits[:, 4:] + 0.25)


def test_bic_trains_its_two_numbers_in_the_second_phase_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    load(monkeypatch, "BiC")
    seen: dict[tuple[int, int], list[list[float]]] = {}

    def note(trainer: Any, progress: Any) -> None:
        numbers = trainer.learner.method.correction.tolist()
        seen.setdefault((progress.task, progress.phase), []).append(numbers)

    settings = tiny("bias_correction:BiC", tasks=2, epochs=1, batch_size=64)
    assert run(settings, tmp_path / "run", stream=shapes_stream(), on_step=note)
    assert set(seen) >= {(0, 0), (1, 0), (1, 1)}
    assert all(pair == [1.0, 0.0] for pair in seen[0, 0] + seen[1, 0])
    assert seen[1, 1][-1] != [1.0, 0.0]


def test_the_nearest_mean_is_predicted(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = at_task(load(monkeypatch, "NearestMeans"))
    learner.end_task()
    images, expected = random_images(6, 3), []
    for feature in learner.model.features(images).tolist():
        best, nearest = -2.0, -1
        for column in range(learner.context.seen):
            stored = learner.model.features(class_images(column, None)).tolist()
            mean = [sum(part) for part in zip(*map(unit, stored), strict=True)]
            cosine = sum(a * b for a, b in zip(unit(feature), unit(mean), strict=True))
            if cosine > best:
                best, nearest = cosine, column
        expected.append(nearest)
    with torch.no_grad():
        predicted = learner.decide(learner.scores(images))
    assert predicted.sum(dim=1).tolist() == [1] * 6
    assert predicted.int().argmax(dim=1).tolist() == expected
    assert len(set(expected)) > 1


def unit(vector: list[float]) -> list[float]:
    length = sum(value**2 for value in vector) ** 0.5
    return [value / length for value in vector]
