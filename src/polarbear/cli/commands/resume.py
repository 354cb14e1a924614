"""``polarbear resume``: resume runs that were stopped, killed or cut off."""

from functools import partial
from pathlib import Path
from typing import Annotated

from tyro.conf import OmitArgPrefixes

from polarbear.base.errors import PolarbearError
from polarbear.cli.shared.console import console
from polarbear.cli.shared.options import flag
from polarbear.cli.shared.outcome import print_outcome
from polarbear.cli.shared.several_runs import say_finished, train_all
from polarbear.cli.shared.training import How, Wanted
from polarbear.runs.folder import RunFolder, find_runs
from polarbear.runs.guards import RunError
from polarbear.settings.settings import Settings


def resume(
    folders: Annotated[tuple[Path, ...], flag("Run folders, or folders above them.", "DIR…")],
    /,
    *,
    how: OmitArgPrefixes[How] = How(),  # noqa: B008
) -> None:
    """Resume runs from their newest whole checkpoints.

    Scores are as if a run had never stopped. Of several, in or below the folders, those that are
    finished are skipped, the others resumed side by side on a GPU, on a CPU one after the other.
    """
    if not folders:
        raise PolarbearError("which run? `polarbear runs` lists them: polarbear resume DIR …")
    found = list({run.path.resolve(): run for folder in folders for run in _below(folder)}.values())
    if len(found) > 1:
        several = {str(run.path): partial(_unless_finished, run) for run in found}
        train_all(several, [run.path for run in found], how)
    elif found[0].finished:
        console().print(f"{found[0].path} is finished: nothing to do\n", soft_wrap=True)
        print_outcome(console(), found[0])
    else:
        _wanted(found[0]).train(how)


def _below(folder: Path) -> list[RunFolder]:
    found = [RunFolder(folder)]
    if not (folder / "manifest.json").exists():
        found = list(find_runs(folder))
    if not found:
        raise RunError(
            f"{folder} is no run folder: it has no manifest.json, nor has a folder below it"
        )
    return found


def _unless_finished(run: RunFolder) -> Wanted | None:
    if not run.finished:
        return _wanted(run)
    say_finished(run.path)
    return None


def _wanted(run: RunFolder) -> Wanted:
    if run.own_loop:
        raise RunError(f"{run.path} is of a loop of your own: only that loop can resume it")
    settings = Settings.from_dict(run.manifest()["settings"])
    return Wanted(str(run.path), run.path, settings, begun=True)
