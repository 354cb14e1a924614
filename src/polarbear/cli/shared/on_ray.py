"""Runs as tasks of Ray, over the machines of a cluster or this one alone.

A run folder says how far its run is, so that a task can be lost and begin again wherever there is
room: Ray does that, and nothing of ours keeps count. The folders are on a file system that all
machines share.
"""

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from polarbear.base.errors import PolarbearError, install_line
from polarbear.base.interrupt import HUP, TERM, USR
from polarbear.base.version import __version__
from polarbear.cli.shared.console import error_console
from polarbear.cli.shared.elsewhere import Elsewhere
from polarbear.cli.shared.exit_code import ElsewhereError
from polarbear.cli.shared.spread import Train, in_words
from polarbear.cli.shared.training import How, Wanted
from polarbear.runs.guards import is_held

if TYPE_CHECKING:
    from polarbear.launch.fleet import Outcome

RETRIES = 20  # a machine may be lost that often under a run; one that kills each of them ends too
SECONDS_BETWEEN_LOOKS = 0.2
PATIENCE = 60.0  # seconds: the process of a lost machine may outlive what Ray hears of it

#: What a method, network or data set is looked for by: as here, so on every machine.
VARIABLES = ("POLARBEAR_DATA",)

#: How Ray speaks, unless the user has said so: no colours in a log, and no lines of runs left out
#: because they differ in their numbers alone; nothing is told to its makers.
RAY_SPEAKS = {"RAY_COLOR_PREFIX": "0", "RAY_DEDUP_LOGS": "0", "RAY_USAGE_STATS_ENABLED": "0"}

#: What Ray itself ends for want of memory counts apart, and without this for ever.
RAY_TRIES = {"RAY_task_oom_retries": str(RETRIES)}


class MovedError(Exception):
    """A task whose machine asked it to stop, not its user: Ray tries it elsewhere."""


@dataclass(frozen=True)
class Home:
    """What a process elsewhere must know of the one that asks for runs."""

    version: str
    directory: Path
    path: tuple[str, ...]
    variables: dict[str, str]

    @classmethod
    def of_this_process(cls) -> "Home":
        """Describe this process."""
        known = {name: os.environ[name] for name in VARIABLES if name in os.environ}
        return cls(__version__, Path.cwd(), tuple(filter(None, sys.path)), known)

    def take(self) -> None:
        """Let this process find what that one finds."""
        if self.version != __version__:
            raise PolarbearError(
                f"{socket.gethostname()} has polarbear {__version__}, and {self.version} asks it "
                "for a run: install the same version on all machines"
            )
        if self.directory.is_dir():
            os.chdir(self.directory)
        sys.path += [place for place in self.path if place not in sys.path]
        os.environ.update(self.variables)


def refuse_without_ray() -> None:
    """Say what to install, before anything is written."""
    if find_spec("ray") is None:
        raise PolarbearError(f"--on ray needs Ray: {install_line('ray')}")


def train_on_ray(
    train: Train, wanted: Sequence[Wanted], how: How, labels: Mapping[Path, str], asked: Elsewhere
) -> "dict[str, Outcome]":
    """Train each run as a task of Ray; returns how each ended, by its folder.

    A wish to stop is passed on, and the runs under way stop with a checkpoint.
    """
    from polarbear.launch.fleet import Outcome
    from polarbear.launch.stop import stop_on_signal

    outcomes: dict[str, Outcome] = {}
    with _connected(asked.ray_address) as ray, stop_on_signal() as stop:
        needs = _needs(ray, wanted, asked.gpus)
        _say_what_is_scarce(ray, needs)
        task = ray.remote(max_retries=RETRIES, retry_exceptions=[MovedError])(train_run)
        home, how = Home.of_this_process(), replace(how, root=how.root and how.root.absolute())
        waiting, pending = iter(zip(wanted, needs, strict=True)), dict[Any, Wanted]()
        most, told = asked.at_once or len(wanted), False
        while True:
            for one, need in islice(waiting, 0 if told else most - len(pending)):
                job = replace(one, folder=one.folder.absolute())
                name = labels.get(one.folder, one.name)  # Ray's lines of a task begin with it
                handed = (train, job, how, len(wanted), need["num_gpus"] > 0, home)
                pending[task.options(name=name, **need).remote(*handed)] = one
            if not pending:
                break
            ready, _ = ray.wait(list(pending), timeout=SECONDS_BETWEEN_LOOKS)
            for ended in ready:
                outcomes[str(pending.pop(ended).folder)] = _outcome(ray, ended)
            if stop.is_set() and not told:
                told = True
                for going in pending:
                    ray.cancel(going)
    return {str(one.folder): outcomes.get(str(one.folder), Outcome(False)) for one in wanted}


