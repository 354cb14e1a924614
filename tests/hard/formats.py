"""Every format that is read: a small valid file, and the reader a user reaches."""

import hashlib
import io
import json
import logging
import os
import shutil
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from engine_run import tiny
from hard.forked import forked
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.cli.commands.compare import compare
from polarbear.cli.commands.new_benchmark import new_benchmark
from polarbear.cli.commands.runs import runs
from polarbear.cli.commands.score import score
from polarbear.cli.commands.summarise import summarise_runs
from polarbear.data.cifar100 import from_npz, from_parquet
from polarbear.data.cifar100_official import OFFICIAL, OfficialFile, from_official
from polarbear.data.fetch import fetch_cifar100
from polarbear.data.folders import index_folders, open_folders
from polarbear.data.npz import open_npz
from polarbear.data.pack import pack
from polarbear.data.packed import open_packed, verify_packed
from polarbear.data.table import open_table
from polarbear.data.verified import was_verified
from polarbear.launch.runner import resume, run
from polarbear.methods.presets import settings_for
from polarbear.named.registry import load
from polarbear.report.build import build_report
from polarbear.report.read.answers import answers
from polarbear.report.read.runs import read_runs
from polarbear.runs.folder import RunFolder
from polarbear.score.predictions import save_predictions
from polarbear.score.table import ScoreTable

CLASSES = Hierarchy.from_children({"bear": ["polar", "brown"], "dog": ["pug", "collie"]}, ["lamp"])
SIDE = 12


class TookOthersError(AssertionError):
    """A damaged file took along what is whole."""


@dataclass(frozen=True)
class Reading:
    """What a reader gave, as plain values, and what it said of what it left out."""

    content: object
    said: tuple[str, ...] = ()


@dataclass(frozen=True)
class Format:
    """A file that is mutated, and the reader that gets it.

    ``make`` writes all that the reader needs below a folder, ``file`` is the one to mutate,
    ``kind`` how. A reader that finds other content than before may be right, as most formats have
    no checksum, unless ``exact``; ``valid`` refuses what can never be right. Of a file among
    others, ``among``, nothing but the file itself may be missed. A message may also call it what
    ``called`` says.
    """

    name: str
    kind: str
    make: Callable[[Path], None]
    file: str
    read: Callable[[Path], Reading]
    exact: bool = False
    among: bool = False
    may_import: bool = False
    unnamed: bool = False
    called: tuple[str, ...] = ()
    valid: Callable[[Any], bool] = lambda content: True
    weight: int = 10


def digest(array: Any) -> tuple[str, tuple[int, ...], str]:
    array = np.ascontiguousarray(array)
    return str(array.dtype), array.shape, hashlib.sha256(array.tobytes()).hexdigest()


@contextmanager
def listening() -> Iterator[list[str]]:
    """Collect what the library logs."""
    said: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    log, ear = logging.getLogger("polarbear"), Ear(logging.WARNING)
    log.addHandler(ear)
    before, log.propagate = log.propagate, False
    try:
        yield said
    finally:
        log.removeHandler(ear)
        log.propagate = before


