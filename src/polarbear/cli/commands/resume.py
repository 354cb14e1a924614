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
from polarbear.cli.shared.training import How, Wanted, engine
from polarbear.runs.folder import RunFolder, find_runs
from polarbear.runs.guards import RunError
from polarbear.runs.waiting import asked_folders, waiting_in
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
    Runs of a sweep that wait for their turn are begun.
    """
    if not folders:
        raise PolarbearError("which run? `polarbear runs` lists them: polarbear resume DIR …")
    engine()
    from polarbear.engine.world import the_world

    world = the_world()  # of several processes, the first looks: as it begins a run, files change
    found = world.told(lambda: [path for folder in folders for path in _below(folder)])
    paths = list({path.resolve(): path for path in found}.values())
    if len(paths) > 1:
        several = {str(path): partial(_left_to_do, path) for path in paths}
        train_all(several, paths, how)
    elif (wanted := world.told(lambda: _wanted(paths[0]))) is not None:
        wanted.train(how)
    elif world.is_first:
        console().print(f"{paths[0]} is finished: nothing to do\n", soft_wrap=True)
        print_outcome(console(), RunFolder(paths[0]))


def _below(folder: Path) -> list[Path]:
    """Return the folders at or below one that hold a run, or wait for theirs; else it alone."""
    if (folder / "manifest.json").exists():
        return [folder]
    begun = {run.path for run in find_runs(folder)}
    return sorted(begun.union(asked_folders(folder))) or [folder]


def _left_to_do(path: Path) -> Wanted | None:
    from polarbear.engine.world import the_world

    wanted = the_world().told(lambda: _wanted(path))
    if wanted is None and the_world().is_first:
        say_finished(path)
    return wanted


def _wanted(path: Path) -> Wanted | None:
    """Return a run to begin or to go on with, None if it is finished."""
    from polarbear.launch.prepare import usual_threads

    if (waiting := waiting_in(path)) is not None:
        settings = Settings.from_dict(waiting.settings)
        threads = waiting.threads or usual_threads(settings)
        return Wanted(str(path), path, settings, threads=threads)
    if not (path / "manifest.json").exists():
        raise RunError(
            f"{path} is no run folder: it has no manifest.json, nor has a folder below it"
        )
    run = RunFolder(path)
    if run.finished:
        return None
    if run.own_loop:
        raise RunError(f"{path} is of a loop of your own: only that loop can resume it")
    settings = Settings.from_dict(run.manifest()["settings"])
    return Wanted(str(path), path, settings, begun=True)
