"""``polarbear summarise``: finished runs as small files to keep."""

from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from polarbear.benchmarks import load
from polarbear.cli.options import Root
from polarbear.cli.screen import console
from polarbear.errors import DataError, PolarbearError
from polarbear.runs import RunFolder, find_runs, write_json
from polarbear.stream import Stream
from polarbear.summary import result_path, summarise

Runs = Annotated[Path, arg(metavar="DIR", help="A folder with finished runs, as deep as it goes.")]
Out = Annotated[Path, arg(metavar="DIR", help="Where the summaries go.")]


def summarise_runs(folder: Runs, /, *, out: Out = Path("results"), root: Root = None) -> None:
    """Write results/BENCHMARK/METHOD/order-N.json for every finished run below a folder."""
    written = 0
    for found in find_runs(folder):
        if not found.finished:
            console().print(f"{found.path}: not finished, left out", soft_wrap=True)
            continue
        summary = summarise(found, _stream(found, root))
        path = result_path(out, summary)
        write_json(path, summary)
        console().print(f"{path}", soft_wrap=True)
        written += 1
    if not written:
        raise PolarbearError(f"there is no finished run in {folder}")


def _stream(found: RunFolder, root: Path | None) -> Stream | None:
    """Give the run's data, for the score of the likeliest class; None where they are absent."""
    manifest = found.manifest()
    settings = manifest["settings"]
    joint = len(manifest["classes"]) == 1
    place = root if root is not None else manifest["root"]
    try:
        stream = load(settings["benchmark"], settings["order"], place, joint=joint)
        if stream.source is None or stream.source.checksum != manifest["data"]:
            raise DataError("The data are not those the run was made with")
    except DataError as error:
        console().print(f"{found.path}: no score of the likeliest class. {error}", soft_wrap=True)
        return None
    return stream