@contextmanager
def printing() -> Iterator[io.TextIOWrapper]:
    """Collect what a command prints, as UTF-8 like a terminal; nothing may command the terminal."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    before = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = out
    try:
        yield out
    finally:
        sys.stdout, sys.stderr = before
    if b"\x1b" in _printed(out):
        raise AssertionError("an escape sequence is printed")


def _printed(out: io.TextIOWrapper) -> bytes:
    assert isinstance(out.buffer, io.BytesIO)
    return out.buffer.getvalue()


# Run folders: a whole run beside the one that is mutated.


def make_runs(base: Path) -> None:
    """Two finished runs of the engine on a benchmark that is read in milliseconds."""
    make_benchmark(base)

    def train() -> int:
        for order, name in enumerate(("bad", "good")):
            settings = tiny("er", epochs=1, tasks=2, keep_scores=True, order=order)
            settings = replace(settings, benchmark=str(base / "mine"))
            run(settings, base / "runs" / name, save_every=0.0)
        return 0

    child = forked(train, base / "log")
    if child.wait() != 0:
        raise RuntimeError(child.said())


def make_unfinished(base: Path) -> None:
    make_runs(base)
    (base / "runs" / "bad" / "finished.json").unlink()


def make_one_checkpoint(base: Path) -> None:
    make_unfinished(base)
    for file in sorted((base / "runs" / "bad" / "checkpoint").iterdir())[:2]:
        file.unlink()


def list_runs(base: Path) -> Reading:
    with printing() as out, listening() as said:
        runs(base / "runs", json=True)
        lines = {Path(line["path"]).name: line for line in json.loads(_printed(out))}
        runs(base / "runs")
    if lines.get("good", {}).get("state") != "finished":
        raise TookOthersError(f"runs: {lines.get('good')}")
    bad = lines.get("bad", {"problem": "not listed"})
    return Reading(
        str(bad), (*said, *([f"{base}/runs/bad: {bad['problem']}"] * bool(bad["problem"])))
    )


def read_for_report(base: Path) -> Reading:
    with listening() as said:
        found = read_runs(base / "runs")
    by_name = {one.path.name: one for group in found.groups for one in group.runs}
    if "good" not in by_name:
        raise TookOthersError(f"read_runs: {sorted(by_name)}")
    bad = by_name.get("bad")
    if bad is None:
        return Reading(None, tuple(said))
    scores = {name: values.tolist() for name, values in bad.scores.items()}
    tables = {name: digest(values) for name, values in bad.by_task.items()}
    asked = (bad.method, bad.benchmark, bad.order, bad.seed, bad.settings, bad.classes)
    return Reading({"scores": scores, "tables": str(tables), "asked": str(asked)}, tuple(said))


def finite_scores(content: Any) -> bool:
    if content is None or "scores" not in content:
        return True
    return not any(np.isinf(values).any() for values in content["scores"].values())


def summarised(base: Path) -> Reading:
    out = base / "out"
    shutil.rmtree(out, ignore_errors=True)
    with printing() as words, listening() as said:
        summarise_runs(base / "runs", out=out, overwrite=True)
    files = {str(file.relative_to(out)): file for file in out.rglob("*.json")}
    good = files.pop("mine/er/order-1.json", None)
    if good is None:
        raise TookOthersError(f"summarise: {sorted(files)}")
    content = [json.loads(file.read_text()) for file in files.values()]
    for summary in content:
        summary["seconds"] = None
    printed = [line for line in _printed(words).decode().splitlines() if str(base / "runs") in line]
    return Reading(content, (*said, *printed))


def drawn(base: Path) -> Reading:
    """A whole report but for most figures."""
    with printing(), listening() as said:
        found = read_runs(base / "runs")
        made = build_report(found, base / "report", formats=("svg",), only=("average-pw-js",))
    if found.groups and "good" not in {one.path.name for g in found.groups for one in g.runs}:
        raise TookOthersError("report")
    return Reading(sorted(one.name for one in made.made), tuple(said))


def answered(base: Path) -> Reading:
    """Predictions as the report's figures get them."""
    with listening() as said:
        by_name = {one.path.name: one for g in read_runs(base / "runs").groups for one in g.runs}
        found = answers(by_name["bad"], 1)
    return Reading(digest(found.named), tuple(said))


def scores_kept(base: Path) -> Reading:
    found = RunFolder(base / "runs" / "bad").raw(1)
    return Reading(None if found is None else digest(found))


class EnoughError(Exception):
    """The first step is done."""


def resumed(base: Path) -> Reading:
    """Where a run goes on, in a copy, and its weights after the first step there."""
    folder = base / "tried"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(base / "runs" / "bad", folder)
    seen: list[object] = []

    def look(trainer: Any, progress: Any) -> None:
        weights = {
            name: digest(t.numpy()) for name, t in trainer.learner.model.state_dict().items()
        }
        seen.append((str(progress), sorted(weights.items()), str(trainer.learner.settings)))
        raise EnoughError

    with listening() as said, suppress(EnoughError):
        resume(folder, on_step=look)
    return Reading(seen, tuple(said))


