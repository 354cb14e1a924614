"""``polarbear predict``: files and folders, shown to a tiny run."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from engine_run import shapes_stream, tiny
from polarbear.cli import main
from polarbear.launch.runner import run, threads
from polarbear.launch.trained import load_model


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of Kin, which predicts something of every image, one of finetuning, and images."""
    base = tmp_path_factory.mktemp("place")
    stream = shapes_stream()
    with threads(1):
        run(tiny("kin", epochs=1, tasks=2), base / "kin", stream=stream)
        run(tiny("finetune", epochs=1, tasks=1), base / "finetune", stream=stream)
    (base / "images" / "more").mkdir(parents=True)
    names = ("b.png", "more/c.PNG", "a.webp")
    for name, image in zip(names, stream.images("test")[:3], strict=True):
        Image.fromarray(image).save(base / "images" / name, lossless=True)
    (base / "images" / ".hidden.png").write_bytes(b"no image")
    (base / "images" / "notes.txt").write_text("no image")
    (base / "empty").mkdir()
    return base


@pytest.fixture(autouse=True)
def _there(place: Path, monkeypatch: pytest.MonkeyPatch, one_thread: None) -> None:
    monkeypatch.chdir(place)
    monkeypatch.setenv("COLUMNS", "40")


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["predict", *words, "--device", "cpu"]) == 0
    return capsys.readouterr().out


def test_folders_and_files_are_predicted_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(said(capsys, "kin", "images", "images/b.png", "--json"))
    names = ["images/a.webp", "images/b.png", "images/more/c.PNG", "images/b.png"]
    assert [one["image"] for one in found] == names
    model = load_model("kin", device="cpu")
    scores = model.scores(model.read(names))
    for one, row, predicted in zip(found, scores, model.names(model.decide(scores)), strict=True):
        assert one["predicted"] == list(predicted)
        assert tuple(one["scores"]) == model.classes
        assert list(one["scores"].values()) == pytest.approx(row.tolist(), rel=1e-6)


def test_a_line_per_image_has_names_and_scores(capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = json.loads(said(capsys, "kin", "images/b.png", "--json"))
    line = said(capsys, "kin", "images/b.png")
    named = ", ".join(f"{name} ({found['scores'][name]:.2f})" for name in found["predicted"])
    assert found["predicted"]
    assert line == f"images/b.png: {named}\n"


def test_where_nothing_is_predicted_the_likeliest_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = said(capsys, "finetune", "images").splitlines()
    found = json.loads(said(capsys, "finetune", "images", "--json"))
    (line, one) = next(both for both in zip(lines, found, strict=True) if not both[1]["predicted"])
    likeliest = sorted(one["scores"], key=lambda name: -one["scores"][name])[:3]
    words = ", ".join(f"{name} ({one['scores'][name]:.2f})" for name in likeliest)
    assert line == f"{one['image']}: nothing; likeliest: {words}"


def test_csv_has_a_column_per_class(capsys: pytest.CaptureFixture[str]) -> None:
    head, *lines = csv.reader(io.StringIO(said(capsys, "kin", "images", "--csv")))
    found = json.loads(said(capsys, "kin", "images", "--json"))
    assert head == ["image", "predicted", *found[0]["scores"]]
    for line, one in zip(lines, found, strict=True):
        assert line[:2] == [one["image"], ";".join(one["predicted"])]
        assert np.allclose([float(x) for x in line[2:]], list(one["scores"].values()))


def test_what_cannot_be_predicted_is_refused(place: Path, refused: Callable[..., str]) -> None:
    (place / "damaged.png").write_bytes(b"\x89PNG no more")
    assert "no image lies below empty: images end in .jpeg" in refused("predict", "kin", "empty")
    assert "absent.png" in refused("predict", "kin", "absent.png")
    assert "which images?" in refused("predict", "kin")
    assert "damaged.png cannot be read" in refused("predict", "kin", "damaged.png")
    assert "images is no run folder" in refused("predict", "images", "images/b.png")
    assert "two ways to print" in refused("predict", "kin", "images", "--json", "--csv")
