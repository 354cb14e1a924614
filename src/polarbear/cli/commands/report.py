"""``polarbear report``: figures, tables and a page from run folders."""

import os
import time
from pathlib import Path
from typing import Annotated

from rich.console import Console
from rich.text import Text
from tyro.conf import arg

from polarbear.base.errors import PolarbearError, counted
from polarbear.base.names import readable
from polarbear.cli.shared.console import console, error_console
from polarbear.report.build import Report, build_report
from polarbear.report.options import Options
from polarbear.report.read.groups import Runs
from polarbear.report.read.runs import read_runs

Folders = Annotated[
    tuple[Path, ...],
    arg(
        metavar="RUNS…",
        help="Run folders or result summaries, or folders above them.",
        help_behavior_hint="",
    ),
]
Out = Annotated[Path, arg(metavar="DIR", help="Where to write.")]
Formats = Annotated[str, arg(metavar="LIST", help="Formats of the figures: pdf, svg, png.")]
Tasks = Annotated[
    str,
    arg(
        metavar="LIST",
        help="Tasks to follow and to look after, such as 0,5,10.",
        help_behavior_hint="(default: as in the paper)",
    ),
]
Superclass = Annotated[
    str | None,
    arg(
        metavar="NAME",
        help="Superclass of the label river.",
        help_behavior_hint="(default: the one with the most subclasses)",
    ),
]
Compare = Annotated[
    tuple[str, str] | None,
    arg(
        metavar="METHOD METHOD",
        help="Two methods to show side by side.",
        help_behavior_hint="(default: the two with the best scores, bounds aside)",
    ),
]
Figures = Annotated[
    str, arg(metavar="LIST", help="Figures to draw.", help_behavior_hint="(default: all)")
]
Paper = Annotated[
    bool, arg(help="Draw the paper's own curves beside ours, dashed.", help_behavior_hint="")
]
Root = Annotated[
    Path | None,
    arg(
        metavar="DIR",
        help="Folder with the data, for images and labels.",
        help_behavior_hint="(default: where the runs found them)",
    ),
]


def report(
    folders: Folders,
    /,
    *,
    out: Out = Path("report"),
    formats: Formats = "pdf,svg,png",
    tasks: Tasks = "",
    superclass: Superclass = None,
    compare: Compare = None,
    figures: Figures = "",
    paper: Paper = False,
    root: Root = None,
) -> None:
    """Make figures, tables and a page from runs of one benchmark, finished or not."""
    began = time.perf_counter()
    options = Options(_numbers(tasks), superclass, compare or (), paper, root)
    runs = read_runs(folders)
    with error_console().status("drawing …") as status:
        made = build_report(
            runs,
            out,
            options,
            formats=_words(formats),
            only=_words(figures),
            jobs=min(4, os.cpu_count() or 1),
            say=lambda name: status.update(Text(readable(f"{name} done …"))),
        )
    _print(console(), runs, made, time.perf_counter() - began)


def _print(screen: Console, runs: Runs, made: Report, seconds: float) -> None:
    groups = ", ".join(f"{group.title} ({group.count})" for group in runs.groups)
    screen.print(f"{runs.benchmark}, runs of {groups}", soft_wrap=True)
    kinds = [one.kind for one in made.made]
    screen.print(
        f"{counted(kinds.count('figure'), 'figure')} and {counted(kinds.count('table'), 'table')} "
        f"in {made.folder} "
        f"({seconds:.0f} s), listed in {made.folder / 'contents.md'}",
        soft_wrap=True,
    )
    for name, reason in made.left_out.items():
        screen.print(f"left out: {name}: {reason}", style="dim", soft_wrap=True)
    if made.page is not None:
        screen.print(f"Open {made.page}", style="bold", soft_wrap=True)


def _words(given: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in given.split(",") if word.strip())


def _numbers(given: str) -> tuple[int, ...]:
    try:
        return tuple(int(word) for word in _words(given))
    except ValueError:
        raise PolarbearError(
            f"--tasks are whole numbers with commas between them, such as 0,5,10; not {given!r}"
        ) from None
