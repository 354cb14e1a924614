"""A task's images, decoded once and kept: what a run gives is the same wherever they are."""

import logging
import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import fake_graphs
from engine_run import interrupt_at, outcome, png, png_stream, shapes_stream, tiny
from polarbear.base.arrays import Pixels
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.schedule import Schedule
from polarbear.benchmark.source import Source
from polarbear.benchmark.split import SplitRule
from polarbear.benchmark.stream import Stream
from polarbear.data import hugging_face
from polarbear.data.decode import LazyImages
from polarbear.data.folders import open_folders
from polarbear.data.imagenet import NOT_IN_IIRC, open_imagenet
from polarbear.data.pack import pack
from polarbear.data.packed import open_packed
from polarbear.data.table import open_table
from polarbear.engine.images import task_pixels
from polarbear.engine.images.feed import Feed
from polarbear.engine.images.pixels import StreamedPixels
from polarbear.engine.images.room import free_host_bytes
from polarbear.engine.images.task_pixels import TaskPixels, resident
from polarbear.engine.images.transform import ImageTransform, ResizedCrop
from polarbear.engine.task.epoch_plan import EpochPlan
from polarbear.engine.task.replay_memory import ReplayMemory
from polarbear.engine.task.training_set import TaskImages, TrainingSet
from polarbear.engine.trainer import Progress, Trainer
from polarbear.launch.assembly import build_learner
from polarbear.launch.runner import resume, run
from polarbear.named.registry import find

pytestmark = pytest.mark.usefixtures("one_thread")

CPU = torch.device("cpu")
LITTLE = ImageTransform((0.5, 0.5, 0.5), (0.3, 0.3, 0.3), ResizedCrop(side=32))


@pytest.mark.parametrize(
    "method", ["er", "agem", "icarl-norm", "incremental-joint", "derpp", "bic"]
)
def test_a_run_on_kept_images_is_that_on_arrays(tmp_path: Path, method: str) -> None:
    stream, _ = png_stream()
    assert run(tiny(method), tmp_path / "kept", stream=stream)
    assert run(tiny(method), tmp_path / "array", stream=shapes_stream())
    expected = outcome(tmp_path / "array")
    assert outcome(tmp_path / "kept") == expected
    for way in ("pinned", "streamed"):
        assert run(tiny(method, images=way), tmp_path / way, stream=stream)
        assert outcome(tmp_path / way) == expected


def test_an_image_of_a_task_is_decoded_once(tmp_path: Path) -> None:
    stream, files = png_stream()
    assert run(tiny("er", epochs=4, tasks=1), tmp_path / "run", stream=stream)
    rows = np.concatenate([stream[0].train.rows, stream[0].valid.rows])
    counts = np.bincount(files.read, minlength=len(files))
    assert (counts[rows[rows > 0]] == 1).all()  # row 0 is also looked at for its size


def test_memory_images_are_not_decoded_again_in_the_next_task() -> None:
    stream, files = png_stream()
    pixels = TaskPixels(stream.images("train"), CPU)
    list(pixels.keep(np.array([1, 4, 5, 9])))
    files.read.clear()
    list(pixels.keep(np.array([2, 4, 9, 30])))
    assert sorted(files.read) == [2, 30]
    files.read.clear()
    (found,) = pixels.batches([np.array([30, 4, 2, 9])])
    assert not files.read
    assert (found.numpy() == shapes_stream().images("train")[[30, 4, 2, 9]]).all()


def test_other_rows_are_read_from_the_file() -> None:
    stream, files = png_stream()
    pixels = TaskPixels(stream.images("train"), CPU)
    list(pixels.keep(np.array([1, 4])))
    files.read.clear()
    (found,) = pixels.batches([np.array([4, 7])])
    assert sorted(files.read) == [4, 7]
    assert (found.numpy() == shapes_stream().images("train")[[4, 7]]).all()


def test_the_same_rows_are_not_gathered_twice() -> None:
    stream, files = png_stream()
    pixels = TaskPixels(stream.images("train"), CPU)
    rows = np.arange(3, 50)
    list(pixels.keep(rows))
    files.read.clear()
    list(pixels.keep(rows.copy()))
    assert not files.read


