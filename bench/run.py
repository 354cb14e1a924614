"""Wall time of whole runs, split into what they spend it on.

    python bench/run.py --root data --method er --orders 0            # one run alone
    python bench/run.py --root data --method er --orders 0 1 2 3 4 5 6 7 8 9 --out runs

On a GPU a step's time is the device's, so training and in-task validation are counted together;
what one epoch's validation takes is measured apart.
"""

import argparse
import json
import platform
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from polarbear.benchmarks import load
from polarbear.engine import session
from polarbear.engine.fleet import Job, run_fleet
from polarbear.engine.graphed import GraphedTask
from polarbear.engine.learner import Learner
from polarbear.engine.trainer import Trainer
from polarbear.presets import settings_for
from polarbear.runs import RunFolder, write_json
from polarbear.summary import result_path, summarise

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default="data")
    parser.add_argument("--benchmark", default="iirc-cifar")
    parser.add_argument("--method", nargs="+", default=["er"])
    parser.add_argument("--orders", nargs="+", type=int, default=[0])
    parser.add_argument("--out", type=Path, default=Path("runs/bench"))
    parser.add_argument("--results", type=Path)
    parser.add_argument("--settings", type=json.loads, default={})
    args = parser.parse_args()
    clocked(Trainer, "_evaluate", "evaluation after each task")
    clocked(Learner, "remember", "memory")
    clocked(session, "_save", "checkpoints")
    clocked(GraphedTask, "__init__", "capturing graphs")
    jobs = []
    for method in args.method:
        for order in args.orders:
            settings = settings_for(
                method, args.benchmark, order=order, keep_scores=True, **args.settings
            )
            folder = args.out / method / f"order-{order}"

            def prepare(shared: Any, settings: Any = settings, folder: Path = folder) -> Any:
                if (folder / "manifest.json").exists():
                    return session.reopen(folder, root=args.root, shared=shared)
                return session.begin(settings, folder, root=args.root, shared=shared)

            jobs.append(Job(str(folder), prepare))
    began = time.perf_counter()
    outcomes = run_fleet(jobs, save_every=60)
    total = time.perf_counter() - began
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor()
    print(f"{device}, PyTorch {torch.__version__}: {len(jobs)} runs in {total:.0f} s")
    rest = total - sum(SPENT.values())
    for part, seconds in [("training, in-task validation", rest), *SPENT.most_common()]:
        print(f"  {part:32} {seconds:8.1f} s {100 * seconds / total:5.1f} %")
    if torch.cuda.is_available():
        print(f"  peak GPU memory {torch.cuda.max_memory_allocated() / 1e9:.1f} GB")
    for name, outcome in outcomes.items():
        folder = RunFolder(Path(name))
        r = folder.table().r
        print(name, "finished" if outcome.finished else f"unfinished {outcome.error!r}", r.round(3))
        if args.results and outcome.finished:
            settings = folder.manifest()["settings"]
            stream = load(settings["benchmark"], settings["order"], args.root)
            summary = summarise(folder, stream)
            write_json(result_path(args.results, summary), summary)


if __name__ == "__main__":
    main()
