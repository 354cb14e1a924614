"""``polarbear runs``: the run folders below a folder and how far they are."""

import logging
import shlex
import time
from contextlib import suppress
from pathlib import Path
from textwrap import fill, indent
from typing import Annotated, Any

from rich.text import Text

from polarbear.base.errors import PolarbearError
from polarbear.base.how_far import clock
from polarbear.base.names import one_line, printable, readable
from polarbear.cli.shared.console import (
    console,
    plain_table,
    print_json,
    print_table,
    share,
    table_width,
)
from polarbear.cli.shared.options import JOBS, Json, flag
from polarbear.cli.shared.several_runs import print_means_of
from polarbear.report.read.groups import Run
from polarbear.report.read.runs import read_each
from polarbear.runs.folder import RunFolder, find_runs
from polarbear.runs.job import log_of
from polarbear.runs.process import last_process
from polarbear.runs.waiting import asked_folders, waiting_in
from polarbear.score.decide import ORACLE
from polarbear.settings.settings import Settings

log = logging.getLogger("polarbear")

UNKNOWN = dict.fromkeys(
    ("method", "oracle", "benchmark", "order", "seed", "done", "tasks", "score")
)
NOBODY = dict.fromkeys(("host", "pid", "left", "error", "log"))
SECONDS_BETWEEN_LOOKS = 3.0
LOOKS_BETWEEN_RUNS = 10  # one of a sweep has ended, and the next reads its data


def runs(
    folder: Annotated[Path, flag("Where to look, as deep as it goes.", "DIR")] = Path("runs"),
    /,
    *,
    json: Json = False,
    watch: Annotated[
        bool, flag("Draw the list anew every few seconds, as long as a run trains or has a job.")
    ] = False,
) -> None:
    """List the run folders below a folder: what they were asked, how far they are, the last R_j.

    A run is finished, running, waiting (in a sweep, for its turn), stopped, failed, or dead: its
    process was killed, or its machine is lost. All but finished ones go on where the command that
    began them is given again. A terminal is shown the means of finished runs, too.
    """
    if not folder.is_dir():
        raise PolarbearError(f"there is no folder {folder}: `polarbear run METHOD` makes one")
    if watch and json:
        raise PolarbearError("--watch is for people, --json for programs: leave one of them out")
    found: dict[str, Run | PolarbearError] = {}
    looks = LOOKS_BETWEEN_RUNS
    while True:
        found = _all_read(folder, found)
        lines = [_line(path, run) for path, run in found.items()]
        lines += filter(None, map(_waiting, asked_folders(folder)))
        if watch:
            console().clear()
        _show(lines, [run for run in found.values() if isinstance(run, Run)], folder, json=json)
        looks = _looks_left(lines, looks)
        if not watch or not looks:
            return
        time.sleep(SECONDS_BETWEEN_LOOKS)


def _all_read(
    folder: Path, known: dict[str, Run | PolarbearError]
) -> dict[str, Run | PolarbearError]:
    """Read the runs below a folder, but for those that were finished when they were last read."""
    paths = [str(one.path) for one in find_runs(folder)]
    old = {path: run for path, run in known.items() if isinstance(run, Run) and run.finished}
    new = [path for path in paths if path not in old]
    read = read_each([Path(path, "manifest.json") for path in new], jobs=JOBS)
    found = {**old, **dict(zip(new, read, strict=True))}
    return {path: found[path] for path in paths}


def _looks_left(lines: list[dict[str, Any]], before: int) -> int:
    """Return how often to look again: what waits for its turn may just be about to have it."""
    if any(map(_may_go_on, lines)):
        return LOOKS_BETWEEN_RUNS
    return before - 1 if any(line["state"] == "waiting" for line in lines) else 0


def _may_go_on(line: dict[str, Any]) -> bool:
    """Whether a run trains, or waits in a job of a cluster, perhaps once more."""
    in_a_job = line["log"] is not None and line["state"] in ("waiting", "stopped", "dead")
    return in_a_job or line["state"] == "running"


def _show(lines: list[dict[str, Any]], found: list[Run], folder: Path, *, json: bool) -> None:
    if json:
        print_json(lines)
    elif lines:
        _print(lines)
        if console().is_terminal:  # of the lines that a pipe takes, each is a run
            print_means_of((run for run in found if run.finished), console())
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
    rows = [(*_asked(line), _state(line), shlex.quote(line["path"])) for line in lines]
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
        f"{line['done']}/{line['tasks'] or '–'}",
        share(line["score"]),
    ]


def _state(line: dict[str, Any]) -> str:
    """Return a run's state in words: of one at work when it will be done, and who is at it.

    Of one that a cluster's job has, where the log is, unless all is well.
    """
    words = [line["state"]]
    if line["left"] is not None:
        words.append(f"{clock(line['left'])} left")
    if line["host"] is not None and line["state"] in ("running", "dead"):
        words.append(f"{readable(line['host'])} {line['pid']}")
    if line["log"] is not None and line["state"] != "finished":
        words.append(f"log {shlex.quote(line['log'])}")
    told = ", ".join(words)
    return f"{told}: {readable(line['error'])}" if line["error"] else told


def _unreadable(path: str, error: PolarbearError) -> dict[str, Any]:
    log.warning("unreadable: %s", one_line(str(error)))
    return {"path": path} | UNKNOWN | {"state": "unreadable", "problem": str(error)} | NOBODY


def _line(path: str, run: Run | PolarbearError) -> dict[str, Any]:
    if isinstance(run, PolarbearError):
        return _unreadable(path, run)
    folder = RunFolder(Path(path))
    state = "finished" if run.finished else folder.state()
    line = {
        "path": path,
        "method": run.method,
        "oracle": run.is_oracle,
        "benchmark": run.settings["benchmark"],
        "order": run.order,
        "seed": run.seed,
        "done": len(run.done),
        "tasks": min(run.tasks, run.settings.get("tasks") or run.tasks),
        "score": float(run.scores["pw_jaccard"][run.done[-1]]) if run.done else None,
        "state": state,
        "problem": None,
    } | NOBODY
    last = last_process(folder.path)
    if last is not None and state != "finished":
        line |= {"host": last.host, "pid": last.pid, "error": last.error}
    left = seconds_left(folder) if state == "running" else None
    return line | {"left": left, "log": log_of(folder.path)}


def _waiting(folder: Path) -> dict[str, Any] | None:
    try:
        one = waiting_in(folder)
    except PolarbearError as error:
        return _unreadable(str(folder), error)
    if one is None:  # begun meanwhile: listed with the others, or the next time
        return None
    asked = {name: one.settings[name] for name in ("method", "benchmark", "order", "seed", "tasks")}
    state = {"state": "waiting", "problem": None}
    line = {"path": str(one.folder)} | UNKNOWN | asked | {"done": 0} | state | NOBODY
    return line | {"log": log_of(one.folder)}


def seconds_left(folder: RunFolder) -> float | None:
    """Return about how long a run still takes, by its epochs so far; None before the first.

    An epoch takes the longer the more classes its task brings.
    """
    with suppress(PolarbearError):  # lines that are just being written, or settings of another kind
        manifest = folder.manifest()
        settings = Settings.from_dict(manifest["settings"])
        classes = [len(task) for task in manifest["classes"]][: settings.tasks]
        epochs = list(folder.epochs())
        done = sum(classes[one.task] for one in epochs if not one.phase)
        work = sum(settings.epochs_of(task) * size for task, size in enumerate(classes))
        if done:
            return max(0.0, sum(one.seconds for one in epochs) * (work - done) / done)
    return None
