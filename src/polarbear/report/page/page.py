"""One self-contained HTML page: every score, confusion matrix, label river and image.

The page asks nothing of the network: style, script, data and images are inside it.
"""

import html
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from polarbear.base.files import write_whole
from polarbear.base.names import json_text, readable
from polarbear.base.version import __version__
from polarbear.report.page.answers import answer_data
from polarbear.report.page.data import score_data
from polarbear.report.read.groups import Runs

SCRIPTS = ("state", "curves", "tables", "heat", "matrices", "confusion", "river", "gallery", "page")


def write_page(
    runs: Runs,
    out: str | Path,
    *,
    images: bool = True,
    paper: bool = False,
    root: str | Path | None = None,
) -> Path:
    """Write ``index.html`` into the folder ``out`` and give its path.

    Confusion matrices, label rivers and images need predictions and the data (in ``root``, or
    where the runs found them); without them, those parts of the page say what is missing.
    ``images=False`` leaves the pictures out; ``paper`` shows the paper's curves from the start.
    """
    text = render(page_data(runs, images=images, root=root) | {"paper": paper})
    file = Path(out) / "index.html"
    write_whole(file, lambda whole: whole.write(text.encode()))
    return file


def page_data(runs: Runs, *, images: bool = True, root: str | Path | None = None) -> dict[str, Any]:
    """Return all that the page shows, ready for JSON."""
    return score_data(runs) | {"answers": answer_data(runs, images=images, root=root)}


def render(data: dict[str, Any]) -> str:
    """Return the page's text."""
    heading = f"What learners know of {readable(data['benchmark'])}"
    return Template(_template("page.html")).substitute(
        title=html.escape(f"{heading} – polarbear"),
        heading=html.escape(heading),
        style=_template("page.css"),
        script="\n".join(_template(f"{name}.js") for name in SCRIPTS),
        # Nothing in it can end the script element it stands in.
        data=json_text(data, separators=(",", ":")).replace("<", "\\u003c"),
        made=html.escape(f"Made by polarbear {__version__}."),
    )


def _template(name: str) -> str:
    return (files("polarbear.report.page") / "templates" / name).read_text(encoding="utf-8")
