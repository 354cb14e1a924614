"""``polarbear runs``: the run folders below a folder and how far they are."""

import logging
import shlex
from pathlib import Path
from textwrap import fill, indent
from typing import Annotated, Any

from rich.text import Text

from polarbear.base.errors import PolarbearError
from polarbear.base.names import one_line, printable, readable
from polarbear.cli.shared.console import (
    console,
    plain_table,
    print_json,
    print_table,
    share,
    table_width,
)
from polarbear.cli.shared.options import Json, flag
from polarbear.report.read.runs import read_run
from polarbear.runs.folder import RunFolder, find_runs
from polarbear.score.decide import ORACLE

log = logging.getLogger("polarbear")

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
        _print(lines)
    else:
        raise PolarbearError(f"there is no run in {folder}: `polarbear run METHOD` makes one")
    if lines and all(line["problem"] for line in lines):
        raise PolarbearError(f"no run in {folder} can be read")


def _print(lines: list[dict[str, Any]]) -> None:
    """Print a line per run; where the screen is too narrow, its folder on a line of its own.

    A folder is never broken or cut, and is written as other commands and shells take it.
    """
    table = plain_table("method", "benchmark", "order", "seed", "tasks", "R_j", "state", "run")
    table.columns[-1].justify = "left"
    rows = [(*_asked(line), line["state"], shlex.quote(line["path"])) for line in lines]
    for row in rows:
        table.add_row(*row)
    screen = console()
    if not screen.is_terminal or table_width(table) <= screen.width:
        print_table(screen, table)
        return
    for method, _, order, seed, tasks, score, state, folder in rows:
        screen.print(Text(printable(folder)), soft_wrap=True)
        told = f"{method}, order {order}, seed {seed}, {tasks} tasks, R_j {score}, {state}"
        screen.print(indent(fill(told, max(20, screen.width - 2)), "  "), style="dim")


def _asked(line: dict[str, Any]) -> list[str]:
    if line["state"] == "unreadable":
        return ["–"] * 6
    return [
        readable(line["method"]) + (ORACLE if line["oracle"] else ""),
        readable(Path(line["benchmark"]).name),  # one's own is the path of its folder
        str(line["order"]),
        str(line["seed"]),
        f"{line['done']}/{line['tasks']}",
        share(line["score"]),
    ]


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
