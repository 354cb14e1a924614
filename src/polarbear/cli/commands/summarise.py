"""``polarbear summarise``: finished runs as small files to keep."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

from polarbear.base.errors import DataError, PolarbearError
from polarbear.base.files import plain, write_json
from polarbear.base.guarded import undamaged
from polarbear.base.names import one_line
from polarbear.benchmark.stream import Stream
from polarbear.cli.shared.console import console
from polarbear.cli.shared.options import Root, flag
from polarbear.named.registry import load
from polarbear.report.read.runs import read_run
from polarbear.runs.folder import RunFolder, find_runs
from polarbear.runs.result_file import kept_scores, result_path
from polarbear.runs.result_file import summarise as summary_of

log = logging.getLogger("polarbear")


def summarise(
    folder: Annotated[Path, flag("A folder with finished runs, as deep as it goes.", "DIR")] = Path(
        "runs"
    ),
    /,
    *,
    out: Annotated[Path, flag("Where the summaries go.", "DIR")] = Path("results"),
    root: Root = None,
    overwrite: Annotated[bool, flag("Write over files that hold another run's scores.")] = False,
) -> None:
    """Write results/BENCHMARK/METHOD/order-N.json for every finished run below a folder.

    Nothing is written where two runs would share a file, or a file holds another run's scores.
    """
    places = _places(folder, out)
    for path, (found, *others) in places.items():
        if others:
            raise PolarbearError(
                f"{found.path} and {others[0].path} would both be {path}: summarise one at a time, "
                "each into an --out of its own"
            )
        if not overwrite and path.exists() and kept_scores(path) != plain(found.table().r):
            raise PolarbearError(
                f"{path} has other scores than {found.path}: give another --out, or --overwrite "
                "to replace it"
            )
    summaries: dict[Path, dict[str, Any]] = {}
    for path, (found,) in places.items():
        with _left_out_if_damaged(found):
            summaries[path] = summary_of(found, _stream(found, root))
        if path in summaries:
            write_json(path, summaries[path])
            console().print(f"{path}{_if_short(summaries[path])}", soft_wrap=True)
    if not summaries:
        raise PolarbearError(f"there is no whole finished run in {folder}")


def _if_short(summary: dict[str, Any]) -> str:
    """Say where a run ends before the benchmark does: tables of last scores leave it out."""
    done = sum(score is not None for score in summary["r"])
    return "" if done == len(summary["r"]) else f" ({done} of {len(summary['r'])} tasks)"


def _places(folder: Path, out: Path) -> dict[Path, list[RunFolder]]:
    """Return the finished runs by the file each would have."""
    places: dict[Path, list[RunFolder]] = {}
    for found in find_runs(folder):
        if not found.finished:
            console().print(f"{found.path}: not finished, left out", soft_wrap=True)
            continue
        with _left_out_if_damaged(found):
            path = result_path(out, read_run(found.path).settings)
            places.setdefault(path, []).append(found)
    return places


@contextmanager
def _left_out_if_damaged(found: RunFolder) -> Iterator[None]:
    try:
        with undamaged(found.path):
            yield
    except PolarbearError as error:
        log.warning("left out: %s", one_line(str(error)))


def _stream(found: RunFolder, root: Path | None) -> Stream | None:
    """Return the run's data, for the scores by other rules; None where they are absent."""
    manifest = found.manifest()
    settings, joint = manifest["settings"], len(manifest["classes"]) == 1
    place = root if root is not None else manifest["root"]
    try:
        # Partial or not, they must be what the run was made with.
        stream = load(settings["benchmark"], settings["order"], place, joint=joint, partial=True)
        if stream.source is None or stream.source.checksum != manifest["data"]:
            raise DataError("The data are not those the run was made with")
    except PolarbearError as error:
        console().print(f"{found.path}: no scores by other rules. {error}", soft_wrap=True)
        return None
    return stream
