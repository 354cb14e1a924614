"""Presets: named sets of values for the settings, one TOML file each."""

import re
from pathlib import Path
from typing import Any

from polarbear.base.errors import PolarbearError, unknown_name
from polarbear.base.guarded import naming, read_toml
from polarbear.methods.catalogue import method_names
from polarbear.named.benchmark import PARTIAL
from polarbear.named.registry import find
from polarbear.settings.settings import Settings

FOLDER = Path(__file__).parent


def preset_names() -> tuple[str, ...]:
    """Return the presets that ship with polarbear."""
    return tuple(sorted(file.stem for file in FOLDER.glob("*.toml")))


def preset_values(name: str, benchmark: str, method: str) -> dict[str, Any]:
    """Return what a preset (a name, or a TOML file of your own) says for a benchmark and a method.

    Values outside the file's tables are for every benchmark, those in a table are for its
    benchmark, those in a table inside that one, named after a method, for that method. A line
    ``like`` takes over those of another table: of another benchmark, or of another method there.

    >>> preset_values("paper", "iirc-imagenet-lite", "icarl-cnn")["learning_rate"]
    0.5
    """
    with naming(name, "a preset", PolarbearError, ""):
        values = _values(name, _read(name), benchmark, method)
        Settings.from_dict({"method": method} | values)  # refused here, they come with the file
        return values


def _values(name: str, tables: dict[str, Any], benchmark: str, method: str) -> dict[str, Any]:
    # A benchmark folder is called by its last part, wherever it lies.
    last = Path(benchmark).name
    family = next(
        (known for known in (last, last.removesuffix(PARTIAL)) if known in tables),
        re.sub(rf"-v\d+({PARTIAL})?$", "", last),
    )
    values = _outside_tables(tables)
    if family not in tables and not values and name not in preset_names():
        raise unknown_name(f"benchmark in {name}", benchmark, tables)
    layers = _layers(tables, family)
    for layer in layers:
        values |= _outside_tables(layer)
    for layer in layers:
        values |= _of_method(layer, method)
    values.pop("like", None)
    return values


def settings_for(
    method: str, benchmark: str = "iirc-cifar", preset: str = "paper", **changes: Any
) -> Settings:
    """Return a preset's settings with changes of your own on top; the benchmark must be known here.

    A method's ``options`` are changed one by one.

    >>> settings_for("er", "iirc-cifar", order=3).learning_rate
    1.0
    """
    find(benchmark)
    values = preset_values(preset, benchmark, method)
    if changes.get("schedule", "steps") != "steps":
        for name in ("rate_steps", "rate_factor"):  # the preset's are for its own schedule
            values.pop(name, None)
    if isinstance(options := changes.get("options"), dict):  # anything else is refused below
        changes = changes | {"options": values.get("options", {}) | options}
    return Settings.from_dict({"method": method, "benchmark": benchmark} | values | changes)


def _layers(tables: dict[str, Any], benchmark: str) -> list[dict[str, Any]]:
    """Return a benchmark's table, after those of the benchmarks it is like."""
    found: dict[str, dict[str, Any]] = {}
    name, table = benchmark, tables.get(benchmark, {})
    while True:
        for key in table.keys() - _outside_tables(table).keys():
            if key not in method_names() and ":" not in key:
                raise unknown_name(f"method in the preset's table {name}", key, method_names())
        found = {name: table} | found
        if "like" not in table:
            return list(found.values())
        name = table["like"]
        if name in found:
            raise PolarbearError(f"the table {name} is like itself: take out one line with like")
        if name not in tables:
            raise unknown_name("table of a preset", name, tables)
        table = tables[name]


def _of_method(table: dict[str, Any], method: str) -> dict[str, Any]:
    """Return a method's values in a benchmark's table, after those of the method it is like."""
    own: dict[str, Any] = table.get(method, {})
    if "like" not in own:
        return own
    other = own["like"]
    if "like" in table.get(other, {"like": ""}):
        raise PolarbearError(
            f"the table of {method} is like {other!r}, which has no values of its own there: name "
            "a method whose table has"
        )
    values: dict[str, Any] = table[other]
    return values | {key: value for key, value in own.items() if key != "like"}


def _outside_tables(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if not isinstance(value, dict)}


def _read(name: str) -> dict[str, Any]:
    for file in (FOLDER / f"{name}.toml", Path(name)):
        if file.is_file():
            return read_toml(file, PolarbearError)
    if file.suffix or file.name != name:
        shipped = ", ".join(preset_names())
        raise PolarbearError(
            f"there is no preset file {file.resolve()}: correct its path, or name a preset that "
            f"ships with polarbear: {shipped}"
        )
    raise unknown_name("preset", name, preset_names())
