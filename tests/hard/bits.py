"""Every single bit of a run's facts, flipped: the damage is said, or does no harm.

    python -m hard.bits --seed 1

Of a run that was stopped half way, one bit of one file is flipped at a time: of the newest
checkpoint's facts, of the manifest, of ``scores.jsonl`` and ``epochs.jsonl``. Going on must refuse
it by name, or end with the bytes of an undisturbed run. Of a finished run, the scores shown must be
the same, or the damage be said.
"""

import io
import json
import random
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from hard.campaign import Asked, Finding, Tally, workspace
from hard.forked import forked
from hard.reading import listening
from hard.tiny import (
    FINISHED,
    REFUSED,
    asked,
    differing,
    go_on,
    of_engine,
    prepare,
    stream,
    unbroken,
)
from polarbear.base.errors import PolarbearError
from polarbear.engine.trainer import Progress, Trainer
from polarbear.launch.runner import run
from polarbear.runs.folder import RunFolder

SETTINGS = asked("er", epochs=2)
DETECTED, HARMLESS = "detected", "harmless"
FINE = (DETECTED, HARMLESS, "passed over by name, same results")
BATCH = 200  # flips to a child
SLOW = 5  # seconds to a flip; a run takes a tenth of one

Judge = Callable[[Path], tuple[str, str]]


@dataclass(frozen=True)
class Target:
    """A file whose bits are flipped, and how the run is then used."""

    name: str
    file: Path
    judge: Judge

    @property
    def bits(self) -> int:
        return 8 * self.file.stat().st_size


def stopped_half_way(folder: Path) -> None:
    """Make a run with two checkpoints, lines behind them, and much still to do."""

    def work() -> int:
        def stop(_: Trainer, progress: Progress) -> None:
            if (progress.task, progress.epoch, progress.step) >= (1, 1, 1):
                raise SystemExit(0)

        run(SETTINGS, folder, stream=stream(), save_every=0.0, on_step=stop)
        return 1

    child = forked(work, folder.with_name("half.log"))
    if child.wait() != 0:
        raise RuntimeError(child.said())


def flip(file: Path, bit: int) -> None:
    content = bytearray(file.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    file.write_bytes(content)


def judge_going_on(whole: dict[str, str], target: str) -> Judge:
    """Judge by whether the run is refused by name, or ends as it would have."""

    def judge(folder: Path) -> tuple[str, str]:
        words = io.StringIO()
        with redirect_stdout(words), listening() as logged:
            try:
                code = go_on(SETTINGS, folder, 1e9)
            except Exception as error:
                return f"raw {type(error).__name__}", traceback.format_exc()
        said = "\n".join([words.getvalue(), *logged])
        named = target in said or str(folder) in said
        if code == REFUSED:
            return (DETECTED, "") if named else ("refused without a name", said)
        if code != FINISHED:
            return "not finished", f"exit {code}: {said}"
        if others := differing(folder, whole):
            return "other results", f"{', '.join(others)}: {said}"
        return ("passed over by name, same results", "") if named else (HARMLESS, "")

    return judge


def judge_showing(folder: Path) -> tuple[str, str]:
    """Judge by whether the scores shown are the same; ``whole`` lies beside the folder."""
    due = str(RunFolder(folder.with_name("whole")).table().scores)
    with listening() as said:
        try:
            shown = str(RunFolder(folder).table().scores)
        except PolarbearError as error:
            return (DETECTED, "") if str(folder) in str(error) else ("unnamed", str(error))
        except Exception as error:
            return f"raw {type(error).__name__}", str(error)
    if shown == due:
        return HARMLESS, ""
    return (DETECTED, "") if any(str(folder) in line for line in said) else ("other scores", shown)


def targets(place: Path) -> list[Target]:
    whole, half = place / "whole", place / "half"
    due = unbroken(of_engine(SETTINGS, 1e9), whole)
    stopped_half_way(half)
    newest = max((half / "checkpoint").glob("*.json"))
    files = {"checkpoint's facts": newest, "manifest": half / "manifest.json",
             "scores of a stopped run": half / "scores.jsonl",
             "epochs of a stopped run": half / "epochs.jsonl"}  # fmt: skip
    going = [Target(n, f, judge_going_on(due, f.name)) for n, f in files.items()]
    return [
        *going,
        Target("scores of a finished run", whole / "scores.jsonl", judge_showing),
        Target("manifest of a finished run", whole / "manifest.json", judge_showing),
    ]


def chosen_bits(target: Target, count: int, chance: random.Random) -> list[int]:
    """All bits, or so many of them drawn."""
    every = list(range(target.bits))
    return every if count >= len(every) else chance.sample(every, count)


def judged(target: Target, bits: list[int], place: Path) -> Iterator[tuple[int, str, str]]:
    """Have the flips judged in children, a few hundred in each; gives bit, outcome and details."""
    results = place / "results"
    while bits:
        results.write_bytes(b"")
        work = partial(_judge_all, target, bits[:BATCH], place, results)
        child = forked(work, place / "words")
        code = child.wait(SLOW * BATCH)
        found = [json.loads(line) for line in results.read_text().splitlines()]
        yield from found
        bits = bits[len(found) :]
        if code != 0:
            yield bits[0], "crash or hang", f"exit {code}: {child.said()[-1500:]}"
            bits = bits[1:]


def _judge_all(target: Target, bits: list[int], place: Path, results: Path) -> int:
    run_folder = next(one for one in target.file.parents if (one / "manifest.json").is_file())
    folder, inside = place / "tried", target.file.relative_to(run_folder)
    with results.open("a") as file:
        for bit in bits:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(run_folder, folder)
            flip(folder / inside, bit)
            file.write(json.dumps([bit, *target.judge(folder)]) + "\n")
            file.flush()
    return 0


def flip_all(target: Target, bits: list[int], place: Path, tally: Tally) -> None:
    for bit, outcome, details in judged(target, bits, place):
        tally.add(f"{target.name}: {outcome if outcome in FINE else 'FINDING'}")
        if outcome not in FINE:
            tally.found(Finding(f"{target.name}: {outcome}", f"bit {bit}: {details}"))
        if tally.over:
            return


def run_all(given: Asked) -> Tally:
    """Flip the bits of each file, all of them where ``count`` allows it."""
    prepare()
    tally, chance = Tally(given), random.Random(given.seed)
    with workspace() as place:
        chosen = [target for target in targets(place) if given.wanted(target.name)]
        for target in chosen:
            bits = chosen_bits(target, given.count // len(chosen), chance)
            flip_all(target, bits, place, tally)
            print(
                f"{target.name}: {len(bits)} of {target.bits} bits, {tally.seconds:.0f} s",
                flush=True,
            )
    return tally


if __name__ == "__main__":
    sys.exit(run_all(Asked.of_command("bits", 1_000_000, __doc__)).say("flipped bits"))
