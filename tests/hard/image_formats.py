"""Image files, tables of them and packed sets."""

import os
import shutil
from pathlib import Path

import numpy as np
from PIL import Image

from hard.benchmark_formats import CLASSES, HIERARCHY_TOML, SIDE, pixels
from hard.reading import Reading, listening, printing
from polarbear.cli.commands.new_benchmark import new_benchmark
from polarbear.data.folders import index_folders, open_folders
from polarbear.data.pack import pack
from polarbear.data.packed import open_packed, verify_packed
from polarbear.data.table import open_table

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