def test_a_run_may_be_left_while_images_are_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_pixels, "AT_ONCE", 16)
    stream, _ = png_stream()
    settings = tiny("er")
    assert run(settings, tmp_path / "whole", stream=stream)

    def stop(trainer: Trainer, progress: Progress) -> None:
        if progress.task == 1 and trainer.learner.train_pixels.kept is None:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(settings, tmp_path / "broken", stream=stream, on_step=stop, save_every=0)
    assert resume(tmp_path / "broken", stream=stream)
    assert outcome(tmp_path / "broken") == outcome(tmp_path / "whole")


@pytest.mark.parametrize(
    ("free", "way", "words"),
    [
        (10**9, "resident", "decoded once per task"),
        (1000, "streamed", "decoded again at every epoch"),
    ],
)
def test_room_decides_and_is_said(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    free: int,
    way: str,
    words: str,
) -> None:
    monkeypatch.setattr(task_pixels, "free_host_bytes", lambda: free)
    pixels = TaskPixels(png_stream()[0].images("train"), CPU)
    with caplog.at_level(logging.WARNING):
        list(pixels.keep(np.arange(20)))
        list(pixels.keep(np.arange(5, 20)))
    assert (resident(pixels) is not None) == (way == "resident")
    assert len(caplog.messages) == 1
    assert words in caplog.messages[0]
    assert "20 take" in caplog.messages[0]


def test_processes_share_the_hosts_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    images = png_stream()[0].images("train")
    size = images[:1].size
    monkeypatch.setattr(task_pixels, "free_host_bytes", lambda: 8 * size)
    for sharers, fits in ((1, True), (2, False)):
        pixels = TaskPixels(images, CPU, sharers=sharers)
        list(pixels.keep(np.arange(4)))
        assert (pixels.kept is not None) == fits


@pytest.mark.parametrize("way", ["resident", "pinned", "streamed"])
def test_a_way_that_is_asked_for_is_gone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, way: Any
) -> None:
    free = 10**12 if way == "streamed" else 0
    monkeypatch.setattr(task_pixels, "free_host_bytes", lambda: free)
    pixels = TaskPixels(png_stream()[0].images("train"), CPU, way)
    list(pixels.keep(np.arange(4)))
    assert (pixels.kept is not None) == (way != "streamed")
    assert (resident(pixels) is not None) == (way == "resident")
    assert ("as asked" in caplog.text) == (way == "streamed")


LARGE = (400, 256, 256, 3)


def print_growth_before_decoding() -> None:
    """Print by how many bytes this process has grown when the first images are decoded."""
    at_work = []

    def taken() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    class Large:
        def __len__(self) -> int:
            return LARGE[0]

        def __getitem__(self, rows: Any) -> Pixels:
            if isinstance(rows, np.ndarray):
                at_work.append(taken())
            return np.ones((len(np.arange(LARGE[0])[rows]), *LARGE[1:]), np.uint8)

    pixels, before = TaskPixels(Large(), CPU, "resident"), taken()
    list(pixels.keep(np.arange(LARGE[0])))
    assert all((batch == 1).all() for batch in pixels.batches([np.arange(LARGE[0])]))
    print(min(at_work) - before)


def test_memory_for_images_is_taken_before_they_are_decoded() -> None:
    """Else runs of a fleet that begin together would each count it as free."""
    # A process of its own: one that has run other tests may have as much to spare already.
    code = "import test_task_pixels as here; here.print_growth_before_decoding()"
    paths = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=paths, capture_output=True, text=True, check=True
    )
    assert int(done.stdout) > np.prod(LARGE) * 0.95


