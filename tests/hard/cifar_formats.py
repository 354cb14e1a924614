"""CIFAR-100 in every form, and notes of what was verified."""

import hashlib
import io
import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from hard.benchmark_formats import pixels
from hard.reading import Reading, digest
from polarbear.data.cifar100 import from_npz, from_parquet
from polarbear.data.cifar100_official import OFFICIAL, OfficialFile, from_official
from polarbear.data.fetch import fetch_cifar100
from polarbear.data.verified import was_verified

# CIFAR-100


def make_parquet(base: Path) -> None:
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
