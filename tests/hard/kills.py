"""Runs that are killed and go on: nothing may be lost, and nothing different in the end.

    python -m hard.kills --count 2000 --seed 1

Real processes get real signals: SIGKILL at random moments, before each operation on files, and in
the middle of a write; SIGTERM, SIGINT and SIGHUP alone and twice within microseconds.
"""

import itertools
import os
import random
import re
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hard.campaign import Asked, Finding, Tally, workspace
from hard.forked import Child, forked
from hard.tiny import (
    FINISHED,
    METHODS,
    UNFINISHED,
    Work,
    asked,
    differing,
    of_engine,
    own_loop,
    prepare,
    snapshot,
    unbroken,
)

Way = Callable[[Path], Child]

KILLED, TORN = -signal.SIGKILL, -signal.SIGXFSZ

#: What the interpreter tells of before it happens, and what it does not tell and is wrapped.
OPERATIONS = frozenset(
    ("os.rename", "os.remove", "os.truncate", "os.mkdir", "os.rmdir", "os.link", "os.symlink",
     "fcntl.flock", "os.utime", "os.chmod")
)  # fmt: skip
UNTOLD = ("fsync", "fdatasync", "ftruncate")
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


@dataclass(frozen=True)
class Subject:
    """Something that is killed and goes on, and what it leaves when nobody disturbs it."""

    name: str
    work: Work
    whole: dict[str, str]
    seconds: float
    operations: int


