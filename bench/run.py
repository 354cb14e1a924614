"""Wall time of whole runs, split into what they spend it on.

    python bench/run.py er:0 --root data                           # one run alone
    python bench/run.py er:0-9 agem:0,3 --root data --out runs     # a fleet
    python bench/run.py kin-no-parents:0-2 --variants bench/kin.json --root data
    python bench/run.py wa:0 wa:0@cil-cifar wa:0@cil-cifar-b0-5 --root data   # one fleet of several
    python bench/run.py lucir:0-9 --root data --processes 2    # two fleets on the same GPU

On a GPU a step's time is the device's, so training and in-task validation are counted together;
what one epoch's validation takes is measured apart. A fleet has one core: with several processes,
runs go on while another's steps are captured or its scores worked out. Each prints a bill.

The exit code is 1 where a run failed or a process was lost, else 0: also where a signal stopped
the runs, which go on from their checkpoints when the same command is given again.
"""

import argparse
import json
import platform
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import torch

from polarbear.base.errors import PolarbearError
from polarbear.base.files import write_json
from polarbear.engine.evaluation import Evaluation
from polarbear.engine.steps.captured import CapturedSteps
from polarbear.engine.task.learner import Learner
from polarbear.launch import runner as session
from polarbear.launch.fleet import Fleet, Job, Outcome, run_fleet
from polarbear.launch.left_to_do import prepare_rest
from polarbear.launch.stop import stop_on_signal
from polarbear.methods.presets import settings_for
from polarbear.methods.registry import make_options, resolve
from polarbear.named.registry import load
from polarbear.runs.cost import Cost
from polarbear.runs.folder import RunFolder
from polarbear.runs.result_file import result_path, summarise
from polarbear.settings.settings import Settings
from processes import SPAWN, Place, in_processes, places, stop_with_parent_alone

SPENT: Counter[str] = Counter()


def clocked(owner: Any, name: str, part: str) -> None:
    """Add the time a function takes to a part of the bill."""
    inner: Callable[..., Any] = getattr(owner, name)

    def outer(*args: Any, **more: Any) -> Any:
        began = time.perf_counter()
        try:
            return inner(*args, **more)
        finally:
            SPENT[part] += time.perf_counter() - began

    setattr(owner, name, outer)


@dataclass(frozen=True)
class Chosen:
    """A run that was asked for: a method or a variant's name, an order, a benchmark."""

    method: str
    order: int
    benchmark: str


def chosen(spec: str, benchmark: str) -> Iterator[Chosen]:
    """Read ``er:0-9``, ``agem:0,3``, ``wa:0@cil-cifar`` or ``module:Class:0`` as runs."""
    spec, _, elsewhere = spec.partition("@")
    method, _, orders = spec.rpartition(":")
    for part in orders.split(","):
        first, _, last = part.partition("-")
        for order in range(int(first), int(last or first) + 1):
            yield Chosen(method, order, elsewhere or benchmark)


def named_settings(file: str) -> dict[str, dict[str, Any]]:
    """Return the settings that a file has under each name, which stands for a method then."""
    found: dict[str, dict[str, Any]] = json.loads(Path(file).read_text(encoding="utf-8"))
    return found


@dataclass(frozen=True)
class Planned:
    """A run that can be made ready: in any process, unlike a job."""

    folder: Path
    settings: Settings


def plan(args: argparse.Namespace, refuse: Callable[[str], NoReturn]) -> list[Planned]:
    """Make the settings of all runs: a bad one is refused before anything is trained."""
    runs = []
    for one in (one for spec in args.runs for one in chosen(spec, args.benchmark)):
        try:
            runs.append(planned(one, args))
        except PolarbearError as error:
            refuse(f"{one.method}:{one.order}@{one.benchmark}: {error}")
    return runs


def planned(one: Chosen, args: argparse.Namespace) -> Planned:
    """Return a run's folder and its settings, once its method has taken the options."""
    asked = {**asdict(one), **args.settings, **args.variants.get(one.method, {})}
    folder = args.out / one.benchmark / one.method.replace(":", ".") / f"order-{one.order}"
    settings = settings_for(**asked, keep_scores=True)
    make_options(resolve(settings.method), settings.options)
    return Planned(folder, settings)


def job_into(folder: Path, settings: Settings, root: str | Path) -> Job:
    """Return a run that begins in a folder, or resumes there."""
    return Job(str(folder), lambda shared: prepare_rest(settings, folder, root=root, shared=shared))


def report_run(name: str, outcome: Outcome, args: argparse.Namespace, pool: Executor) -> None:
    """Show how a run ended and let its summary be written: by another process, the GPU waits."""
    folder = RunFolder(Path(name))
    if not outcome.finished:
        print(name, f"unfinished {outcome.error!r}", flush=True)
        return
    cost = Cost.of(folder)
    took = f"{cost.seconds:.0f} s, {cost.device_seconds or cost.seconds:.0f} s of the device"
    print(name, took, folder.table().r.round(3), flush=True)
    if args.results:
        pool.submit(write_summary, folder.path, args).add_done_callback(tell_failure)


