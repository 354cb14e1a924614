"""Several runs in one command: side by side on a GPU, on a CPU one after the other.

One that fails does not stop the others.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from rich.console import Console

from polarbear.base.errors import PolarbearError, counted
from polarbear.base.interrupt import STOPPED
from polarbear.base.names import readable
from polarbear.cli.shared.console import (
    console,
    error_console,
    plain_table,
    print_table,
    said,
    share,
)
from polarbear.cli.shared.exit_code import may_pass
from polarbear.cli.shared.live import Lines, Watch
from polarbear.cli.shared.spread import Train, places, spread
from polarbear.cli.shared.training import How, Wanted, advice
from polarbear.report.read.grouping import group_runs
from polarbear.report.read.groups import Run
from polarbear.report.read.runs import read_run
from polarbear.report.read.words import which_runs
from polarbear.runs.folder import RunFolder
from polarbear.runs.waiting import let_wait
from polarbear.score.intervals import Interval, interval
from polarbear.settings.settings import Settings

if TYPE_CHECKING:
    from polarbear.launch.fleet import Job, Outcome
    from polarbear.launch.stop import StopWish

log = logging.getLogger("polarbear")

#: Trains runs in another place, there by what comes first: :func:`train_fleet`.
Elsewhere = Callable[[Train, Sequence[Wanted], How, Mapping[Path, str]], "dict[str, Outcome]"]


def say_finished(folder: Path) -> None:
    """Name a run that is skipped, as it has nothing left to do."""
    error_console().print(f"{folder} is finished: skipped", soft_wrap=True)


def train_all(
    asked: Mapping[str, Callable[[], Wanted | None]],
    folders: Sequence[Path],
    how: How,
    elsewhere: Elsewhere | None = None,
) -> None:
    """Train what is found by each name, if anything; a failure is reported at once and at the end.

    The mean over all of ``folders`` that are finished then is printed last.
    Whatever goes wrong in training fails that run; in finding it, what is not our error is a bug.
    ``elsewhere`` trains runs in other places, and returns how each ended, by its folder.
    """
    wanted: list[Wanted] = []
    failed: dict[str, Exception] = {}

    def fail(name: str, error: Exception) -> None:
        failed[name] = error
        if isinstance(error, (PolarbearError, OSError)):
            error_console().print(f"{name} failed: {said(error)}", style="red", soft_wrap=True)
        else:
            log.error("%s failed", name, exc_info=error)

    for name, find in asked.items():
        try:
            found = find()
            wanted += [found] if found else []
        except PolarbearError as error:
            fail(name, error)
    labels = _labels(wanted) if len(wanted) > 1 else {}
    for one in wanted:
        if (labels or elsewhere) and not several_processes():
            let_wait(one.folder, one.settings, one.threads)
    if elsewhere and wanted:
        failed |= _ended(wanted, elsewhere(train_fleet, wanted, how, labels))
        wanted = []
    together = [one for one in wanted if _fits_a_fleet(one)]
    if len(together) > 1:
        failed |= _side_by_side(together, how, labels)
        wanted = [one for one in wanted if one not in together]
    for one in wanted:
        try:
            one.train(how, labels.get(one.folder, ""))
        except Exception as error:
            if several_processes():  # who may no longer stand in the same place
                raise
            fail(one.name, error)
    print_means(folders)
    if failed:
        names = ", ".join(failed)
        # As long as one of them may go well, the whole is worth another try.
        passing = next(filter(may_pass, failed.values()), None)
        told = f"{len(failed)} of {counted(len(asked), 'run')} failed: {names}"
        raise PolarbearError(told) from passing


def on_gpu(settings: Settings) -> bool:
    """Whether a run computes on a GPU; a device that is not here is an error."""
    from polarbear.engine.machine import Machine

    return Machine.of(settings).device.type == "cuda"


def several_processes() -> bool:
    """Whether others train together with this process: then one run after the other."""
    from polarbear.engine.world import the_world

    return the_world().size > 1


def _fits_a_fleet(one: Wanted) -> bool:
    try:
        return on_gpu(one.settings) and not several_processes()
    except PolarbearError:  # said when it is trained
        return False


def _labels(wanted: Sequence[Wanted]) -> dict[Path, str]:
    """Return what tells the runs' lines apart: method and order, else the folder."""
    short = {
        one.folder: f"{readable(one.settings.method)} order {one.settings.order}" for one in wanted
    }
    times = Counter(short.values())
    return {folder: name if times[name] == 1 else str(folder) for folder, name in short.items()}


def _side_by_side(
    wanted: Sequence[Wanted], how: How, labels: Mapping[Path, str]
) -> dict[str, Exception]:
    """Train as many at a time as the engine sees fit; returns the errors of those that failed."""
    over = places()[: len(wanted)]
    # A GPU that was named is counted among all of them, and so not seen by a process with one.
    anywhere = [one for one in wanted if one.settings.device in ("auto", "cuda")]
    outcomes: dict[str, Outcome] = {}
    if len(over) > 1 and len(anywhere) > 1:
        outcomes |= spread(train_fleet, anywhere, how, labels, over)
        here = [one for one in wanted if one not in anywhere]
    else:
        here = list(wanted)
    if here and not any(_was_stopped(outcome) for outcome in outcomes.values()):
        train_fleet(iter(here), len(here), how, labels, None, outcomes.__setitem__)
    return _ended(wanted, outcomes)


