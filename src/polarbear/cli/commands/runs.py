"""``polarbear runs``: the run folders below a folder and how far they are."""

import logging
from pathlib import Path
from typing import Annotated, Any

from polarbear.base.errors import PolarbearError
from polarbear.base.names import one_line, readable
from polarbear.cli.shared.console import console, plain_table, print_json, share
from polarbear.cli.shared.options import Json, flag
from polarbear.report.read.runs import read_run
from polarbear.runs.folder import RunFolder, find_runs
from polarbear.score.decide import ORACLE

log = logging.getLogger("polarbear")

WIDE = 1000
UNKNOWN = dict.fromkeys(
    ("method", "oracle", "benchmark", "order", "seed", "done", "tasks", "score")
)


def runs(
    folder: Annotated[Path, flag("Where to look, as deep as it goes.", "DIR")] = Path("runs"),
    /,
    *,
    json: Json = False,
) -> None:
    """List the run folders below a folder: what they were asked, how far they are, the last R_j."""
    if not folder.is_dir():
        raise PolarbearError(f"there is no folder {folder}: `polarbear run METHOD` makes one")
    lines = [_line(found) for found in find_runs(folder)]
    if json:
        print_json(lines)
    elif lines:
        _print(lines, folder)
    else:
        raise PolarbearError(f"there is no run in {folder}: `polarbear run METHOD` makes one")
    if lines and all(line["problem"] for line in lines):
        raise PolarbearError(f"no run in {folder} can be read")


def _print(lines: list[dict[str, Any]], folder: Path) -> None:
    table = plain_table("method", "benchmark", "order", "seed", "tasks", "R_j", "state", "run")
    table.columns[-1].justify = "left"
    for line in lines:
        asked = ["–"] * 6
        if line["state"] != "unreadable":
            asked = [
                readable(line["method"]) + (ORACLE if line["oracle"] else ""),
                readable(Path(line["benchmark"]).name),  # one's own is the path of its folder
                str(line["order"]),
                str(line["seed"]),
                f"{line['done']}/{line['tasks']}",
                share(line["score"]),
            ]
        table.add_row(*asked, line["state"], str(Path(line["path"]).relative_to(folder)))
    screen = console()
    screen.width = WIDE  # a narrow one breaks the lines itself, so that folders can be copied
    screen.print(table)


def _line(found: RunFolder) -> dict[str, Any]:
    path = str(found.path)
    try:
        run = read_run(found.path)
    except PolarbearError as error:
        log.warning("unreadable: %s", one_line(str(error)))
        return {"path": path} | UNKNOWN | {"state": "unreadable", "problem": str(error)}
    return {
        "path": path,
        "method": run.method,
        "oracle": run.is_oracle,
        "benchmark": run.settings["benchmark"],
        "order": run.order,
        "seed": run.seed,
        "done": len(run.done),
        "tasks": min(run.tasks, run.settings.get("tasks") or run.tasks),
        "score": float(run.scores["pw_jaccard"][run.done[-1]]) if run.done else None,
        "state": "finished" if run.finished else "unfinished",
        "problem": None,
    }
