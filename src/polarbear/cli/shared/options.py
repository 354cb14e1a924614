"""Options that several commands share, with one help text each."""

from pathlib import Path
from typing import Annotated

from tyro.conf import arg

Root = Annotated[
    Path | None,
    arg(
        metavar="DIR",
        help="Folder with the data.",
        help_behavior_hint="(default: $POLARBEAR_DATA, else data)",
    ),
]
Json = Annotated[bool, arg(help="Print JSON, for programs.", help_behavior_hint="")]
