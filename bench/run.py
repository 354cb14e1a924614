"""Wall time of whole runs, split into what they spend it on.

    python bench/run.py er:0 --root data                           # one run alone
    python bench/run.py er:0-9 agem:0,3 --root data --out runs     # a fleet
    python bench/run.py kin-no-parents:0-2 --variants bench/kin.json --root data
    python bench/run.py wa:0 wa:0@cil-cifar wa:0@cil-cifar-b0-5 --root data   # one fleet of several

On a GPU a step's time is the device's, so training and in-task validation are counted together;
what one epoch's validation takes is measured apart.
"""

import argparse
import json
import platform
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from polarbear.base.files import write_json
from polarbear.engine.evaluation import Evaluation
from polarbear.engine.steps.captured import CapturedSteps
from polarbear.engine.task.learner import Learner
from polarbear.launch import runner as session
from polarbear.launch.fleet import Job, Outcome, run_fleet
from polarbear.launch.left_to_do import prepare_rest
from polarbear.methods.presets import settings_for
from polarbear.named.registry import load
from polarbear.runs.cost import Cost
from polarbear.runs.folder import RunFolder
from polarbear.runs.result_file import result_path, summarise
from polarbear.settings.settings import Settings

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


def main() -> None:
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
    parser.add_argument("--at-once", type=int)
    parser.add_argument("--save-every", type=float, default=60.0, help="seconds")
    args = parser.parse_args()
    clocked(Evaluation, "after_task", "evaluation after each task")
    clocked(Learner, "remember", "memory")
    clocked(session, "_save", "checkpoints")
    clocked(CapturedSteps, "__init__", "capturing graphs")
    jobs = [job(one, args) for spec in args.runs for one in chosen(spec, args.benchmark)]
    began = time.perf_counter()
    # Not forked: a process that has a GPU must not be.
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        run_fleet(
            jobs,
            at_once=args.at_once,
            save_every=args.save_every,
            on_end=lambda n, o: report_run(n, o, args, pool),
        )
        total = time.perf_counter() - began
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.machine()
    print(f"{device}, PyTorch {torch.__version__}: {len(jobs)} runs in {total:.0f} s")
    rest = total - sum(SPENT.values())
    for part, seconds in [("training, in-task validation", rest), *SPENT.most_common()]:
        print(f"  {part:32} {seconds:8.1f} s {100 * seconds / total:5.1f} %")
    if torch.cuda.is_available():
        # The fleet counts afresh whenever a run begins.
        print(f"  peak since the last began {torch.cuda.max_memory_allocated() / 1e9:.1f} GB")


if __name__ == "__main__":
    main()