# Results and predictions


def make_results(base: Path) -> None:
    for order in range(2):
        file = base / "results" / "iirc-cifar" / "er" / f"order-{order}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        r = [round(0.7 - 0.02 * j, 2) for j in range(22)]  # as many tasks as the paper has
        content = {
            "method": "er", "benchmark": "iirc-cifar", "order": order, "seed": 100,
            "decision": "threshold", "r": r, "r_top1": r, "r_valid": r,
            "scores": {"jaccard": r, "pw_jaccard": r},
            "r_jk": [[r[j] if k <= j else None for k in range(22)] for j in range(22)],
            "settings": settings_for("er", "iirc-cifar", order=order).to_dict(),
            "command": "polarbear run er", "commit": None, "hardware": "cpu", "versions": {},
            "seconds": 3.5,
        }  # fmt: skip
        file.write_text(json.dumps(content))


def compared(base: Path) -> Reading:
    with printing() as out, listening() as said:
        compare((base / "results",), json=True)
        lines = json.loads(_printed(out))
        compare((base / "results",))
        found = read_runs(base / "results")
    by_name = {one.path.name: one for group in found.groups for one in group.runs}
    if "order-1.json" not in by_name:
        raise TookOthersError("compare")
    bad = by_name.get("order-0.json")
    if bad is None:
        return Reading(None, tuple(said))
    scores = {name: values.tolist() for name, values in bad.scores.items()}
    return Reading({"scores": scores, "asked": str(bad.settings), "lines": str(lines)}, tuple(said))


def make_table(base: Path) -> None:
    base.mkdir(parents=True, exist_ok=True)
    scores = {"pw_jaccard": np.array([0.5, 0.4]), "jaccard": np.array([0.5, np.nan])}
    by_task = {name: np.array([[0.5, np.nan], [0.3, 0.2]]) for name in scores}
    text = ScoreTable("iirc-shapes-v1", 0, "test", scores, by_task).to_json()
    (base / "table.json").write_text(text)


def table_read(base: Path) -> Reading:
    file = base / "table.json"
    content = file.read_bytes() if file.is_file() else b""
    table = ScoreTable.from_json(content.decode(errors="surrogateescape"))
    return Reading({"scores": {name: a.tolist() for name, a in table.scores.items()}})


def make_predictions(base: Path) -> None:
    make_benchmark(base)
    data = load(str(base / "mine"))
    targets = {j: data.test(j).targets for j in range(2)}
    save_predictions(base / "mine.npz", data, targets)
    stored = np.load(base / "mine.npz")
    named = {**stored, "benchmark": np.array(str(base / "mine"))}
    np.savez(base / "mine.npz", **named)


def scored(base: Path) -> Reading:
    with printing() as out:
        score(base / "mine.npz", json=True)
    return Reading(_printed(out))


# Hierarchies, benchmarks, presets

HIERARCHY_TOML = """alone = ["lamp"]

[tree]
bear = ["polar", "brown"]
dog = ["pug", "collie"]

[titles]
pug = "small dog"
lamp = "lamp (on)"
"""
HIERARCHY_CSV = """class,parent,title
polar,bear,
brown,bear,brown one
pug,dog,
collie,dog,
lamp,,"lamp, on"
"""


def make_hierarchies(base: Path) -> None:
    base.mkdir(parents=True, exist_ok=True)
    (base / "hierarchy.toml").write_text(HIERARCHY_TOML)
    (base / "hierarchy.csv").write_text(HIERARCHY_CSV)


def hierarchy_read(name: str) -> Callable[[Path], Reading]:
    def read(base: Path) -> Reading:
        found = Hierarchy.read(base / name)
        titles = [found.title(name) for name in found.names]
        if not all(isinstance(title, str) for title in titles):
            raise AssertionError(f"titles that are no texts: {titles}")
        depth = found.depth.tolist()
        return Reading((found.names, found.parents, titles, depth, found.leaves))

    return read