def _ended(wanted: Sequence[Wanted], outcomes: "Mapping[str, Outcome]") -> dict[str, Exception]:
    """Print how runs ended; returns the errors of those that failed."""
    print_outcomes(outcomes)
    errors = [(one, outcomes[str(one.folder)].error) for one in wanted]
    failed = [(one, error) for one, error in errors if error is not None]
    # Once per method, who knows more of the errors of one's own; the engine has told them.
    hints = dict.fromkeys(advice(one.settings.method, error) for one, error in failed)
    for hint in filter(None, hints):
        error_console().print(hint, soft_wrap=True)
    if any(map(_was_stopped, outcomes.values())):
        raise SystemExit(STOPPED)
    return {one.name: error for one, error in failed}


def _was_stopped(outcome: "Outcome") -> bool:
    return not outcome.finished and outcome.error is None


def train_fleet(
    wanted: Iterator[Wanted],
    lines_share: int,
    how: How,
    labels: Mapping[Path, str],
    stop: "StopWish | None",
    on_end: "Callable[[str, Outcome], None]",
) -> None:
    """Train runs side by side in this process, taking the next when there is room for it."""
    from polarbear.launch.fleet import run_fleet

    screen = error_console()
    with ExitStack() as stack:

        def job(one: Wanted) -> "Job":
            one.take_threads()  # on a GPU all have the same
            seen = Watch(Lines(screen, lines_share), one.folder, labels[one.folder])
            try:
                return _job(one, how, seen, stack)
            except PolarbearError as error:  # of a sink: it fails this run, and no others
                return _failing(one, error)

        run_fleet(map(job, wanted), save_every=how.save_every, stop=stop, on_end=on_end)


def _failing(one: Wanted, error: Exception) -> "Job":
    from polarbear.launch.fleet import Job

    def refuse(_: object) -> NoReturn:
        raise error

    return Job(str(one.folder), refuse)


def _job(one: Wanted, how: How, seen: Watch, stack: ExitStack) -> "Job":
    from polarbear.launch.fleet import Job
    from polarbear.launch.left_to_do import prepare_rest
    from polarbear.launch.prepare import reopen

    kept = [stack.enter_context(sink) for sink in how.sinks(one.folder, one.settings)]
    prepare = reopen if one.begun else partial(prepare_rest, one.settings)
    return Job(
        str(one.folder),
        lambda shared: prepare(one.folder, root=how.root, shared=shared),
        {"recorders": (seen, *kept), "on_step": seen},
    )


def print_outcomes(outcomes: "Mapping[str, Outcome]") -> None:
    """Print how each run ended."""
    table = plain_table("run", "state", "R_j after the last task")
    table.columns[1].no_wrap = False  # of one that failed, it is the error
    for name, outcome in outcomes.items():
        state = "finished" if outcome.finished else "stopped"
        last = "–"
        if outcome.error is not None:
            state = f"failed: {outcome.error}"
        elif outcome.finished:
            # A run that was asked for fewer tasks has no score at the end.
            scores = RunFolder(Path(name)).table().r
            done = scores[~np.isnan(scores)]
            last = share(float(done[-1]) if done.size else np.nan)
        table.add_row(name, state, last)
    print_table(console(), table)


def print_means(folders: Sequence[Path]) -> None:
    """Print the means over those of the runs in these folders that are finished."""
    found: list[Run] = []
    for folder in folders:
        with suppress(PolarbearError):  # one that is damaged has failed, and that was said
            if RunFolder(folder).finished:
                found.append(read_run(folder))
    print_means_of(found, console())


def print_means_of(finished: Iterable[Run], screen: Console) -> None:
    """Print the mean over the runs of each method with its 95 % interval, if several."""
    found: dict[str, list[Run]] = {}
    for run in finished:
        if run.done:
            found.setdefault(run.benchmark, []).append(run)
    for benchmark, runs in found.items():
        for group in (group for group in group_runs(runs) if group.count > 1):
            last = min(run.done[-1] for run in group.runs)
            scores = [run.scores["pw_jaccard"][: last + 1] for run in group.runs]
            end, over = interval([r[-1] for r in scores]), interval([r.mean() for r in scores])
            which = f"n = {group.count}; {which_runs([group])}"
            screen.print(
                f"\n{group.title} on {benchmark}: R_{last} = {_with_interval(end)}, mean of R_0 to "
                f"R_{last} = {_with_interval(over)} (95 %, {which})",
                soft_wrap=True,
            )


def _with_interval(found: Interval) -> str:
    return f"{share(found.mean)} ± {share(found.half_width)}"
