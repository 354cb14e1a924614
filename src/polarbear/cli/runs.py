"""``polarbear runs``: the run folders below a folder and how far they are."""

from pathlib import Path
from typing import Annotated, Any

import numpy as np
from tyro.conf import arg

from polarbear.cli.options import Json
from polarbear.cli.screen import console, plain_table, print_json, share
from polarbear.errors import PolarbearError
from polarbear.runs import RunError, RunFolder, find_runs

Dir = Annotated[Path, arg(metavar="DIR", help="Where to look, as deep as it goes.")]
WIDE = 1000
UNKNOWN = dict.fromkeys(("method", "benchmark", "order", "seed", "done", "tasks", "score"))


def runs(folder: Dir = Path("runs"), /, *, json: Json = False) -> None:
    """List the run folders below a folder: what they were asked, how far they are, the last R_j."""
    if not folder.is_dir():
        raise PolarbearError(f"there is no folder {folder}: `polarbear run METHOD` makes one")
    lines = [_line(found) for found in find_runs(folder)]
    if json:
        print_json(lines)
        return
    if not lines:
        raise PolarbearError(f"there is no run in {folder}: `polarbear run METHOD` makes one")
    table = plain_table("method", "benchmark", "order", "seed", "tasks", "R_j", "state", "run")
    table.columns[-1].justify = "left"
    for line in lines:
        table.add_row(*_cells(line, folder))
    screen = console()
    screen.width = WIDE  # a narrow one breaks the lines itself, so that folders can be copied
    screen.print(table)


def _line(found: RunFolder) -> dict[str, Any]:
    path = str(found.path)
    try:
        manifest = found.manifest()
        scores = found.table().r
    except (RunError, KeyError, ValueError) as error:
        return {"path": path} | UNKNOWN | {"state": "unreadable", "problem": str(error)}
    settings = manifest["settings"]
    done = np.flatnonzero(~np.isnan(scores))
    asked = {key: settings[key] for key in ("method", "benchmark", "order", "seed")}
    return {
        "path": path,
        **asked,
        "done": len(done),
        "tasks": min(len(scores), settings["tasks"] or len(scores)),
        "score": float(scores[done[-1]]) if done.size else None,
        "state": "finished" if found.finished else "unfinished",
        "problem": None,
    }


def _cells(line: dict[str, Any], folder: Path) -> tuple[str, ...]:
    path = str(Path(line["path"]).relative_to(folder))
    if line["state"] == "unreadable":
        return (*["–"] * 6, line["state"], path)
    return (
        line["method"],
        Path(line["benchmark"]).name,  # one's own is the path of its folder
        str(line["order"]),
        str(line["seed"]),
        f"{line['done']}/{line['tasks']}",
        share(np.nan if line["score"] is None else line["score"]),
        line["state"],
        path,
    )