def arrays() -> dict[str, Any]:
    random = np.random.default_rng(0)
    leaves = sorted(CLASSES.leaves)
    made: dict[str, Any] = {"classes": np.array(leaves)}
    for split, count in (("train", 10), ("test", 2)):
        n = count * len(leaves)
        made[f"{split}_images"] = random.integers(0, 256, (n, SIDE, SIDE, 3), np.uint8)
        made[f"{split}_labels"] = np.arange(n) % len(leaves)
    return made


def make_arrays(base: Path) -> None:
    base.mkdir(parents=True, exist_ok=True)
    np.savez(base / "data.npz", **arrays())
    np.savez_compressed(base / "packed.npz", **arrays())


def pixels(source: Any) -> tuple[object, ...]:
    return (
        source.leaves,
        digest(source.train[:]),
        digest(source.train_leaf),
        digest(source.test[:]),
        digest(source.test_leaf),
    )


def arrays_read(name: str) -> Callable[[Path], Reading]:
    return lambda base: Reading(pixels(open_npz(base / name, CLASSES)))


def make_benchmark(base: Path) -> None:
    (base / "data").mkdir(parents=True)
    np.savez(base / "data" / "data.npz", **arrays())
    (base / "data" / "hierarchy.toml").write_text(HIERARCHY_TOML)
    with printing():
        new_benchmark("mine", data=base / "data" / "data.npz", out=base / "mine", orders=2, size=2)


def benchmark_read(base: Path) -> Reading:
    stream = load(str(base / "mine"), 1)
    tasks = [(task.classes, digest(task.train.rows), digest(task.valid.rows)) for task in stream]
    return Reading(
        (stream.name, tasks, digest(stream.images("train")[:3]), stream.hierarchy.titles)
    )


PRESET = """epochs = 3
learning_rate = 0.5

[iirc-shapes]
network = "small"
batch_size = 32

[iirc-shapes.er]
memory_per_class = 5

[iirc-shapes.lucir]
options = { lambda_base = 3.0 }

[mine]
like = "iirc-shapes"
momentum = 0.5
"""


def make_preset(base: Path) -> None:
    base.mkdir(parents=True, exist_ok=True)
    (base / "preset.toml").write_text(PRESET)


def preset_read(base: Path) -> Reading:
    file = str(base / "preset.toml")
    found = [settings_for(*asked, preset=file) for asked in (("er", "iirc-shapes"), ("er", "mine"))]
    return Reading(str(found))


# Images


def make_folders(base: Path) -> None:
    random = np.random.default_rng(1)
    for split, count in (("train", 2), ("test", 1)):
        for leaf in CLASSES.leaves:
            folder = base / "images" / split / leaf
            folder.mkdir(parents=True, exist_ok=True)
            for i, suffix in enumerate(("jpg", "png", "webp")):
                if i <= count:
                    picture = Image.fromarray(random.integers(0, 256, (3, 3, 3), np.uint8))
                    picture.resize((20, 16)).save(folder / f"{i}.{suffix}")


def folders_read(base: Path) -> Reading:
    return Reading(
        pixels(open_folders(base / "images", CLASSES, size=SIDE, cache=False, workers=1))
    )


def checked_new(base: Path) -> Reading:
    """``polarbear new-benchmark``, which looks at every image."""
    out = base / "new"
    shutil.rmtree(out, ignore_errors=True)
    with printing(), listening() as said:
        new_benchmark("mine", data=base / "images", hierarchy=base / "hierarchy.toml", out=out,
                      image_size=SIDE, orders=1, size=2, first=1)  # fmt: skip
    return Reading((out / "orders.json").read_text(), tuple(said))


def make_new(base: Path) -> None:
    make_folders(base)
    (base / "hierarchy.toml").write_text(HIERARCHY_TOML)


