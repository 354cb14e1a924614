"""How long the paper's tables and a sweep take on 1, 8 and 64 GPUs: ``python bench/plan.py``.

Computed, not measured: a run's images are those of ``polarbear describe BENCHMARK --cost``, and one
that is only looked at counts a third of one in a step; the rate of a GPU is given, by default what
was measured on an H200. Each run has one GPU, or its share of one; the longest begin first.
"""

import argparse
import heapq
from collections.abc import Sequence

from polarbear.launch.bill import cost_of, stream_to_count
from polarbear.named.registry import find

GPUS = (1, 8, 64)
#: Images per second of an H200: ten whole runs of ER side by side.
CIFAR = (181_000,)
#: ER in the one epoch of a task that also decoded, and in epochs after a task's first.
IMAGENET = (3_500, 6_195)
DISTILLING = ("icarl-cnn", "icarl-norm", "lucir")
#: The methods of the paper's tables and figures.
TABLES = {
    "iirc-cifar": (
        *("finetune", "er", "mask-seen", "agem", *DISTILLING, "er-infinite"),
        *("joint", "incremental-joint"),
    ),
    "iirc-imagenet-lite": ("er", *DISTILLING, "incremental-joint"),
    "iirc-imagenet-full": ("er", *DISTILLING, "joint"),
}


def images(method: str, benchmark: str) -> float:
    """Return how many images a run trains on, with what it looks at."""
    stream, _ = stream_to_count(benchmark, 0, None)
    cost = cost_of(method, benchmark, stream, image_bytes=0)
    return cost.passes + cost.looks / 3


def hours(seconds: Sequence[float], gpus: int) -> float:
    """Return when the last run ends, each given to the GPU that is free first, longest first."""
    free = [0.0] * gpus
    for one in sorted(seconds, reverse=True):
        heapq.heapreplace(free, free[0] + one)
    return max(free) / 3600


def row(name: str, runs: Sequence[float], rate: float, first: bool) -> str:
    """Return a line; what does not depend on the rate is told in the first of several."""
    ends = (hours([one / rate for one in runs], gpus) for gpus in GPUS)
    cells = " | ".join(f"{end:,.1f}" if end < 100 else f"{end:,.0f}" for end in ends)
    what = f"| {name} | {len(runs):,} | {sum(runs) / 1e6:,.0f}" if first else "| | |"
    return f"{what} | {rate:,.0f} | {cells} |"


def table(cifar: Sequence[float], imagenet: Sequence[float]) -> str:
    """Return the table, with a line for each rate, in images per second."""
    heads = " | ".join(f"{gpus} GPU{'s' * (gpus > 1)}, hours" for gpus in GPUS)
    lines = [f"| | runs | million images | images/s of a GPU | {heads} |", f"|---|{'--:|' * 6}"]
    for benchmark, methods in TABLES.items():
        rates = cifar if benchmark == "iirc-cifar" else imagenet
        each = {method: images(method, benchmark) for method in methods}
        together = {
            f"the table of `{benchmark}`": [
                count for count in each.values() for _ in find(benchmark).orders()
            ],
            f"1,000 runs of ER on `{benchmark}`": [each["er"]] * 1000,
        }
        for name, runs in together.items():
            lines += [row(name, runs, rate, rate == rates[0]) for rate in rates]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cifar", type=float, nargs="+", default=CIFAR, help="images/s of a GPU")
    parser.add_argument("--imagenet", type=float, nargs="+", default=IMAGENET)
    asked = parser.parse_args()
    print(table(asked.cifar, asked.imagenet))


if __name__ == "__main__":
    main()
