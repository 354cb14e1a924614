"""``polarbear resume``: go on with runs that were stopped, killed or cut off."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from tyro.conf import OmitArgPrefixes, arg

from polarbear.base.errors import PolarbearError
from polarbear.cli.shared.console import console
from polarbear.cli.shared.outcome import print_outcome
from polarbear.cli.shared.several_runs import (
    Wanted,
    refuse_failed,
    say_failed,
    say_finished,
    train_all,
)
from polarbear.cli.shared.training import How
from polarbear.runs.folder import RunError, RunFolder, find_runs
from polarbear.settings.settings import Settings

Dirs = Annotated[
    tuple[Path, ...],
    arg(metavar="DIR…", help="Run folders, or folders above them.", help_behavior_hint=""),
]


def resume(folders: Dirs, /, *, how: OmitArgPrefixes[How] = How()) -> None:  # noqa: B008
    """Go on with runs from their newest whole checkpoints.

    Scores are as if a run had never stopped. Of several, in or below the folders, those that are
    finished are skipped; the others go on side by side on a GPU, on a CPU one after the other.
    """
    if not folders:
        raise PolarbearError("which run? `polarbear runs` lists them: polarbear resume DIR …")
    found = list({run.path.resolve(): run for folder in folders for run in _below(folder)}.values())
    if len(found) > 1:
        _resume_all(found, how)
        return
    wanted = _wanted(found[0])
    if found[0].finished:
        console().print(f"{found[0].path} is finished: nothing to do\n", soft_wrap=True)
        print_outcome(console(), found[0])
    else:
        wanted.train(how)


def _below(folder: Path) -> Iterator[RunFolder]:
    if (folder / "manifest.json").exists():
        yield RunFolder(folder)
        return
    found = list(find_runs(folder))
    if not found:
        raise RunError(
            f"{folder} is no run folder: it has no manifest.json, nor has a folder below it"
        )
    yield from found


def _resume_all(found: list[RunFolder], how: How) -> None:
    wanted, failed = [], []
    for run in found:
        try:
            if run.finished:
                say_finished(run.path)
            else:
                wanted.append(_wanted(run))
        except PolarbearError as error:
            failed.append(str(run.path))
            say_failed(str(run.path), error)
    refuse_failed([*failed, *train_all(wanted, how)], len(found))


def _wanted(run: RunFolder) -> Wanted:
    if run.own_loop and not run.finished:
        raise RunError(f"{run.path} is of a loop of your own: only that loop can go on with it")
    settings = Settings.from_dict(run.manifest()["settings"])
    return Wanted(str(run.path), run.path, settings, begun=True)