def make_images_table(base: Path) -> None:
    make_folders(base)
    lines = ["path,label,split,remark"]
    for file in sorted((base / "images").rglob("*.*")):
        split, leaf, _ = file.relative_to(base / "images").parts
        lines.append(f"{file.relative_to(base)},{leaf},{split},x")
    (base / "images.csv").write_text("\n".join(lines) + "\n")


def images_table_read(base: Path) -> Reading:
    return Reading(pixels(open_table(base / "images.csv", CLASSES, size=SIDE, workers=1)))


def make_packed(base: Path) -> None:
    make_folders(base)
    source = open_folders(base / "images", CLASSES, size=SIDE, cache=False)
    pack(source, base / "packed", size=SIDE)


def packed_read(base: Path) -> Reading:
    return Reading(pixels(open_packed(base / "packed", workers=1)))


def packed_verified(base: Path) -> Reading:
    verify_packed(base / "packed")
    return packed_read(base)


def make_index(base: Path) -> None:
    make_folders(base)
    for folder in (base / "images" / "train").iterdir():
        os.utime(folder, (1e9, 1e9))  # folders that changed just now are not cached
    index_folders(base / "images" / "train", cache=base)
    next(base.glob("polarbear-index-*")).rename(base / "index.npz")


def index_read(base: Path) -> Reading:
    from polarbear.data.index_cache import cache_files

    folder = base / "images" / "train"
    place = cache_files(folder.resolve(), base)[0]
    place.unlink(missing_ok=True)
    if not (base / "index.npz").is_file():
        return Reading(index_folders(folder, cache=base).checksum)
    shutil.copyfile(base / "index.npz", place)
    found = index_folders(folder, cache=base)
    return Reading((found.classes, found.counts.tolist(), list(found.names)))


# CIFAR-100


