"""Several runs in one command: side by side on a GPU, on a CPU one after the other.

One that fails does not stop the others.
"""

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from polarbear.base.errors import PolarbearError, counted
from polarbear.base.interrupt import STOPPED
from polarbear.cli.shared.console import error_console, said
from polarbear.cli.shared.fleet_lines import TaskLines, print_outcomes
from polarbear.cli.shared.training import How, advice, engine, learn, sinks
from polarbear.settings.settings import Settings

if TYPE_CHECKING:
    from polarbear.launch.fleet import Job

log = logging.getLogger("polarbear")


@dataclass(frozen=True)
class Wanted:
    """A run to begin or, if its folder holds the first part of it, to go on with."""

    name: str
    folder: Path
    settings: Settings
    begun: bool = False

    def train(self, how: How) -> None:
        """Train it alone."""
        session = engine()
        go = partial(session.run, self.settings)
        if self.begun:
            go = session.resume
        learn(partial(go, self.folder), self.folder, self.settings, how)


def say_finished(folder: Path) -> None:
    """Name a run that is skipped, as it has nothing left to do."""
    error_console().print(f"{folder} is finished: skipped", soft_wrap=True)


def say_failed(name: str, error: Exception) -> None:
    """Report a failed run."""
    if not isinstance(error, (PolarbearError, OSError)):
        log.error("%s failed", name, exc_info=error)
        return
    error_console().print(f"{name} failed: {said(error)}", style="red", soft_wrap=True)


def train_all(wanted: Sequence[Wanted], how: How) -> list[str]:
    """Train all; returns the names of those that failed, each reported when it did."""
    together = [one for one in wanted if _fits_a_fleet(one)]
    if len(together) < 2:
        together = []
    alone = [one for one in wanted if one not in together]
    return [*_side_by_side(together, how), *_one_by_one(alone, how)]


def refuse_failed(failed: Sequence[str], of: int) -> None:
    """End with an error if any of several runs failed."""
    if failed:
        raise PolarbearError(f"{len(failed)} of {counted(of, 'run')} failed: {', '.join(failed)}")


def on_gpu(settings: Settings) -> bool:
    """Whether a run computes on a GPU; a device that is not here is an error."""
    from polarbear.engine.machine import Machine

    return Machine.of(settings).device.type == "cuda"


def _fits_a_fleet(one: Wanted) -> bool:
    try:
        return on_gpu(one.settings)
    except PolarbearError:  # said when it is trained
        return False


def _one_by_one(wanted: Sequence[Wanted], how: How) -> list[str]:
    failed = []
    for one in wanted:
        try:
            one.train(how)
        except Exception as error:
            failed.append(one.name)
            say_failed(one.name, error)
    return failed


def _side_by_side(wanted: Sequence[Wanted], how: How) -> list[str]:
    """Train as many at a time as the engine sees fit."""
    if not wanted:
        return []
    from polarbear.launch.fleet import run_fleet

    with ExitStack() as stack:
        jobs = [_job(one, how, stack) for one in wanted]
        outcomes = run_fleet(jobs, save_every=how.save_every)
    print_outcomes(outcomes)
    errors = [(one, outcomes[str(one.folder)].error) for one in wanted]
    failed = [(one, error) for one, error in errors if error is not None]
    # Once per method, who knows more of the errors of one's own; the engine has told them.
    hints = dict.fromkeys(advice(one.settings.method, error) for one, error in failed)
    for hint in filter(None, hints):
        error_console().print(hint, soft_wrap=True)
    if any(not outcome.finished and outcome.error is None for outcome in outcomes.values()):
        raise SystemExit(STOPPED)
    return [one.name for one, _ in failed]


def _job(one: Wanted, how: How, stack: ExitStack) -> "Job":
    from polarbear.launch.fleet import Job
    from polarbear.launch.prepare import begin, reopen

    kept = [stack.enter_context(sink) for sink in sinks(one.folder, one.settings, how)]
    lines = TaskLines(f"{one.settings.method} order {one.settings.order}")
    prepare = reopen if one.begun else partial(begin, one.settings)
    return Job(
        str(one.folder),
        lambda shared: prepare(one.folder, root=how.root, shared=shared),
        {"recorders": (lines, *kept)},
    )