def die_before(number: int) -> Callable[[], int]:
    """End this process at its ``number``-th operation on files; gives how many there were."""
    seen = 0

    def count() -> None:
        nonlocal seen
        seen += 1
        if seen == number:
            os.kill(os.getpid(), signal.SIGKILL)

    def hear(event: str, args: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(args[2], int) and args[2] & WRITING
        if writes or event in OPERATIONS:
            count()

    def wrapped(call: Callable[..., Any]) -> Callable[..., Any]:
        def inner(*given: Any) -> Any:
            count()
            return call(*given)

        return inner

    sys.dont_write_bytecode = True
    for name in UNTOLD:
        setattr(os, name, wrapped(getattr(os, name)))
    sys.addaudithook(hear)
    return lambda: seen


# Ways to end a process: each gives a child that may be dead already.


def before_operation(work: Work, folder: Path, number: int) -> Child:
    def killed() -> int:
        die_before(number)
        return work(folder)

    return forked(killed, _log(folder))


def at_moment(work: Work, folder: Path, seconds: float) -> Child:
    child = forked(lambda: work(folder), _log(folder))
    time.sleep(seconds)
    child.kill()
    return child


def within_write(work: Work, folder: Path, size: int) -> Child:
    """Let no file grow above a size: the write that would is done in part, the next one kills."""

    def limited() -> int:
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        log = os.open(os.devnull, os.O_WRONLY)  # the log must not be the file that grows
        os.dup2(log, 1)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        return work(folder)

    return forked(limited, _log(folder))


def _log(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.log")


def subjects(place: Path, wanted: Callable[[str], bool]) -> list[Subject]:
    """Each method of the engine, with a checkpoint a step or a task, and a loop of one's own."""
    works = {
        f"{method}: a checkpoint a {often}": of_engine(asked(method), seconds)
        for method in METHODS
        for often, seconds in (("step", 0.0), ("task", 1e9))
    }
    works["own loop"] = own_loop
    found = []
    for i, (name, work) in enumerate(works.items()):
        if wanted(name):
            folder = place / f"whole-{i}"
            began = time.monotonic()
            whole = unbroken(work, folder)
            took = time.monotonic() - began
            found.append(Subject(name, work, whole, took, _operations(work, place / f"count-{i}")))
    return found


def _operations(work: Work, folder: Path) -> int:
    """Count the operations of an undisturbed run: its last words."""

    def counted() -> int:
        count = die_before(0)
        code = work(folder)
        print(f"\n{count()}")
        return code

    child = forked(counted, _log(folder))
    if child.wait() != FINISHED:
        raise RuntimeError(child.said())
    return int(child.said().split()[-1])


def plans(subject: Subject, chance: random.Random) -> Iterator[list[Way]]:
    """Give for one run after another how it is killed: before each operation, and at random."""
    for number in itertools.count(1):
        if number <= subject.operations:
            yield [partial(before_operation, subject.work, number=number)]
        yield [_any_way(subject, chance) for _ in range(chance.randint(1, 6))]


def _any_way(subject: Subject, chance: random.Random) -> Way:
    how = chance.random()
    if how < 0.5:
        return partial(before_operation, subject.work, number=chance.randint(1, subject.operations))
    if how < 0.85:
        return partial(at_moment, subject.work, seconds=chance.uniform(0, subject.seconds))
    size = chance.choice((chance.randint(0, 3000), chance.randint(0, 30_000)))
    return partial(within_write, subject.work, size=size)


def broken(subject: Subject, ways: list[Way], folder: Path, tally: Tally) -> None:
    """Kill a run in these ways, one after the other, let it go on, and look at what it left."""
    history = []
    for way in ways:
        code = way(folder).wait()
        history.append(code)
        if code in (KILLED, TORN):
            tally.add("kills" if code == KILLED else "kills within a write")
        elif code == FINISHED:
            break
        else:
            _found(tally, "lost", subject, folder, f"after {history}: {_log(folder).read_text()}")
            return
    _finish(subject, folder, tally, f"after {history}")


def _finish(subject: Subject, folder: Path, tally: Tally, told: str) -> None:
    child = forked(lambda: subject.work(folder), _log(folder))
    code = child.wait()
    if code != FINISHED:
        kind = "hangs" if code is None else "lost"
        _found(tally, kind, subject, folder, f"{told}, then {code}: {child.said()}")
    elif others := differing(folder, subject.whole):
        _found(tally, "different", subject, folder, f"{told}: {', '.join(others)}")
    else:
        tally.add("runs whole in the end")


def _found(tally: Tally, kind: str, subject: Subject, folder: Path, details: str) -> None:
    tally.add(kind)
    last = details.strip().splitlines()[-1] if kind == "lost" else details.partition(": ")[2]
    # One kind is one cause: without names and numbers, which change from run to run.
    cause = re.sub(r"\d+", "N", last.replace(str(folder), "RUN"))[:160]
    who = "own loop" if subject.name == "own loop" else "engine"
    tally.found(Finding(f"{who}: {kind}: {cause}", f"{subject.name} {details}", snapshot(folder)))


# Signals that ask a run to stop.

STOPS = {
    "SIGTERM": (signal.SIGTERM,),
    "SIGHUP": (signal.SIGHUP,),
    "SIGINT": (signal.SIGINT,),
    "SIGTERM twice": (signal.SIGTERM, signal.SIGTERM),
    "SIGTERM, then SIGINT": (signal.SIGTERM, signal.SIGINT),
    "SIGHUP, then SIGTERM": (signal.SIGHUP, signal.SIGTERM),
    "SIGINT twice": (signal.SIGINT, signal.SIGINT),
}
PATIENCE = 60.0  # seconds to a process that was asked to stop; a step takes a millisecond
MAY_RAISE = frozenset((130, -signal.SIGINT))  # of a second Ctrl-C, which does not wait for a step


def stopped(subject: Subject, folder: Path, chance: random.Random, tally: Tally) -> None:
    """Ask a run to stop, once or twice 1 to 200 µs apart; it ends soon, and can go on."""
    name = chance.choice(list(STOPS))
    child = forked(lambda: _as_command(subject.work, folder), _log(folder))
    _wait_for_steps(folder, child)
    time.sleep(chance.uniform(0, subject.seconds / 3))
    for i, number in enumerate(STOPS[name]):
        if i:
            _pause(chance.uniform(1e-6, 2e-4))
        child.kill(number)
    code = child.wait(PATIENCE)
    ours = {FINISHED, UNFINISHED} | (MAY_RAISE if STOPS[name].count(signal.SIGINT) else set())
    if (folder / "finished.json").exists():
        ours |= {-number for number in STOPS[name]}  # it came too late, for any process
    tally.add(f"asked to stop by {name}")
    if code is None:
        _found(tally, "hangs", subject, folder, f"after {name}: {PATIENCE:.0f} s without an end")
        return
    if code not in ours or "Traceback" in child.said():
        words = child.said().strip().splitlines()[-1:]
        _found(tally, "ends badly", subject, folder, f"after {name}: exit {code}, {words}")
    _finish(subject, folder, tally, f"after {name}")


def _as_command(work: Work, folder: Path) -> int:
    """Do as the command line does with a second Ctrl-C: one line, and exit code 130."""
    try:
        return work(folder)
    except KeyboardInterrupt:
        return 130


def _wait_for_steps(folder: Path, child: Child) -> None:
    """Wait until the run is under way: before that a signal ends it as it ends any program."""
    for _ in range(6000):
        if (folder / "lock").exists() and (folder / "epochs.jsonl").exists():
            return
        time.sleep(0.002)
    raise RuntimeError(f"the run never began: {child.said()}")


def _pause(seconds: float) -> None:
    """Wait microseconds, which sleeping cannot."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def run(asked_for: Asked) -> Tally:
    """Kill until there are enough kills; every fifth run is asked to stop instead."""
    prepare()
    tally, chance = Tally(asked_for), random.Random(asked_for.seed)
    with workspace() as place:
        chosen = subjects(place, asked_for.wanted)
        ways = {subject.name: plans(subject, chance) for subject in chosen}
        number = 0
        while not tally.over and _kills(tally) < asked_for.count:
            subject, folder = chosen[number % len(chosen)], place / f"run-{number}"
            if number // len(chosen) % 5 == 4 and subject.name != "own loop":
                stopped(subject, folder, chance, tally)
            else:
                broken(subject, next(ways[subject.name]), folder, tally)
            shutil.rmtree(folder, ignore_errors=True)
            number += 1
            if number % 100 == 0:
                print(f"{_kills(tally)} kills, {tally.seconds:.0f} s", flush=True)
    return tally


def _kills(tally: Tally) -> int:
    return tally.outcomes["kills"] + tally.outcomes["kills within a write"]


if __name__ == "__main__":
    sys.exit(run(Asked.of_command("kills", 2000, __doc__)).say("kills"))
