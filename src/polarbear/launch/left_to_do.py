"""What is left of a run: its folder says it, whoever asks and however often."""

from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from polarbear.base.errors import PolarbearError
from polarbear.base.files import plain
from polarbear.benchmark.stream import Stream
from polarbear.engine.world import the_world
from polarbear.launch.inputs import SharedPixels
from polarbear.launch.prepare import Prepared, as_written, begin, reopen
from polarbear.methods.registry import make_options, resolve
from polarbear.runs.folder import RunFolder
from polarbear.runs.guards import InUseError, RunError
from polarbear.settings.settings import Settings

Standing = Literal["new", "begun", "finished"]


def prepare_rest(
    settings: Settings,
    folder: str | Path,
    *,
    stream: Stream | None = None,
    root: str | Path | None = None,
    shared: SharedPixels | None = None,
) -> Prepared | None:
    """Make a run ready to begin, or to go on where its folder ends; None if it is finished."""
    match standing(settings, folder):
        case "new":
            try:
                return begin(settings, folder, stream=stream, root=root, shared=shared)
            except RunError as error:
                if _standing(settings, RunFolder(Path(folder))) == "new":
                    raise
                told = f"{folder} was begun by another process meanwhile: try again later"
                raise InUseError(told) from error
        case "begun":
            return reopen(folder, settings, stream=stream, root=root, shared=shared)
        case "finished":
            return None


def standing(settings: Settings, folder: str | Path) -> Standing:
    """Return how far the run of a folder is; one of other settings is refused."""
    return the_world().told(lambda: _standing(settings, RunFolder(Path(folder))))


def _standing(settings: Settings, there: RunFolder) -> Standing:
    if not (there.path / "manifest.json").exists() or there.left_empty():
        return "new"
    if there.own_loop:
        raise RunError(f"{there.path} is of a loop of your own: only that loop can resume it")
    others = _differing(there, settings)
    if others == ["accumulate"] and not there.finished:
        return "begun"  # whoever goes on may have another GPU
    if others:
        raise RunError(
            f"{there.path} holds a run already, of other settings ({', '.join(others)}): choose "
            "another folder (--out DIR)"
        )
    return "finished" if there.finished else "begun"


def _differing(there: RunFolder, settings: Settings) -> list[str]:
    """Name the settings in which the run of a folder is not the one asked for."""
    found, wanted = Settings.from_dict(there.manifest()["settings"]), as_written(settings)
    if found.method != wanted.method:  # which has other options
        return ["method"]
    try:
        values = _in_full(found)
    except PolarbearError:  # the method has other options by now
        return ["options"]
    asked = _in_full(wanted.as_fast_as(found))  # whoever goes on may have another machine
    return [name for name, value in asked.items() if values[name] != value]


def _in_full(settings: Settings) -> dict[str, Any]:
    """Return settings with all of a method's options: in Python, usual ones may be left unsaid."""
    options = make_options(resolve(settings.method), settings.options)
    content: dict[str, Any] = plain(settings.to_dict() | {"options": asdict(options)})
    return content
