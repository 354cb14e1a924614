"""One run by torchrun: its speed with one process, and whether two end with the same weights.

    python bench/world.py --root data                   # iirc-cifar, on a GPU
    python bench/world.py --benchmark iirc-shapes --epochs 3 --device cpu

A run alone and one by torchrun with a single process are trained in turn. Then two processes, on
one GPU where there is no second, train a task together and each tells its weights.
"""

import argparse
import hashlib
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from torch import nn

from polarbear.methods.er import ER
from polarbear.runs.folder import RunFolder

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


class Telling(ER):
    """ER that tells its weights at the end of a task: every process has a copy of its own."""

    def end_task(self) -> None:
        """Print what the weights are."""
        told = f"process {self.world.rank} of {self.world.size}: {digest(self.model)}\n"
        print(told, end="", flush=True)  # in one piece: the other process prints there too


def digest(model: nn.Module) -> str:
    """Return a few letters that stand for all weights and statistics, to the last bit."""
    found = hashlib.sha256()
    for tensor in model.state_dict().values():
        found.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()[:16]


def trained(
    method: str, folder: Path, args: argparse.Namespace, *way: str, epochs: int | None = None
) -> float:
    """Train one task; returns images per second: the median of epochs from the third on, if any."""
    asked = ["--benchmark", args.benchmark, "--root", args.root, "--device", args.device]
    more = ["--epochs", str(epochs or args.epochs), "--tasks", "1", "--out", str(folder)]
    command = [sys.executable, *way, "-m", "polarbear", "run", method, *asked, *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode:
        sys.exit(done.stderr[-4000:])
    print(*[line for line in done.stdout.splitlines() if line.startswith("process")], sep="\n")
    done_epochs = [line for line in RunFolder(folder).epochs() if not line.phase]
    steady = done_epochs[2:] or done_epochs[-1:]
    return statistics.median(line.images / line.seconds for line in steady)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--benchmark", default="iirc-cifar")
    parser.add_argument("--root", default="data")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--turns", type=int, default=2)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        for turn in range(args.turns):
            ways = [("alone", ()), ("torchrun", (*TORCHRUN, "1"))]
            rates = {
                name: trained("er", out / f"{name}-{turn}", args, *way)
                for name, way in (reversed(ways) if turn % 2 else ways)
            }
            alone, one = rates["alone"], rates["torchrun"]
            print(
                f"alone {alone:,.0f}, torchrun {one:,.0f} images/s: {one / alone:.3f}×", flush=True
            )
        # Two processes on one GPU take turns there and speak through the host: four epochs took
        # more than 85 s beside a fleet.
        two = trained("world:Telling", out / "two", args, *TORCHRUN, "2", epochs=1)
        print(f"two processes {two:,.0f} images/s")


if __name__ == "__main__":
    main()
