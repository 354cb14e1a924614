"""``polarbear report``: figures, tables and a page from run folders."""

import time
from pathlib import Path
from typing import Annotated

from rich.text import Text

from polarbear.base.errors import PolarbearError, counted
from polarbear.base.names import readable
from polarbear.cli.shared.console import console, error_console
from polarbear.cli.shared.options import JOBS, Results, RunsRoot, flag
from polarbear.report.build import build_report
from polarbear.report.options import Options
from polarbear.report.read.runs import read_runs


def report(
    folders: Results = (Path("runs"),),
    /,
    *,
    out: Annotated[Path, flag("Where to write.", "DIR")] = Path("report"),
    formats: Annotated[str, flag("Formats of the figures: pdf, svg, png.", "LIST")] = "pdf,svg,png",
    tasks: Annotated[
        str,
        flag(
            "Tasks to follow and to look after, such as 0,5,10.", "LIST", default="as in the paper"
        ),
    ] = "",
    superclass: Annotated[
        str | None,
        flag("Superclass of the label river.", "NAME", default="the one with the most subclasses"),
    ] = None,
    compare: Annotated[
        tuple[str, str] | None,
        flag(
            "Two methods to show side by side.",
            "METHOD METHOD",
            default="the two with the best scores, bounds aside",
        ),
    ] = None,
    figures: Annotated[str, flag("Figures to draw.", "LIST", default="all")] = "",
    size: Annotated[
        str,
        flag(
            "What the figures are for: a column of a paper (3.3 inches wide), a page (6.9) or a "
            "talk (12, with large letters).",
            "column|page|talk",
            name="for",
        ),
    ] = "page",
    methods: Annotated[
        str,
        flag(
            "Methods to show, such as er,kin; groups by their whole names.", "LIST", default="all"
        ),
    ] = "",
    paper: Annotated[bool, flag("Draw the paper's own curves beside ours, dotted.")] = False,
    root: RunsRoot = None,
) -> None:
    """Make figures, tables and a page from runs of one benchmark, finished or not."""
    began = time.perf_counter()
    chosen, pair = _words(methods), compare or ()
    options = Options(_numbers(tasks), superclass, pair, paper, root, size, chosen)
    runs = read_runs(folders, jobs=JOBS)
    with error_console().status("drawing …") as status:
        made = build_report(
            runs,
            out,
            options,
            formats=_words(formats),
            only=_words(figures),
            jobs=JOBS,
            say=lambda name: status.update(Text(readable(f"{name} done …"))),
        )
    seconds, screen = time.perf_counter() - began, console()
    shown = options.chosen(runs).groups
    groups = ", ".join(f"{group.title} ({group.count})" for group in shown)
    screen.print(f"{runs.benchmark}, runs of {groups}", soft_wrap=True)
    kinds = [one.kind for one in made.made]
    screen.print(
        f"{counted(kinds.count('figure'), 'figure')} and {counted(kinds.count('table'), 'table')} "
        f"in {made.folder} ({seconds:.0f} s), listed in {made.folder / 'contents.md'}",
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
