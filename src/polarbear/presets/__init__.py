"""Presets: named sets of values for the settings, one TOML file each."""

import tomllib
from pathlib import Path
from typing import Any

from polarbear.errors import PolarbearError, unknown_name
from polarbear.settings import Settings

FOLDER = Path(__file__).parent


def preset_names() -> tuple[str, ...]:
    """Give the presets that ship with polarbear."""
    return tuple(sorted(file.stem for file in FOLDER.glob("*.toml")))


def preset_values(name: str, benchmark: str, method: str) -> dict[str, Any]:
    """Give what a preset (a name, or a TOML file of your own) says for a benchmark and a method.

    >>> preset_values("paper", "iirc-imagenet-lite", "icarl-cnn")["learning_rate"]
    0.5
    """
    tables = _read(name)
    if benchmark not in tables:
        return {}
    table = dict(tables[benchmark])
    base = tables[table.pop("like")] if "like" in table else {}
    common = {k: v for k, v in {**base, **table}.items() if not isinstance(v, dict)}
    values: dict[str, Any] = common | base.get(method, {}) | table.get(method, {})
    return values


def settings_for(
    method: str, benchmark: str = "iirc-cifar", preset: str = "paper", **changes: Any
) -> Settings:
    """Give a preset's settings with changes of your own on top.

    >>> settings_for("er", "iirc-cifar", order=3).learning_rate
    1.0
    """
    values = preset_values(preset, benchmark, method) | changes
    return Settings.from_dict({"method": method, "benchmark": benchmark} | values)


def _read(name: str) -> dict[str, Any]:
    file = FOLDER / f"{name}.toml"
    if not file.is_file():
        file = Path(name)
    if not file.is_file():
        raise unknown_name("preset", name, preset_names())
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise PolarbearError(f"{file} is not valid TOML: {error}") from error
