"""Benchmarks of your own, as folders: ``polarbear.load("path/to/folder")``.

    benchmark.toml    name, version, where the images are, how they are split
    hierarchy.toml    the classes (or hierarchy.csv)
    orders.json       the class orders

Paths in ``benchmark.toml`` are relative to it, so that a folder can move together with its data.
``polarbear new-benchmark`` writes such a folder; it may be edited by hand.
"""

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

from polarbear.base.errors import PolarbearError, ScheduleError, unknown_name
from polarbear.base.guarded import naming, read_json, read_toml
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.schedule import Schedule
from polarbear.benchmark.split import SplitRule
from polarbear.data.colours import Colours
from polarbear.data.kinds import Data
from polarbear.named.benchmark import Benchmark
from polarbear.settings.settings import fits

FILE = "benchmark.toml"


@dataclass(frozen=True)
class Blueprint:
    """All that a benchmark folder says."""

    name: str
    data: Data
    hierarchy: Path
    orders: tuple[Schedule, ...]
    summary: str = ""
    version: int = 1
    rule: SplitRule = field(default_factory=SplitRule)
    preparation: str = "plain"
    colours: Colours | None = None

    def __post_init__(self) -> None:
        """Refuse a name that would not do as one."""
        if not re.fullmatch(r"[a-z0-9][a-z0-9_.-]*", self.name) or re.search(r"-v\d+$", self.name):
            raise PolarbearError(
                f"{self.name!r} cannot name a benchmark: a name has lower-case letters, digits and "
                "hyphens, and no version at its end (that is a number of its own)"
            )

    def benchmark(self) -> Benchmark:
        """Return the benchmark; its data and hierarchy are read when they are asked for."""
        return Benchmark(
            self.name,
            self.version,
            self.summary,
            partial(Hierarchy.read, self.hierarchy),
            lambda: self.orders,
            self.rule,
            lambda root, hierarchy: self.data.open(hierarchy),
            preparation=self.preparation,
            colours=self.colours,
        )

    def write(self, folder: str | Path) -> Path:
        """Write the folder's files; one that holds a benchmark already is left alone."""
        folder = Path(folder)
        if (folder / FILE).exists():
            raise PolarbearError(
                f"{folder} holds a benchmark already: give another folder, or remove {FILE} there"
            )
        folder.mkdir(parents=True, exist_ok=True)
        copy = folder / f"hierarchy{self.hierarchy.suffix.lower()}"
        if self.hierarchy.resolve() != copy.resolve():
            shutil.copyfile(self.hierarchy, copy)
        (folder / "orders.json").write_text(_orders_text(self.orders), encoding="utf-8")
        # Written last: a folder counts as a benchmark once this file is there.
        (folder / FILE).write_text(self._toml(folder, copy.name), encoding="utf-8")
        return folder

    def _toml(self, folder: Path, hierarchy: str) -> str:
        data: dict[str, Any] = {"kind": self.data.kind, "path": _relative(self.data.path, folder)}
        if self.data.image_size is not None:
            data |= {"image_size": self.data.image_size}
        tables: dict[str, dict[str, Any]] = {
            "": {
                "name": self.name,
                "version": self.version,
                "summary": self.summary,
                "hierarchy": hierarchy,
                "orders": "orders.json",
                "preparation": self.preparation,
            },
            "data": data,
            "split": {k: v for k, v in asdict(self.rule).items() if v is not None},
        }
        if self.colours is not None:
            tables["colours"] = asdict(self.colours)
        written = []
        for name, values in tables.items():
            # A JSON text or number is a TOML one too.
            lines = [
                f"{k} = {json.dumps(value, ensure_ascii=False)}" for k, value in values.items()
            ]
            written.append("\n".join([f"[{name}]"] * bool(name) + lines) + "\n")
        return "\n".join(written)


def read_benchmark(folder: str | Path) -> Benchmark:
    """Return the benchmark of a folder."""
    return read_blueprint(folder).benchmark()


def read_blueprint(folder: str | Path) -> Blueprint:
    """Read what a benchmark folder says."""
    file = Path(folder) / FILE
    if not file.exists():
        raise PolarbearError(
            f"{folder} is no benchmark: it holds no {FILE}. `polarbear new-benchmark NAME --data "
            "DATA` makes one from your data"
        )
    with naming(file, "a benchmark", PolarbearError, ""):
        values = _checked(file, read_toml(file, PolarbearError), _KEYS)
        data = _checked(file, values["data"], _DATA_KEYS, "data.")
        rule = _checked(file, values.get("split", {}), _SPLIT_KEYS, "split.")
        colours = None
        if "colours" in values:
            given = _checked(file, values["colours"], _COLOUR_KEYS, "colours.")
            colours = Colours(tuple(given["mean"]), tuple(given["std"]))
        return Blueprint(
            values["name"],
            Data(data["kind"], file.parent / data["path"], data.get("image_size")),
            file.parent / values["hierarchy"],
            _read_orders(file.parent / values["orders"]),
            values.get("summary", ""),
            values.get("version", 1),
            SplitRule(**rule),
            values.get("preparation", "plain"),
            colours,
        )


_Keys = Mapping[str, tuple[Any, bool]]
_KEYS: _Keys = {
    "name": (str, True),
    "version": (int, False),
    "summary": (str, False),
    "hierarchy": (str, True),
    "orders": (str, True),
    "preparation": (str, False),
    "data": (dict, True),
    "split": (dict, False),
    "colours": (dict, False),
}
_DATA_KEYS: _Keys = {"kind": (str, True), "path": (str, True), "image_size": (int, False)}
_COLOUR_KEYS: _Keys = {"mean": (list, True), "std": (list, True)}
_SPLIT_KEYS: _Keys = {name: (kind, False) for name, kind in get_type_hints(SplitRule).items()} | {
    "shuffle_seed": (int, False)
}


def _checked(file: Path, values: dict[str, Any], keys: _Keys, inside: str = "") -> dict[str, Any]:
    for key, value in values.items():
        if key not in keys:
            raise unknown_name(f"key in {file}", inside + key, [inside + k for k in keys])
        if not fits(value, keys[key][0]):
            kind = keys[key][0].__name__
            raise PolarbearError(f"{file}: {inside}{key} must be {kind}, not {value!r}")
    for key, (_, needed) in keys.items():
        if needed and key not in values:
            raise PolarbearError(f"{file} lacks {inside}{key}")
    return values


def _read_orders(file: Path) -> tuple[Schedule, ...]:
    due = (
        'Due is {"orders": [[["bear"], ["polar bear", "lamp"]]]}, a list of tasks an order, a list '
        "of classes a task"
    )
    with naming(file, "class orders", ScheduleError, due):
        content = read_json(file, "class orders", ScheduleError, due)
        return tuple(Schedule.of(order) for order in content["orders"])


def _orders_text(orders: Sequence[Schedule]) -> str:
    """Orders as JSON, one task a line: a person can read and edit them."""
    written = []
    for order in orders:
        tasks = ",\n".join(f"   {json.dumps(task, ensure_ascii=False)}" for task in order.tasks)
        written.append(f"  [\n{tasks}\n  ]")
    return '{\n "orders": [\n' + ",\n".join(written) + "\n ]\n}\n"


def _relative(path: Path, folder: Path) -> str:
    try:
        return Path(os.path.relpath(path.resolve(), folder.resolve())).as_posix()
    except ValueError:  # on Windows, another drive
        return path.resolve().as_posix()