def tell_failure(done: Future[None]) -> None:
    """Say that a summary could not be written: nobody waits for it."""
    if not done.cancelled() and done.exception() is not None:
        print(f"summary not written: {done.exception()!r}", flush=True)


def write_summary(path: Path, args: argparse.Namespace) -> None:
    """Write a run's summary, a variant's under its name."""
    folder = RunFolder(path)
    manifest = folder.manifest()
    settings, joint = manifest["settings"], len(manifest["classes"]) == 1
    stream = load(settings["benchmark"], settings["order"], args.root, joint=joint)
    summary = summarise(folder, stream)
    named = {"method": path.parent.name} if path.parent.name in args.variants else {}
    write_json(result_path(args.results, summary | named), summary)


def at_least_one(word: str) -> int:
    """Read how many there are to be."""
    if int(word) < 1:
        raise argparse.ArgumentTypeError(f"it must be 1 or more, not {word}")
    return int(word)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "runs", nargs="+", help="METHOD:ORDERS[@BENCHMARK], such as er:0-9 or wa:0,3@cil-cifar"
    )
    parser.add_argument("--root", default="data")
    parser.add_argument("--benchmark", default="iirc-cifar")
    parser.add_argument("--out", type=Path, default=Path("runs/bench"))
    parser.add_argument("--results", type=Path)
    parser.add_argument("--settings", type=json.loads, default={})
    parser.add_argument(
        "--variants", type=named_settings, default={}, help="JSON file of settings by name"
    )
    parser.add_argument("--at-once", type=at_least_one, help="runs side by side, of each process")
    parser.add_argument("--processes", type=at_least_one, default=1, help="fleets on the same GPU")
    parser.add_argument("--save-every", type=float, default=60.0, help="seconds")
    args = parser.parse_args()
    return train_all(plan(args, parser.error), args)


def train_all(runs: Sequence[Planned], args: argparse.Namespace) -> int:
    """Train all runs, here or by several processes; returns the command's exit code."""
    began, here = time.perf_counter(), places(args.processes)
    if args.processes == 1:
        codes = [train(runs, args, here[0])]
    else:
        codes = in_processes(partial(train, runs, args), here)
        seconds = time.perf_counter() - began
        print(f"{args.processes} processes: {len(runs)} runs in {seconds:.0f} s")
    for one in here[0].left(runs):
        print(one.folder, "unfinished: not begun")
    for code in codes:
        if code < 0:
            print(f"signal {-code} ended a process: give the command again for what it had begun")
    # A process that is stopped before it trains has nothing to save, and ends at once.
    return int(any(code not in (0, -signal.SIGTERM) for code in codes))


def train(runs: Sequence[Planned], args: argparse.Namespace, place: Place) -> int:
    """Train the runs that no other process takes; prints a bill, returns whether one failed."""
    torch.set_num_threads(max(1, torch.get_num_threads() // args.processes))
    clocked(Evaluation, "after_task", "evaluation after each task")
    clocked(Learner, "remember", "memory")
    clocked(session, "_save", "checkpoints")
    clocked(CapturedSteps, "__init__", "capturing graphs")
    # Of one device, whose other runs may be another process's.
    Fleet.share_of = lambda fleet, device: place.share()
    began = time.perf_counter()
    # A stop waits for summaries, too: else their processes would be left behind.
    with stop_on_signal() as stop, summary_writers() as pool:

        def ended(name: str, outcome: Outcome) -> None:
            place.give_back()
            report_run(name, outcome, args, pool)

        outcomes = run_fleet(
            (job_into(one.folder, one.settings, args.root) for one in place.take(runs, stop)),
            at_once=args.at_once,
            save_every=args.save_every,
            stop=stop,
            on_end=ended,
        )
        total = time.perf_counter() - began
    show_bill(len(outcomes), total)
    return int(any(outcome.error is not None for outcome in outcomes.values()))


def summary_writers() -> Executor:
    return ProcessPoolExecutor(2, mp_context=SPAWN, initializer=stop_with_parent_alone)


def show_bill(runs: int, total: float) -> None:
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    print(f"{device}, PyTorch {torch.__version__}: {runs} runs in {total:.0f} s")
    rest = total - sum(SPENT.values())
    for part, seconds in [("training, in-task validation", rest), *SPENT.most_common()]:
        print(f"  {part:32} {seconds:8.1f} s {100 * seconds / total:5.1f} %")
    if torch.cuda.is_available():
        # The fleet counts afresh whenever a run begins.
        print(f"  peak since the last began {torch.cuda.max_memory_allocated() / 1e9:.1f} GB")


if __name__ == "__main__":
    sys.exit(main())