def test_a_gpu_without_room_leaves_images_to_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device of another kind than the host: of it nothing is asked but how much is free."""
    images = png_stream()[0].images("train")
    monkeypatch.setattr(task_pixels, "free_host_bytes", lambda: 10**12)
    monkeypatch.setattr(task_pixels, "free_bytes", lambda device: 10)
    pixels = TaskPixels(images, torch.device("meta"))
    list(pixels.keep(np.arange(3, 7)))
    assert isinstance(pixels.kept, StreamedPixels)
    assert resident(pixels) is None
    found = pixels.kept.images[np.array([6, 3])]
    assert (found == images[[6, 3]]).all()


@pytest.mark.parametrize("method", ["er", "agem", "derpp", "bic"])
def test_captured_steps_find_images_wherever_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    captured = fake_graphs.install(monkeypatch)
    stream, _ = png_stream()
    assert run(tiny(method), tmp_path / "array", stream=shapes_stream())
    count = len(captured)
    assert count >= 3
    for way in ("resident", "pinned", "streamed"):
        captured.clear()
        assert run(tiny(method, images=way), tmp_path / way, stream=stream)
        assert outcome(tmp_path / way) == outcome(tmp_path / "array")
        # Images of a reservoir are known at the step alone, so nobody brings them.
        assert len(captured) == (0 if method == "derpp" and way != "resident" else count)
    brought = [steps.training_set.feed for steps in captured]
    assert all(feed is not None for feed in brought)


@pytest.mark.parametrize("way", ["pinned", "streamed"])
def test_captured_steps_that_images_are_brought_to_go_on_where_they_were_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: Any
) -> None:
    captured = fake_graphs.install(monkeypatch)
    stream, _ = png_stream()
    settings = tiny("agem", images=way)
    assert run(settings, tmp_path / "whole", stream=stream)
    with pytest.raises(KeyboardInterrupt):
        run(
            *(settings, tmp_path / "broken"),
            stream=stream,
            on_step=interrupt_at(9),
            save_every=0,
        )
    assert resume(tmp_path / "broken", stream=stream)
    assert outcome(tmp_path / "broken") == outcome(tmp_path / "whole")
    assert all(steps.beside is None or steps.beside.feed is not None for steps in captured)


def test_a_run_waits_for_its_images_and_lets_others_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake_graphs.install(monkeypatch)
    images, asked = png_stream()[0].images("train"), Event()

    class Late(LazyImages):
        def __getitem__(self, rows: Any) -> Pixels:
            if isinstance(rows, np.ndarray) and 9 in rows:
                assert asked.wait(60)
            return super().__getitem__(rows)

    feed = Feed(Late(images.files), (3, *images[0].shape), CPU)
    rows = [np.arange(i, i + 3 - i // 12) for i in range(0, 15, 3)]
    found = []
    for here in feed.batches(rows):
        if here:
            found.append(feed.arrived[: len(rows[len(found)])].clone())
        elif len(found) == 3:
            asked.set()
    assert asked.is_set()
    array = shapes_stream().images("train")
    assert all((one.numpy() == array[r]).all() for one, r in zip(found, rows, strict=True))


def test_memory_beside_a_step_is_read_ahead() -> None:
    stream, files = png_stream()
    learner = build_learner(tiny("agem", images="streamed"), stream)
    learner.memory = ReplayMemory().add(
        stream[0], lambda column, rows, count: rows[:count], per_class=20
    )
    images = TaskImages.of(stream, 1, learner)
    plan = EpochPlan.plan(learner, images.training_set, images.reference, (1, 0))
    files.read.clear()
    batches = plan.batches()
    _, beside = next(batches)
    assert beside is not None
    assert len(files.read) > len(plan.drawn.of_step(0, slice)) + len(beside.rows)
    slow = shapes_stream()
    expected = build_learner(tiny("agem"), slow)
    expected.memory = learner.memory
    twin = EpochPlan.plan(
        expected, TaskImages.of(slow, 1, expected).training_set, images.reference, (1, 0)
    )
    rest = [(None, beside), *batches]
    for (_, found), (_, due) in zip(rest, twin.batches(), strict=True):
        assert (found.rows == due.rows).all()
        assert (found.images == due.images).all()


def source_of(kind: str, root: Path) -> Source:
    """Return the same images as folders, as a table, as a packed set or as a Hugging Face set."""
    classes = Hierarchy.flat(["bus", "mug"])
    lines = ["path,label,split"]
    for split, count in (("train", 6), ("test", 2)):
        for number, name in enumerate(classes.names):
            (root / split / name).mkdir(parents=True)
            for i in range(count):
                image = shapes_stream().images("train")[number * 20 + i]
                (root / split / name / f"{i}.png").write_bytes(png(image))
                lines.append(f"{split}/{name}/{i}.png,{name},{split}")
    if kind == "datasets":
        hub = pytest.importorskip("datasets", reason="Hugging Face datasets is not installed")
        parts = hub.load_dataset("imagefolder", data_dir=str(root))
        return hugging_face.source(parts["train"], parts["test"])
    if kind == "table":
        (root / "images.csv").write_text("\n".join(lines) + "\n")
        return open_table(root / "images.csv", classes)
    folders = open_folders(root, classes, cache=False)
    return folders if kind == "folders" else open_packed(pack(folders, root / "packed", size=32))


@pytest.mark.parametrize("kind", ["folders", "table", "packed", "datasets"])
def test_images_of_ones_own_are_kept_as_imagenets_are(tmp_path: Path, kind: str) -> None:
    source = source_of(kind, tmp_path)
    classes = Hierarchy.flat(source.leaves)
    schedule = Schedule.of([[name] for name in source.leaves])
    stream = Stream.from_source(source, classes, schedule)
    pixels = build_learner(tiny("er"), stream).train_pixels
    assert isinstance(pixels, TaskPixels)
    list(pixels.keep(np.arange(1, 11)))
    (found,) = pixels.batches([np.array([10, 2, 7])])
    assert resident(pixels) is not None
    assert (found.numpy() == source.train[np.array([10, 2, 7])]).all()


def test_free_memory_is_the_machines_or_the_containers(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal: 900 kB\nMemAvailable: 500 kB\n")
    assert free_host_bytes(meminfo, tmp_path) == 500 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("40000\n")
    (tmp_path / "memory.stat").write_text("anon 1000\ninactive_file 3000\n")
    assert free_host_bytes(meminfo, tmp_path) == 500 * 1024
    (tmp_path / "memory.max").write_text("100000\n")
    assert free_host_bytes(meminfo, tmp_path) == 63000
    assert free_host_bytes(tmp_path / "absent", tmp_path / "none") > 2**20


def by_pil(path: Path, side: int) -> Pixels:
    """Return the middle of an image whose short side is made ``side``, by Pillow alone."""
    image = Image.open(path).convert("RGB")
    short = min(image.size)
    width, height = (side * long // short for long in image.size)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - side) // 2, (height - side) // 2
    return np.asarray(image.crop((left, top, left + side, top + side)))


def test_real_images_of_a_task_are_those_of_a_slow_twin(imagenet_root: Path) -> None:
    benchmark = find("iirc-imagenet-lite")
    hierarchy = benchmark.hierarchy()
    source = open_imagenet(imagenet_root, hierarchy, size=112, cache=False)
    rule = SplitRule(valid=0, post_valid=0)
    made = (hierarchy, benchmark.schedule(0))
    stream = Stream.from_source(source, *made, rule=rule, ignore=NOT_IN_IIRC)
    settings = tiny("er", preparation="test_task_pixels:LITTLE")
    fast, slow = (
        build_learner(replace(settings, images=way), stream) for way in ("resident", "streamed")
    )
    task = stream[1]
    list(fast.train_pixels.keep(task.train.rows))
    plans = [
        EpochPlan.plan(learner, TrainingSet.of(task.train), None, (1, 0)).batches()
        for learner in (fast, slow)
    ]
    count = 0
    for (kept, _), (read, _) in zip(*plans, strict=True):
        assert (kept.images == read.images).all()
        for row, labels in zip(kept.rows.tolist(), kept.targets, strict=True):
            (found,) = fast.train_pixels.batches([np.array([row])])
            assert (found[0].numpy() == by_pil(source.train.files.path(row), 112)).all()
            leaf = hierarchy.names[stream.train_leaf[row]]
            due = set(hierarchy.labels_of(leaf)) & set(task.classes)
            assert {task.seen[i] for i in labels.nonzero()[:, 0].tolist()} == due
            count += 1
    assert count == len(task.train) > 50
