"""DER++ as the documentation shows it: its equation as loops, captured steps, the check."""

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import fake_graphs
from doc_pages import blocks
from engine_run import losses_with_and_without_graphs
from polarbear.engine.contract.batch import Batch
from polarbear.launch.check.learner import check_learner
from tiny_learner import at_task, random_images, scores_of, slow_bce

PAGE = "docs/your-own-method.md"

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def der(monkeypatch: pytest.MonkeyPatch) -> Any:
    (block,) = [b for b in blocks(PAGE) if "class DERpp" in b.text]
    assert len(block.text.splitlines()) <= 45
    module = ModuleType("page_with_der")
    monkeypatch.setitem(sys.modules, "page_with_der", module)
    exec(block.compiled(PAGE), vars(module))
    module.Balanced = type(  # type: ignore[attr-defined]
        "Balanced", (module.DERpp,), {"selection": "random", "__module__": "page_with_der"}
    )
    return module


def slow_distance(logits: Tensor, stored: Tensor, known: Tensor) -> float:
    total, count = 0.0, 0
    for row, kept, there in zip(logits.tolist(), stored.tolist(), known.tolist(), strict=True):
        for z, old, seen in zip(row, kept, there, strict=False):
            if seen:
                total, count = total + (z - old) ** 2, count + 1
    return total / count


@pytest.mark.parametrize(("n", "width"), [(8, 7), (7, 4), (1, 7)])
def test_the_loss_is_its_equation(der: Any, n: int, width: int) -> None:
    learner = at_task(der.DERpp, sizes=(4, 3), options=der.DERpp.Options(alpha=0.3, beta=0.7))
    rows = torch.arange(n)
    stored = {
        "logits": torch.randn((n, width), generator=torch.Generator().manual_seed(1)),
        "known": (torch.arange(width) < 4 + rows[:, None] % 4).float(),
    }
    targets = (torch.arange(7) == rows[:, None] % 7).float()
    reference = Batch(random_images(n, 5), targets, rows >= 0, rows, stored)
    logits, half = scores_of(learner, reference.images), max(1, n // 2)
    distance = slow_distance(logits[:half], *(stored[k][:half] for k in ("logits", "known")))
    expected = 0.3 * distance + 0.7 * slow_bce(logits[n - half :], targets[n - half :])
    assert learner.replay_loss(reference).item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("name", ["DERpp", "Balanced"])
def test_captured_steps_are_the_eager_ones(
    der: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    captured = fake_graphs.install(monkeypatch)
    fast, slow = losses_with_and_without_graphs(
        tmp_path, f"page_with_der:{name}", learning_rate=0.1
    )
    assert len(captured) == 3
    assert fast == pytest.approx(slow)


def test_the_check_finds_nothing(der: Any) -> None:
    assert check_learner(der.DERpp) == ()
    assert check_learner(der.Balanced) == ()
