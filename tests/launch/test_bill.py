"""What runs will cost: the paper's passes, a real rate, and bytes as runs have them."""

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import polarbear
from polarbear.cli import main
from polarbear.cli.shared import cost as shown
from polarbear.data.folders import open_folders
from polarbear.data.pack import pack
from polarbear.data.packed import open_packed
from polarbear.launch.bill import (
    Cost,
    Rate,
    _photograph,
    are_files,
    cost_of,
    image_shape,
    is_packed,
    largest_task_bytes,
    measure_rate,
    packing_hours,
    stream_to_count,
)
from polarbear.launch.checkpoint import KEPT
from polarbear.learn import run


@pytest.mark.parametrize(
    ("method", "millions"),
    [
        ("finetune", 7.6),
        ("er", 11.1),
        ("icarl-cnn", 11.1),
        ("lucir", 11.1),
        ("incremental-joint", 76.0),
        ("er-infinite", 85.0),
        ("joint", 16.0),
    ],
)
def test_passes_on_iirc_cifar(method: str, millions: float) -> None:
    stream, exact = stream_to_count("iirc-cifar", 0, None)
    found = cost_of(method, "iirc-cifar", stream, 3072)
    assert exact
    assert round(found.passes / 1e6, 1) == millions


def test_imagenet_without_its_data_has_about_the_papers_images() -> None:
    stream, exact = stream_to_count("iirc-imagenet-full", 0, None)
    assert not exact
    sizes = polarbear.stream_statistics(stream).splits
    assert sizes is not None
    papers = {
        "train_with_duplicates": 1_215_123,
        "valid_with_duplicates": 51_873,
        "train": 1_131_966,
    }
    for name, number in papers.items():
        assert getattr(sizes, name) == pytest.approx(number, rel=0.015)
    assert image_shape("iirc-imagenet-full", stream) == (256, 256, 3)


def test_room_for_a_task_is_that_of_its_images() -> None:
    stream, _ = stream_to_count("iirc-imagenet-full", 0, None)
    # What a run at these sizes said that it keeps: task 0 with its validation images.
    assert largest_task_bytes(stream, 256 * 256 * 3) == pytest.approx(176_456 * 196_608, rel=0.001)
    assert are_files(stream)
    assert not is_packed(stream)


def test_packing_is_measured_on_a_file_like_imagenets() -> None:
    photograph = _photograph()
    with Image.open(io.BytesIO(photograph)) as image:
        assert image.size == (500, 375)
    assert 90_000 < len(photograph) < 115_000
    assert 0 < packing_hours(1000, 256, 0.0) < 1


def test_data_that_are_packed_or_arrays_need_no_packing(
    imagenet_root: Path, tmp_path: Path
) -> None:
    classes = sorted(path.name for path in (imagenet_root / "train").iterdir())[:2]
    for split in ("train", "val"):
        for name in classes:
            shutil.copytree(imagenet_root / split / name, tmp_path / "few" / split / name)
    hierarchy = polarbear.Hierarchy.flat(classes)
    files = open_folders(tmp_path / "few", hierarchy, cache=False)
    schedule = polarbear.Schedule.of([[name] for name in classes])
    packed = open_packed(pack(files, tmp_path / "packed"))
    arrays = replace(packed, train=packed.train[:], test=packed.test[:])
    for source, of_files, done in (
        (files, True, False),
        (packed, True, True),
        (arrays, False, False),
    ):
        stream = polarbear.Stream.from_source(source, hierarchy, schedule)
        assert (are_files(stream), is_packed(stream)) == (of_files, done)


def test_a_teacher_looks_at_what_later_tasks_train_on() -> None:
    stream, _ = stream_to_count("iirc-shapes", 0, None)
    er, distilled = (cost_of(name, "iirc-shapes", stream, 3072) for name in ("er", "icarl-cnn"))
    assert distilled.passes == er.passes
    assert er.looks < distilled.looks < er.looks + er.passes


def test_hours_are_passes_and_looks_at_their_rates() -> None:
    rate = Rate(100.0, 400.0, 10, "small", 16, "cpu", "fp32")
    assert Cost("er", 360_000, 720_000, 0, 0, 0).hours(rate) == 1.5


def test_the_rate_is_measured_in_real_steps() -> None:
    rate = measure_rate("iirc-shapes", (32, 32, 3), seconds=0.5)
    assert (rate.network, rate.batch_size, rate.precision) == ("small", 16, "fp32")
    assert rate.steps >= 1
    assert rate.trained > 0
    assert rate.looked > 0


def test_checkpoints_are_as_large_as_those_of_a_run(tmp_path: Path) -> None:
    done = run(
        *("er", "iirc-shapes"),
        folder=tmp_path / "run",
        **{"epochs": 1, "tasks": 1, "device": "cpu", "threads": 1, "progress": False},
        save_every=0,
    )
    # The last one is of a run that is over: it has no best weights and no momentum.
    within, _ = sorted((done.folder.path / "checkpoint").glob("*.safetensors"))
    stream, _ = stream_to_count("iirc-shapes", 0, None)
    reckoned = cost_of("er", "iirc-shapes", stream, 3072).checkpoints / KEPT
    assert within.stat().st_size == pytest.approx(reckoned, rel=0.05)


def test_describe_prints_the_bill(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], refused: Callable[..., str]
) -> None:
    monkeypatch.setattr(shown, "SECONDS", 0.2)
    monkeypatch.setenv("COLUMNS", "200")
    command = ["describe", "iirc-shapes", "--cost", "--methods", "er,joint"]
    assert main(command) == 0
    text = capsys.readouterr().out
    stream, _ = stream_to_count("iirc-shapes", 0, None)
    for name, title in (("er", "ER"), ("joint", "joint")):
        (line,) = (line for line in text.splitlines() if line.startswith(f"{title} "))
        assert f"{cost_of(name, 'iirc-shapes', stream, 3072).passes:,}" in line
    assert "3,770 images are 11.6 MB as pixels." in text
    assert "Packing" not in text
    assert main([*command, "--json"]) == 0
    content = json.loads(capsys.readouterr().out)
    assert [one["method"] for one in content["runs"]] == ["er", "joint"]
    assert content["exact"]
    assert content["packing_hours"] is None
    assert np.isfinite(content["rate"]["trained"])
    assert "add --cost" in refused("describe", "iirc-shapes", "--methods", "er")
    assert "unknown method 'err'" in refused(*command[:-1], "err")