@contextmanager
def _connected(address: str | None) -> Iterator[ModuleType]:
    """Join the cluster of this address, that of RAY_ADDRESS or of this machine; else begin one."""
    for name, value in (RAY_SPEAKS | RAY_TRIES).items():
        os.environ.setdefault(name, value)
    import ray

    _refuse_a_closed_door(address or os.environ.get("RAY_ADDRESS") or "")
    try:
        ray.init(address=address, include_dashboard=False, logging_level="WARNING")
    except (ConnectionError, ValueError) as error:
        said = f"Ray's cluster cannot be joined: {error}"
        raise ElsewhereError(said, passing=isinstance(error, ConnectionError)) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _refuse_a_closed_door(address: str) -> None:
    """Refuse HOST:PORT where nobody answers: Ray itself would try for a quarter of an hour."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit() or "/" in host:  # auto, local, ray://…
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, OverflowError) as error:
        raise ElsewhereError(
            f"nobody answers at {address}, where Ray's cluster should be ({error}): `ray start "
            "--head` begins one, --ray-address local does without",
            passing=True,
        ) from error


def _needs(ray: ModuleType, wanted: Sequence[Wanted], gpus: float | None) -> list[dict[str, float]]:
    """Return what each run asks of a machine; unless told, a GPU where it may use one."""
    has_gpus = ray.cluster_resources().get("GPU", 0.0) > 0
    found = []
    for one in wanted:
        device = one.settings.device
        may = device != "cpu" and (device != "auto" or has_gpus)
        if gpus == 0 and device.startswith("cuda"):
            raise PolarbearError("--gpus 0 leaves no GPU for --device cuda: leave out one of them")
        found.append(
            {"num_cpus": one.threads or 1, "num_gpus": float(may) if gpus is None else gpus}
        )
    return found


def _say_what_is_scarce(ray: ModuleType, needs: Sequence[Mapping[str, float]]) -> None:
    """Warn of runs that no machine of the cluster has room for: they wait for one that has."""
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    for what in ("CPU", "GPU"):
        most = max(need[f"num_{what.lower()}s"] for need in needs)
        there = max(machine.get(what, 0.0) for machine in machines)
        if most > there:
            error_console().print(
                f"a run asks for {most:g} {what}s, and no machine of the cluster has more than "
                f"{there:g}: it waits for one that joins",
                soft_wrap=True,
            )


def _outcome(ray: ModuleType, task: Any) -> "Outcome":
    """Return how a task ended; one that was lost again and again may go well another time."""
    from polarbear.launch.fleet import Outcome

    try:
        finished, error = ray.get(task)
    except ray.exceptions.TaskCancelledError:
        return Outcome(False)
    except ray.exceptions.RayTaskError as failed:
        moved = isinstance(failed.cause, MovedError)
        return Outcome(False, ElsewhereError(str(failed.cause or failed), passing=moved))
    except ray.exceptions.RayError as lost:
        words = f"Ray lost it {RETRIES + 1} times: {str(lost).splitlines()[0]}"
        return Outcome(False, ElsewhereError(words, passing=True))
    return Outcome(finished, error and ElsewhereError(*error))


def train_run(
    train: Train, one: Wanted, how: How, runs: int, on_gpu: bool, home: Home
) -> tuple[bool, tuple[str, bool] | None]:
    """Train a run in a process of Ray's; returns whether it is finished, and an error in words."""
    import logging

    from polarbear.cli import ToStderr
    from polarbear.launch.prepare import usual_threads

    logging.basicConfig(format="%(message)s", level=logging.WARNING, handlers=[ToStderr()])
    ended: dict[str, Outcome] = {}
    with _asked_by_signals() as wish:
        try:
            home.take()
            _refuse_a_lonely_folder(one.folder)
            if on_gpu:
                _refuse_a_cpu(one)
            _wait_for_the_lost(one.folder)
            one = replace(one, threads=one.threads or usual_threads(one.settings))
            train(iter([one]), runs, how, {one.folder: ""}, wish, ended.__setitem__)
            outcome = ended[str(one.folder)]
        except PolarbearError as error:
            return False, in_words(error)
    if outcome.finished or outcome.error or signal.SIGINT in wish.came:
        return outcome.finished, in_words(outcome.error)
    raise MovedError(f"{socket.gethostname()} asked it to stop")


class Wish:
    """A wish to stop, and the signals that brought it: Ray's own comes as SIGINT."""

    def __init__(self) -> None:
        """Begin with no such wish."""
        self.came: set[int] = set()

    def is_set(self) -> bool:
        """Whether any came."""
        return bool(self.came)


@contextmanager
def _asked_by_signals() -> Iterator[Wish]:
    wish = Wish()

    def ask(number: int, _: object) -> None:
        wish.came.add(number)

    numbers = (signal.SIGINT, *TERM, *HUP, *USR)
    before = {number: signal.signal(number, ask) for number in numbers}
    try:
        yield wish
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


def _refuse_a_lonely_folder(folder: Path) -> None:
    """Refuse a folder that this machine does not see: whoever asked for the run has made it."""
    if not folder.is_dir():
        raise PolarbearError(
            f"{socket.gethostname()} does not see {folder}: runs on Ray need a folder on a file "
            "system that all machines share (--out DIR)"
        )


def _refuse_a_cpu(one: Wanted) -> None:
    import torch

    if one.settings.device != "cpu" and not torch.cuda.is_available():
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        raise ElsewhereError(
            f"Ray gave it a GPU of {socket.gethostname()} (CUDA_VISIBLE_DEVICES is {visible!r}), "
            "and PyTorch sees none there: it is not trained on a CPU instead",
            passing=True,
        )


def _wait_for_the_lost(folder: Path) -> None:
    """Wait until a process that Ray gave up has let go of a folder, if it ever does."""
    end = time.monotonic() + PATIENCE
    while (folder / "lock").exists() and is_held(folder) and time.monotonic() < end:
        time.sleep(SECONDS_BETWEEN_LOOKS)
