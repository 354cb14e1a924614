"""Runs that several processes train together: what torchrun starts, and how it is started.

As a program: FILE, with a list of runs in JSON; each is begun, or resumed where its folder is one.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine_run import TinyNetwork, png_stream, shapes_stream, tiny
from polarbear.engine.images import task_pixels
from polarbear.engine.world import the_world
from polarbear.launch import checkpoint
from polarbear.launch.runner import resume, run
from polarbear.learn import Batch, Method, bce
from polarbear.runs.folder import RunFolder

TESTS = Path(__file__).parent


class LossAlone(Method):
    """A method as a user writes it, who has never heard of several processes."""

    summary = "replay, with a mean of its own and a number in the log"
    replay = "mixed"

    def begin_task(self, context: Any) -> None:
        self.register_buffer("usual", torch.zeros(context.seen, device=context.step.device))

    def loss(self, batch: Batch) -> Tensor:
        logits = self.model(batch.images)
        self.usual.lerp_(logits.detach().mean(dim=0), 0.1)
        self.log("highest", logits.mean())
        return bce(logits - 0.1 * self.usual, batch.targets)


class StoresLogits(Method):
    """A reservoir whose images come with what the network said of them."""

    replay, selection, keep = "reference", "reservoir", "last"
    reference_batch_size = 15

    def store(self, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        return {"logits": self.model(images)}

    def backward(self, batch: Batch, reference: Batch | None) -> Tensor:
        loss = bce(self.model(batch.images), batch.targets)
        if reference is not None:
            stored = reference.stored["logits"]
            apart = (self.model(reference.images)[:, : stored.shape[1]] - stored).square().mean()
            loss = loss + reference.weight * apart
        loss.backward()
        return loss.detach()


class Watched(TinyNetwork):
    """Tells how many images each process looks at, a pass per line."""

    def forward(self, images: Tensor) -> Tensor:
        told = f"process {os.environ.get('RANK', 0)} looks at {len(images)}\n"
        print(told, end="", flush=True)  # in one piece: the other process prints there too
        return super().forward(images)


class DiesOnce(LossAlone):
    """The second process is killed amid the second task, unless it was started again."""

    def loss(self, batch: Batch) -> Tensor:
        first_time = os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0"
        if self.world.rank == 1 and first_time and self.context.task == 1 and self.context.step > 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().loss(batch)


def torchrun(
    processes: int,
    *words: str,
    options: Sequence[str] = (),
    timeout: float = 240,
    **environment: str,
) -> tuple[int | None, str]:
    """Start processes that train together; returns torchrun's exit code and what was written.

    What hangs is killed: it has no exit code.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", *options]
    path = os.pathsep.join([str(TESTS), *filter(None, sys.path)])
    apart = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1", "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [*command, f"--nproc-per-node={processes}", *words],
        env={**os.environ, "PYTHONPATH": path, **apart, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            said, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)  # it has a group of its own
            return None, process.communicate()[0]
    return process.returncode, said


def stopped_at(step: int) -> Callable[..., None]:
    """Return an ``on_step`` by which the first process alone is asked to stop."""
    taken = 0

    def on_step(*_: object) -> None:
        nonlocal taken
        taken += 1
        if taken == step:
            os.kill(os.getpid(), signal.SIGTERM)

    return on_step


def train(
    folder: str,
    method: str,
    stop: int | None = None,
    *,
    encoded: bool = False,
    disk: str | None = None,
    **settings: Any,
) -> bool:
    """Begin a run or resume it, to its end or to a step; returns whether it came to its end.

    Of ``encoded`` images, no process but the first has room for what a task decodes. Each process
    has a folder of its own in ``disk``, named by its rank, for what it keeps for itself.
    """
    if disk is not None:
        settings["features_in"] = "features"
        own = Path(disk, str(the_world().rank))
        own.mkdir(parents=True, exist_ok=True)
        os.chdir(own)
    more: dict[str, Any] = {"stream": shapes_stream()}
    if encoded:
        more["stream"], _ = png_stream()
        task_pixels.SHARE *= the_world().is_first
    if stop is not None:
        more["on_step"] = stopped_at(stop)
    if the_world().told(lambda: Path(folder, "manifest.json").exists()):
        return resume(folder, **more)
    return run(tiny(method, **settings), folder, **more)


if __name__ == "__main__":
    torch.set_num_threads(1)
    for wanted in json.loads(Path(sys.argv[1]).read_text()):
        ended = train(**wanted)
        # Whichever process asks: what the first one writes is there.
        assert ended == RunFolder(Path(wanted["folder"])).finished
        written = checkpoint.numbers(Path(wanted["folder"], "checkpoint"))
        assert ended or len(written) == 2, written  # of the first task's end, and of the stop