def make_parquet(base: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    base.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(2)
    for split, count in (("train", 6), ("test", 3)):
        images = []
        for _ in range(count):
            out = io.BytesIO()
            Image.fromarray(random.integers(0, 256, (32, 32, 3), np.uint8)).save(out, "PNG")
            images.append({"bytes": out.getvalue(), "path": None})
        table = pa.table({"img": images, "fine_label": list(range(count))})
        pq.write_table(table, base / f"{split}-0.parquet")


def parquet_read(base: Path) -> Reading:
    return Reading(pixels(from_parquet(base)))


def make_cifar_npz(base: Path) -> None:
    base.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(3)
    made: dict[str, Any] = {}
    for split, count in (("train", 6), ("test", 3)):
        made[f"{split}_images"] = random.integers(0, 256, (count, 32, 32, 3), np.uint8)
        made[f"{split}_labels"] = np.arange(count)
    np.savez(base / "cifar100.npz", **made)


def cifar_npz_read(base: Path) -> Reading:
    return Reading(pixels(from_npz(base / "cifar100.npz")))


def make_official(base: Path) -> None:
    """Files of the official sizes, empty but for the labels, which are kept apart and mutated."""
    base.mkdir(parents=True, exist_ok=True)
    for split in ("train", "test"):
        layout = OFFICIAL[split]
        with (base / split).open("wb") as file:
            file.truncate(layout.size)
            file.seek(layout.labels)
            block = b"(" + b"".join(b"K" + bytes([i % 100]) for i in range(1000)) + b"e"
            file.write(block * (layout.rows // 1000))
        if split == "test":
            labels = block * (layout.rows // 1000)
    (base / "labels").write_bytes(labels)


def official_read(base: Path) -> Reading:
    """The test file with other labels, or of another length, as read without checksums."""
    layout = OFFICIAL["test"]
    labels = (base / "labels").read_bytes() if (base / "labels").is_file() else b""
    with (base / "test").open("r+b") as file:
        file.seek(layout.labels)
        file.write(labels[: layout.pixels - layout.labels])
        file.truncate(layout.size + len(labels) - layout.rows // 1000 * 2002)
    found = from_official(base, verify=False)
    return Reading((digest(found.test_leaf), digest(found.test[:2])))


ARCHIVED = {
    name: OfficialFile(size, "", hashlib.sha256(bytes(size)).hexdigest())
    for name, size in (("train", 3000), ("test", 1000))
}


def make_archive(base: Path) -> None:
    base.mkdir(parents=True, exist_ok=True)
    with tarfile.open(base / "archive", "w:gz") as tar:
        for name, layout in ARCHIVED.items():
            info = tarfile.TarInfo(f"cifar-100-python/{name}")
            info.size = layout.size
            tar.addfile(info, io.BytesIO(bytes(layout.size)))


def archive_read(base: Path) -> Reading:
    root = base / "root"
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    content = (base / "archive").read_bytes() if (base / "archive").is_file() else b""
    (root / "cifar-100-python.tar.gz").write_bytes(content)
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    folder = fetch_cifar100(root, "http://127.0.0.1:9/", md5=md5, size=None, files=ARCHIVED,
                            attempts=1, pause=0)  # fmt: skip
    return Reading({file.name: digest(np.fromfile(file, np.uint8)) for file in folder.iterdir()})


def make_verified(base: Path) -> None:
    base.mkdir(parents=True, exist_ok=True)
    file = base / "data"
    file.write_bytes(b"data")
    s = file.stat()
    marks = ["abc", s.st_size, s.st_dev, s.st_ino, s.st_mtime_ns, s.st_ctime_ns]
    (base / "polarbear").mkdir(exist_ok=True)
    notes = json.dumps({str(file.resolve()): marks})
    (base / "polarbear" / "verified.json").write_text(notes)


def verified_read(base: Path) -> Reading:
    os.environ["XDG_CACHE_HOME"] = str(base)
    return Reading(was_verified(base / "data", "abc"))


_BAD = "runs/bad"
FORMATS: tuple[Format, ...] = (
    *(
        Format(
            f"{what}: {how}",
            kind,
            make_runs,
            f"{_BAD}/{file}",
            read,
            among=True,
            valid=finite_scores,
            weight=weight,
        )
        for what, kind, file in (
            ("manifest", "json", "manifest.json"),
            ("scores", "jsonl", "scores.jsonl"),
            ("finished", "json", "finished.json"),
        )
        for how, read, weight in (
            ("runs", list_runs, 12),
            ("report", read_for_report, 12),
            ("summarise", summarised, 3),
        )
    ),
    Format(
        "manifest: whole report",
        "json",
        make_runs,
        f"{_BAD}/manifest.json",
        drawn,
        among=True,
        weight=1,
    ),
    Format(
        "manifest: resume",
        "json",
        make_unfinished,
        f"{_BAD}/manifest.json",
        resumed,
        called=("/tried",),
        may_import=True,
        weight=5,
    ),
    Format(
        "raw scores: summarise",
        "npy",
        make_runs,
        f"{_BAD}/raw/after_1.np?",
        summarised,
        among=True,
        weight=3,
    ),
    Format("raw scores", "npy", make_runs, f"{_BAD}/raw/after_1.np?", scores_kept),
    Format("kept predictions", "npz", make_runs, f"{_BAD}/predictions/after_1.npz", answered),
    Format(
        "checkpoint facts",
        "json",
        make_unfinished,
        f"{_BAD}/checkpoint/*.json",
        resumed,
        called=("/tried",),
        exact=True,
    ),
    Format(
        "checkpoint tensors",
        "tensors",
        make_unfinished,
        f"{_BAD}/checkpoint/*.safetensors",
        resumed,
        called=("/tried",),
        exact=True,
    ),
    Format(
        "only checkpoint's facts",
        "json",
        make_one_checkpoint,
        f"{_BAD}/checkpoint/*.json",
        resumed,
        called=("/tried",),
        exact=True,
        weight=5,
    ),
    Format(
        "result file: compare",
        "json",
        make_results,
        "results/iirc-cifar/er/order-0.json",
        compared,
        among=True,
        valid=finite_scores,
        weight=4,
    ),
    Format(
        "score table",
        "json",
        make_table,
        "table.json",
        table_read,
        unnamed=True,
        valid=finite_scores,
    ),
    Format("predictions: score", "npz", make_predictions, "mine.npz", scored, weight=3),
    Format(
        "hierarchy.toml",
        "toml",
        make_hierarchies,
        "hierarchy.toml",
        hierarchy_read("hierarchy.toml"),
    ),
    Format(
        "hierarchy.csv", "csv", make_hierarchies, "hierarchy.csv", hierarchy_read("hierarchy.csv")
    ),
    Format(
        "benchmark.toml",
        "toml",
        make_benchmark,
        "mine/benchmark.toml",
        benchmark_read,
        called=("/mine",),
    ),
    Format(
        "benchmark's orders",
        "json",
        make_benchmark,
        "mine/orders.json",
        benchmark_read,
        called=("/mine/benchmark.toml",),
    ),
    Format(
        "benchmark's hierarchy",
        "toml",
        make_benchmark,
        "mine/hierarchy.toml",
        benchmark_read,
        called=("/mine/benchmark.toml",),
        weight=5,
    ),
    Format("benchmark's arrays", "npz", make_benchmark, "data/data.npz", benchmark_read, weight=5),
    Format("preset", "toml", make_preset, "preset.toml", preset_read, may_import=True),
    Format("arrays", "npz", make_arrays, "data.npz", arrays_read("data.npz")),
    Format("packed arrays", "npz", make_arrays, "packed.npz", arrays_read("packed.npz"), weight=5),
    Format("JPEG in a folder", "image", make_folders, "images/train/pug/0.jpg", folders_read),
    Format("PNG in a folder", "image", make_folders, "images/train/pug/1.png", folders_read),
    Format(
        "WebP in a folder", "image", make_folders, "images/train/pug/2.webp", folders_read, weight=5
    ),
    Format(
        "JPEG: new-benchmark", "image", make_new, "images/train/pug/0.jpg", checked_new, weight=2
    ),
    Format("table of images", "csv", make_images_table, "images.csv", images_table_read),
    Format(
        "JPEG in a table",
        "image",
        make_images_table,
        "images/train/pug/0.jpg",
        images_table_read,
        weight=5,
    ),
    Format(
        "packed set: header",
        "json",
        make_packed,
        "packed/polarbear-packed.json",
        packed_read,
        called=("/packed ", "/packed/images.bin"),
    ),
    Format(
        "packed set: index",
        "npz",
        make_packed,
        "packed/index.npz",
        packed_read,
        called=("/packed ", "/packed/images.bin"),
    ),
    Format(
        "packed set: images",
        "bytes",
        make_packed,
        "packed/images.bin",
        packed_read,
        called=("/packed ", "/packed/images.bin"),
    ),
    *(
        Format(
            f"packed set, verified: {what}",
            kind,
            make_packed,
            f"packed/{file}",
            packed_verified,
            exact=exact,
            called=("/packed ", "/packed/images.bin"),
            weight=5,
        )
        for what, kind, file, exact in (
            ("header", "json", "polarbear-packed.json", False),
            ("index", "npz", "index.npz", True),
            ("images", "bytes", "images.bin", True),
        )
    ),
    Format("index cache", "npz", make_index, "index.npz", index_read),
    *(
        [Format("CIFAR-100 parquet", "bytes", make_parquet, "train-0.parquet", parquet_read)]
        if find_spec("pyarrow")
        else []
    ),
    Format("CIFAR-100 .npz", "npz", make_cifar_npz, "cifar100.npz", cifar_npz_read),
    Format(
        "CIFAR-100 official",
        "bytes",
        make_official,
        "labels",
        official_read,
        called=("/test", "test_leaf"),
        weight=5,
    ),
    Format(
        "CIFAR-100 archive",
        "bytes",
        make_archive,
        "archive",
        archive_read,
        called=("cifar-100-python.tar.gz",),
        weight=5,
    ),
    Format(
        "verified notes", "json", make_verified, "polarbear/verified.json", verified_read, weight=5
    ),
)
