"""Wall time of whole runs, split into what they spend it on.

    python bench/run.py er:0 --root data                           # one run alone
    python bench/run.py er:0-9 agem:0,3 --root data --out runs     # a fleet
    python bench/run.py kin-no-parents:0-2 --variants bench/kin.json --root data
    python bench/run.py wa:0 wa:0@cil-cifar wa:0@cil-cifar-b0-5 --root data   # one fleet of several
    python bench/run.py lucir:0-9 --root data --processes 2    # two fleets on the same GPU

On a GPU a step's time is the device's, so training and in-task validation are counted together;
what one epoch's validation takes is measured apart. A fleet has one core: with several processes,
runs go on while another's steps are captured or its scores worked out. Each prints a bill.
"""

import argparse
import json
import platform
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from polarbear.base.files import write_json
from polarbear.engine.evaluation import Evaluation
from polarbear.engine.steps.captured import CapturedSteps
from polarbear.engine.task.learner import Learner
from polarbear.launch import runner as session
from polarbear.launch.fleet import Fleet, Job, Outcome, run_fleet
from polarbear.launch.left_to_do import prepare_rest
from polarbear.launch.stop import stop_on_signal
from polarbear.methods.presets import settings_for
from polarbear.named.registry import load
from polarbear.runs.cost import Cost
from polarbear.runs.folder import RunFolder
from polarbear.runs.result_file import result_path, summarise
from polarbear.settings.settings import Settings

SPENT: Counter[str] = Counter()
# Not forked: a process that has a GPU must not be.
SPAWN = get_context("spawn")


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


def job(one: Chosen, args: argparse.Namespace) -> Job:
    asked = {**asdict(one), **args.settings, **args.variants.get(one.method, {})}
    folder = args.out / one.benchmark / one.method.replace(":", ".") / f"order-{one.order}"
    return job_into(folder, settings_for(**asked, keep_scores=True), args.root)


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
    parser.add_argument("--at-once", type=int, help="runs side by side, of each process")
    parser.add_argument("--processes", type=int, default=1, help="fleets on the same GPU")
    parser.add_argument("--save-every", type=float, default=60.0, help="seconds")
    args = parser.parse_args()
    runs = [one for spec in args.runs for one in chosen(spec, args.benchmark)]
    began, common = time.perf_counter(), Common(SPAWN.Value("i", 0), SPAWN.Value("i", 0))
    if args.processes == 1:
        train(runs, args, common)
        return 0
    codes = [*in_processes(partial(train, runs, args, common), args.processes)]
    print(f"{args.processes} processes: {len(runs)} runs in {time.perf_counter() - began:.0f} s")
    return max(map(abs, codes))


@dataclass(frozen=True)
class Common:
    """What the processes of a command know together: the next run's number, runs under way."""

    turn: Any
    under_way: Any

    def take(self, runs: Sequence[Chosen]) -> Iterator[Chosen]:
        """Take one run after another that no other process has taken."""
        while True:
            with self.turn.get_lock():
                number, self.turn.value = self.turn.value, self.turn.value + 1
            if number >= len(runs):
                return
            self.count(1)
            yield runs[number]

    def count(self, more: int) -> None:
        with self.under_way.get_lock():
            self.under_way.value += more


def in_processes(work: Callable[[], None], count: int) -> Iterator[int]:
    """Do the same work in several processes; gives their exit codes, and passes a stop on."""
    processes = [SPAWN.Process(target=work) for _ in range(count)]
    for process in processes:
        process.start()
    told = False
    with stop_on_signal() as stop:
        for process in processes:
            while process.is_alive():
                process.join(0.2)
                if stop.is_set() and not told:
                    told = True
                    for one in processes:
                        one.terminate()
            yield process.exitcode or 0


def train(runs: Sequence[Chosen], args: argparse.Namespace, common: Common) -> None:
    """Train the runs that no other process takes, and print what they spend their time on."""
    torch.set_num_threads(max(1, torch.get_num_threads() // args.processes))
    clocked(Evaluation, "after_task", "evaluation after each task")
    clocked(Learner, "remember", "memory")
    clocked(session, "_save", "checkpoints")
    clocked(CapturedSteps, "__init__", "capturing graphs")
    # Of one device, whose other runs may be another process's.
    Fleet.share_of = lambda fleet, device: 1 / max(1, common.under_way.value)
    began = time.perf_counter()
    with ProcessPoolExecutor(2, mp_context=SPAWN) as pool:

        def ended(name: str, outcome: Outcome) -> None:
            common.count(-1)
            report_run(name, outcome, args, pool)

        outcomes = run_fleet(
            (job(one, args) for one in common.take(runs)),
            at_once=args.at_once,
            save_every=args.save_every,
            on_end=ended,
        )
        total = time.perf_counter() - began
    show_bill(len(outcomes), total)


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
