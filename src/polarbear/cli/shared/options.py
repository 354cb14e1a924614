"""Flags: how they are shown, and those that several commands share."""

from pathlib import Path
from typing import Annotated

from tyro.conf import arg


def flag(says: str, metavar: str | None = None, *, default: str = "") -> object:
    """Return how ``--help`` shows a flag; ``default`` says what happens where None is given.

    That a flag is not given, or a switch is off, goes without saying.
    """

    def hint(found: str) -> str:
        shown = default or found
        return "" if shown in ("", "None", "False") else f"(default: {shown})"

    return arg(metavar=metavar, help=says, help_behavior_hint=hint)


Root = Annotated[
    Path | None, flag("Folder with the data.", "DIR", default="$POLARBEAR_DATA, else data")
]
RunsRoot = Annotated[
    Path | None,
    flag(
        "Folder with the data, for images and labels.", "DIR", default="where the runs found them"
    ),
]
Json = Annotated[bool, flag("Print JSON, for programs.")]
Results = Annotated[
    tuple[Path, ...], flag("Run folders or result summaries, or folders above them.", "RUNS…")
]
