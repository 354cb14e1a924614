"""bench/gradients.py: errors of gradients, and the noise between batches."""

import csv
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import save_file

from doc_pages import PAGES, ROOT, bench_script
from polarbear.engine.nets.fused import backward, blocks, whole_images
from polarbear.engine.nets.heads import build_head
from polarbear.engine.nets.model import Model
from polarbear.engine.nets.networks import build_backbone

needs_a_compiler = pytest.mark.skipif(
    torch.cuda.is_available() or shutil.which("g++") is None, reason="emulated by g++, on a CPU"
)


@pytest.fixture
def gradients(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    for module, name in ((blocks, "compile_kernel"), (backward, "sum_gradient")):
        monkeypatch.setattr(module, name, getattr(module, name))  # put back afterwards
    monkeypatch.setattr(whole_images, "work", whole_images.work)
    blocks._kernel.cache_clear()
    yield bench_script("gradients")
    blocks._kernel.cache_clear()


def model() -> Model:
    made = Model(build_backbone("resnet32", 0), build_head("linear", 64, 20, 0))
    made.head.grow(10)
    return made.train()


@needs_a_compiler
def test_fp32_is_near_and_both_ways_of_bf16_are_farther(gradients: ModuleType) -> None:
    gradients.emulate()
    torch.manual_seed(0)
    batch = [torch.randn(3, 3, 32, 32), torch.rand(3, 10).round()]
    network = model()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    loss, *found = gradients.compared(network, batch)
    fp32, bf16, bf16_part, fused, fused_part = map(float, found)
    assert 0.3 < loss < 3
    assert fp32 < 0.1 * min(bf16, fused)
    assert max(bf16, fused) < 1
    assert (bf16, bf16_part) != (fused, fused_part)  # two ways, each of which was gone
    assert 0.5 < min(bf16_part, fused_part) < 1.5
    assert all(torch.equal(now, before[name]) for name, now in network.state_dict().items())


def test_equal_batches_are_not_apart_and_others_are(gradients: ModuleType) -> None:
    torch.manual_seed(0)
    one, other = ([torch.randn(2, 3, 32, 32), torch.rand(2, 10).round()] for _ in range(2))
    network = model()
    assert gradients.apart_from_their_mean(network, [one, one]) < 1e-6
    assert gradients.apart_from_their_mean(network, [one, other]) > 0.1


def test_weights_and_their_place_are_read_from_a_checkpoint(
    gradients: ModuleType, tmp_path: Path
) -> None:
    network, file = model(), tmp_path / "00000003.safetensors"
    save_file({f"model/{name}": t for name, t in network.state_dict().items()}, file)
    progress = {"epoch": 4, "step": 7, "plateau": {"rate": 0.1}}
    file.with_suffix(".json").write_text(json.dumps({"facts": {"progress": progress}}))
    found = gradients.model_of(file, 10)
    images = torch.randn(2, 3, 32, 32)
    assert torch.equal(found(images), network(images))
    assert gradients.place(file) == [4, 7, 0.1]


def test_ers_page_has_the_lines_of_the_file(gradients: ModuleType) -> None:
    page = PAGES["docs/methods/er.md"]
    with (ROOT / "bench/results/gradients.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [*rows[0]] == gradients.HEADS
    for row in rows:
        errors = [
            f"{float(row[name]):.3f}" for name in ("bf16", "fused", "bf16_part", "fused_part")
        ]
        place = [row["order"], row["epoch"], row["step"], f"{float(row['rate']):g}"]
        line = " | ".join([*place, f"{float(row['batches']):.2f}", *errors])
        assert f"| {line} |" in page
    later = rows[1:]
    assert all(float(r["fused"]) < 0.2 * float(r["batches"]) for r in later)
    assert all(abs(float(r["fused"]) - float(r["bf16"])) < 0.03 for r in rows)
