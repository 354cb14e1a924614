"""Hierarchies, benchmark folders, arrays and presets."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hard.reading import Reading, digest, printing
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.cli.commands.new_benchmark import new_benchmark
from polarbear.data.npz import open_npz
from polarbear.methods.presets import settings_for
from polarbear.named.registry import load

CLASSES = Hierarchy.from_children({"bear": ["polar", "brown"], "dog": ["pug", "collie"]}, ["lamp"])
SIDE = 12


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
