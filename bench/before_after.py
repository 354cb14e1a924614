"""Training speed of two checkouts of polarbear by turns: is it slower than it was?

    git worktree add ../before COMMIT
    python bench/before_after.py ../before --root data --methods er agem lucir --fleets 1 10

Each checkout has a process of its own that stays; one trains while the other waits, and which goes
first alternates. Rates are those of its own `bench/train.py`: whole epochs of fleets on a GPU,
steps on a CPU. A ratio is taken within a turn.
"""

import argparse
import json
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parents[1]


class Checkout:
    """A process that measures what it is asked, with the code of one checkout."""

    def __init__(self, tree: Path, args: argparse.Namespace) -> None:
        command = [sys.executable, __file__, str(tree), "--serve", "--root", args.root]
        command += ["--device", args.device, "--epochs", str(args.epochs)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def rate(self, method: str, size: int) -> float:
        """Return images per second of a method, in a fleet of a size."""
        print(json.dumps([method, size]), file=self._process.stdin, flush=True)
        if not (line := self._process.stdout.readline()):
            sys.exit(f"the process of a checkout ended with code {self._process.wait()}, see above")
        return float(line)

    def end(self) -> None:
        self._process.communicate()


def serve(args: argparse.Namespace) -> None:
    """Measure with the checkout's code what comes on standard input, until it ends."""
    # In front of this folder, which has a train.py, too, and of an installed polarbear.
    sys.path[:0] = [str(args.tree / "src"), str(args.tree / "bench")]
    import train

    if not Path(train.polarbear.__file__).is_relative_to(args.tree):
        sys.exit(f"{args.tree} is no checkout of polarbear: {train.polarbear.__file__} was found")
    measure = on_gpu(train, args) if args.device != "cpu" else on_cpu(train, args)
    for line in sys.stdin:
        with redirect_stdout(sys.stderr):  # what a run says is no answer
            found = measure(*json.loads(line))
        print(found, flush=True)


def on_gpu(train: Any, args: argparse.Namespace) -> Callable[[str, int], float]:
    train.logging.getLogger("polarbear").setLevel(train.logging.ERROR)
    make = partial(train.settings_for, benchmark="iirc-cifar", device=args.device, tasks=1)

    def measure(method: str, size: int) -> float:
        fleet = [
            make(method, order=order, epochs=10**6, plateau_patience=10**6) for order in range(size)
        ]
        rate: float = train.our_rate(fleet, args.root, args.epochs)[0]
        return rate

    return measure


def on_cpu(train: Any, args: argparse.Namespace) -> Callable[[str, int], float]:
    stream = train.polarbear.load("iirc-cifar", 0, args.root)

    @cache
    def steps(method: str) -> Iterator[object]:
        settings = train.settings_for(method, "iirc-cifar", device="cpu", tasks=1)
        begun: Iterator[object] = train.Trainer(
            stream, train.build_learner(settings, stream), ()
        ).steps()
        return begun

    def measure(method: str, size: int) -> float:
        rate: float = train.step_rate(steps(method), 128, args.epochs)
        return rate

    return measure


def shown(rates: list[float]) -> str:
    return f"{median(rates):,.0f} ({min(rates):,.0f}–{max(rates):,.0f})"


def compare(args: argparse.Namespace) -> None:
    """Print a row per method and fleet as its turns end."""
    before, now = Checkout(args.tree, args), Checkout(HERE, args)
    print("| case | before, images/s | now, images/s | now / before |\n|---|--:|--:|--:|")
    for method in args.methods:
        for size in args.fleets:
            pairs = []
            for turn in range(args.turns):
                first, second = (before, now) if turn % 2 == 0 else (now, before)
                rates = {one: one.rate(method, size) for one in (first, second)}
                pairs.append((rates[before], rates[now]))
            olds, news = ([pair[i] for pair in pairs] for i in (0, 1))
            ratios = [new / old for old, new in pairs]
            ratio = f"{median(ratios):.3f} ({min(ratios):.3f}–{max(ratios):.3f})"
            name = f"{method}, fleet of {size}" if args.device != "cpu" else method
            print(f"| {name} | {shown(olds)} | {shown(news)} | {ratio} |", flush=True)
    for one in (before, now):
        one.end()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tree", type=Path, help="the checkout to compare this one with")
    parser.add_argument("--root", default="data")
    parser.add_argument("--device", help="default: a GPU, if there is one")
    parser.add_argument("--methods", nargs="+", default=["er", "agem", "lucir"])
    parser.add_argument("--fleets", nargs="+", type=int, default=[1, 10], help="on a GPU")
    parser.add_argument("--epochs", type=int, help="of a measurement; on a CPU steps (10; 16)")
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.tree = args.tree.resolve()
    if args.serve:
        return serve(args)
    import torch

    has_gpu = torch.cuda.is_available()
    args.device = args.device or ("cuda" if has_gpu else "cpu")
    if args.device == "cpu":
        args.fleets = [1]
    args.epochs = args.epochs or (16 if args.device == "cpu" else 10)
    name = torch.cuda.get_device_name() if has_gpu else platform.machine()
    print(f"{name}, PyTorch {torch.__version__}, {args.turns} turns: median (lowest–highest)\n")
    return compare(args)


if __name__ == "__main__":
    main()
