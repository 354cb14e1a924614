"""Processes that train one run together are killed again and again: torchrun starts them anew.

    python -m hard.crashes --count 10 --seed 1

Nothing may hang, and in the end the run is the one that nobody disturbed. A run of two processes
is killed up to ten times, each time one of the two, amid a step.
"""

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

from torch import Tensor

from hard.campaign import Asked, Finding, Tally, workspace
from hard.kills import snapshot
from polarbear.learn import Batch
from together import LossAlone, torchrun

CRASHES = "POLARBEAR_TEST_CRASHES"
RUN = (
    *("-m", "polarbear", "run", "hard.crashes:Dies", "--benchmark", "iirc-shapes"),
    *("--network", "engine_run:TinyNetwork", "--epochs", "4", "--tasks", "2", "--device", "cpu"),
    *("--learning-rate", "0.01", "--batch-size", "64", "--save-every", "0"),
)
KILLED = "killed amid a step"
MOST_KILLS = 10  # of one run
PATIENCE = 120.0  # seconds to a restart; torchrun itself waits for half a minute


class Dies(LossAlone):
    """A method whose processes are killed: ``CRASHES`` has a rank and a step for each life."""

    steps = 0

    def loss(self, batch: Batch) -> Tensor:
        self.steps += 1
        lives, life = json.loads(os.environ[CRASHES]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        if life < len(lives) and lives[life] == [self.world.rank, self.steps]:
            print(KILLED, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        return super().loss(batch)


def trained(folder: Path, lives: list[list[int]]) -> tuple[int | None, str]:
    """Let two processes train a run; returns the exit code, None if it hangs, and the log."""
    words = (*RUN, "--out", str(folder))
    more = {"options": [f"--max-restarts={len(lives)}"], CRASHES: json.dumps(lives)}
    return torchrun(2, *words, timeout=PATIENCE * (1 + len(lives)), **more)


def differing(folder: Path, whole: Path) -> list[str]:
    names = ("scores.jsonl", *(f"predictions/{f.name}" for f in (whole / "predictions").iterdir()))
    return [name for name in names if (folder / name).read_bytes() != (whole / name).read_bytes()]


def crash(folder: Path, whole: Path, lives: list[list[int]], tally: Tally) -> None:
    """Kill processes of a run and look at what is left of it in the end."""
    began = time.monotonic()
    code, said = trained(folder, lives)
    killed = said.count(KILLED)
    tally.add("kills", killed)
    print(f"{killed} kills, {time.monotonic() - began:.0f} s", flush=True)
    if code != 0:
        kind = "hangs" if code is None else f"ends with code {code}"
    elif killed < len(lives):
        kind = "was not killed as often as it should"
    elif others := differing(folder, whole):
        kind = f"different: {', '.join(others)}"
    else:
        tally.add("runs whole in the end")
        return
    files = {**snapshot(folder), "log.txt": said.encode()}
    tally.found(Finding(kind, f"after {lives}: {said[-2000:]}", files))


def run(asked_for: Asked) -> Tally:
    """Kill until there are enough kills."""
    tally, chance = Tally(asked_for), random.Random(asked_for.seed)
    with workspace() as place:
        code, said = trained(place / "whole", [])
        if code != 0:
            raise RuntimeError(said)
        left, number = asked_for.count, 0
        while left > 0 and not tally.over:
            lives = [
                [chance.randrange(2), chance.randint(2, 4)] for _ in range(min(left, MOST_KILLS))
            ]
            crash(place / f"run-{number}", place / "whole", lives, tally)
            left, number = left - len(lives), number + 1
    return tally


if __name__ == "__main__":
    sys.exit(run(Asked.of_command("crashes", 30, __doc__)).say("crashes"))
