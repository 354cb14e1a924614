"""``polarbear resume``: go on with a run that was stopped, killed or cut off."""

from functools import partial
from pathlib import Path
from typing import Annotated

from tyro.conf import OmitArgPrefixes, arg

from polarbear.cli.learning import How, engine, learn
from polarbear.cli.outcome import print_outcome
from polarbear.cli.screen import console
from polarbear.runs import RunFolder
from polarbear.settings import Settings

Dir = Annotated[Path, arg(metavar="DIR", help="The run folder.", help_behavior_hint="")]


def resume(folder: Dir, /, *, how: OmitArgPrefixes[How] = How()) -> None:  # noqa: B008
    """Go on with a run from its newest whole checkpoint; its scores are as if it never stopped."""
    opened = RunFolder.open(folder)
    settings = Settings.from_dict(opened.manifest()["settings"])
    if opened.finished:
        console().print(f"{folder} is finished: nothing to do\n", soft_wrap=True)
        print_outcome(console(), opened)
        return
    learn(partial(engine().resume, folder), folder, settings, how)
