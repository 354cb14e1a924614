"""``polarbear summarise``: finished runs as small files to keep."""

import logging
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated, TypeVar

from tyro.conf import arg

from polarbear.base.errors import DataError, PolarbearError
from polarbear.base.files import plain, write_json
from polarbear.base.guarded import undamaged
from polarbear.base.names import one_line
from polarbear.benchmark.stream import Stream
from polarbear.cli.shared.console import console
from polarbear.cli.shared.options import Root
from polarbear.named.registry import load
from polarbear.report.read.runs import read_run
from polarbear.runs.folder import RunFolder, find_runs
from polarbear.runs.result_file import kept_scores, result_path, summarise

log = logging.getLogger("polarbear")

Read = TypeVar("Read")

Runs = Annotated[Path, arg(metavar="DIR", help="A folder with finished runs, as deep as it goes.")]
Out = Annotated[Path, arg(metavar="DIR", help="Where the summaries go.")]
Overwrite = Annotated[
    bool, arg(help="Write over files that hold another run's scores.", help_behavior_hint="")
]


def summarise_runs(
    folder: Runs,
    /,
    *,
    out: Out = Path("results"),
    root: Root = None,
    overwrite: Overwrite = False,
) -> None:
    """Write results/BENCHMARK/METHOD/order-N.json for every finished run below a folder.

    Nothing is written where two runs would share a file, or a file holds another run's scores.
    """
    places = _places(folder, out)
    if not overwrite:
        _refuse_other_runs(places)
    written = [path for path, found in places.items() if _write(path, found, root)]
    if not written:
        raise PolarbearError(f"there is no whole finished run in {folder}")


def _places(folder: Path, out: Path) -> dict[Path, RunFolder]:
    """Return the finished runs by the file each will have, which must be its own."""
    places: dict[Path, RunFolder] = {}
    for found in find_runs(folder):
        if not found.finished:
            console().print(f"{found.path}: not finished, left out", soft_wrap=True)
            continue
        run = _read(found, partial(read_run, found.path))
        if run is None:
            continue
        path = result_path(out, run.settings)
        if path in places:
            raise PolarbearError(
                f"{places[path].path} and {found.path} would both be {path}: summarise one at a "
                "time, each into an --out of its own"
            )
        places[path] = found
    return places


def _refuse_other_runs(places: Mapping[Path, RunFolder]) -> None:
    for path, found in places.items():
        if path.exists() and kept_scores(path) != plain(found.table().r):
            raise PolarbearError(
                f"{path} has other scores than {found.path}: give another --out, or --overwrite "
                "to replace it"
            )


def _write(path: Path, found: RunFolder, root: Path | None) -> bool:
    summary = _read(found, lambda: summarise(found, _stream(found, root)))
    if summary is None:
        return False
    write_json(path, summary)
    console().print(f"{path}", soft_wrap=True)
    return True


def _read(found: RunFolder, read: Callable[[], Read]) -> Read | None:
    """Return what is read of a run; a damaged one is left out, and said to be."""
    try:
        with undamaged(found.path):
            return read()
    except PolarbearError as error:
        log.warning("left out: %s", one_line(str(error)))
        return None


def _stream(found: RunFolder, root: Path | None) -> Stream | None:
    """Return the run's data, for the score of the likeliest class; None where they are absent."""
    manifest = found.manifest()
    settings = manifest["settings"]
    joint = len(manifest["classes"]) == 1
    place = root if root is not None else manifest["root"]
    try:
        stream = load(settings["benchmark"], settings["order"], place, joint=joint)
        if stream.source is None or stream.source.checksum != manifest["data"]:
            raise DataError("The data are not those the run was made with")
    except PolarbearError as error:
        console().print(f"{found.path}: no score of the likeliest class. {error}", soft_wrap=True)
        return None
    return stream
