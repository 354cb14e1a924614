"""One self-contained HTML page: every score, confusion matrix, label river and image.

The page asks nothing of the network: style, script, data and images are inside it.
"""

import html
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from polarbear.base.errors import PolarbearError
from polarbear.base.files import write_whole
from polarbear.base.names import json_text, readable
from polarbear.base.version import __version__
from polarbear.report.options import Options, chosen_pair
from polarbear.report.page.answers import answer_data
from polarbear.report.page.data import score_data
from polarbear.report.page.families import family_data
from polarbear.report.page.trees import tree_data
from polarbear.report.read.answers import comparable_runs
from polarbear.report.read.groups import Runs

SCRIPTS = (
    *("state", "address", "curves", "tables", "questions", "scatter", "families", "heat"),
    *("matrices", "confusion", "river", "trees", "gallery", "links", "page"),
)


def write_page(
    runs: Runs,
    out: str | Path,
    options: Options | None = None,
    *,
    images: bool = True,
) -> Path:
    """Write ``index.html`` into the folder ``out`` and give its path.

    Confusion matrices, label rivers and images need predictions and the data (in the options'
    ``root``, or where the runs found them); without them, those parts of the page say what is
    missing. ``images=False`` leaves the pictures out.
    """
    text = render(page_data(runs, options, images=images))
    file = Path(out) / "index.html"
    write_whole(file, lambda whole: whole.write(text.encode()))
    return file


def add_links(page: Path, files: Mapping[str, Sequence[str]]) -> None:
    """Let a page lead to the report's other files, by name: paths relative to the page's folder.

    The page is made beside them, before all of them are there.
    """
    text = page.read_text(encoding="utf-8").replace(NO_FILES, _files_element(files), 1)
    write_whole(page, lambda whole: whole.write(text.encode()))


def page_data(runs: Runs, options: Options | None = None, *, images: bool = True) -> dict[str, Any]:
    """Return all that the page shows, ready for JSON."""
    options = options or Options()
    return score_data(runs) | {
        "paper": options.paper,
        "pair": _pair(runs, options),
        "families": family_data(runs, options),
        "trees": tree_data(runs),
        "answers": answer_data(runs, options, images=images),
    }


def _pair(runs: Runs, options: Options) -> list[int]:
    """Return the places of the groups side by side: those of the figure, where there is one."""
    groups = list(runs.groups)
    with suppress(PolarbearError):
        groups = [group for group, _ in comparable_runs(runs, damaged=True)]
    pair = chosen_pair(options, groups) or chosen_pair(options, list(runs.groups))
    places = [runs.names.index(group.name) for group in pair]
    return [places[0], places[-1]]


def render(data: dict[str, Any]) -> str:
    """Return the page's text."""
    heading, benchmark = "What learners know", readable(data["benchmark"])
    return Template(_template("page.html")).substitute(
        title=html.escape(f"{heading}: {benchmark} – polarbear"),
        heading=html.escape(heading),
        style=_template("page.css"),
        script="\n".join(_template(f"{name}.js") for name in SCRIPTS),
        data=_embedded(data),
        files=NO_FILES,
        made=html.escape(f"Made by polarbear {__version__}."),
    )


def _files_element(files: Mapping[str, Sequence[str]]) -> str:
    return f'<script type="application/json" id="files">{_embedded(files)}</script>'


def _embedded(data: Any) -> str:
    """Return data as JSON in which nothing can end the script element it stands in."""
    return json_text(data, separators=(",", ":")).replace("<", "\\u003c")


NO_FILES = _files_element({})


def _template(name: str) -> str:
    return (files("polarbear.report.page") / "templates" / name).read_text(encoding="utf-8")
