"""What a disk holds at any instant of a run: it must be possible to go on from there.

    python -m hard.power_cuts --count 500 --seed 1        (as root, on Linux)

A run trains on a file system of its own, in a loop device. Its image lies on an XFS that can copy
a file at once (reflinks), so that at random instants the disk is copied as it is then: what the
file system has not written by that instant is not there, as after a power cut. Each copy is
mounted, which replays its journal, and the run in it goes on: to the bytes of an undisturbed run.
A run that had ended well before the cut must be whole at once, and no checkpoint that was complete
may be gone. The model keeps the order of writes: a disk that loses its own cache is not part of it.
"""

import fcntl
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from hard.campaign import Asked, Finding, Tally, workspace
from hard.forked import forked
from hard.tiny import (
    FINISHED,
    Work,
    asked,
    differing,
    of_engine,
    own_loop,
    prepare,
    snapshot,
    unbroken,
)

FICLONE = 0x40049409
SIZE = 320 << 20  # bytes; XFS takes no less than 300 MB
MAKE = {
    "ext4": ("mkfs.ext4", "-q"),
    "xfs": ("mkfs.xfs", "-q"),
    "btrfs": ("mkfs.btrfs", "-q"),
}
#: How the file systems are mounted: as usual, and writing all they have every second.
OPTIONS = {"ext4": ("", "commit=1"), "xfs": ("",), "btrfs": ("", "commit=1")}
RUNS, CUTS = 3, 7  # runs to a disk, and cuts to a run


def unable() -> str | None:
    """Say why disks cannot be cut here, or give None."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "loop devices are mounted by root on Linux"
    if not Path("/dev/loop-control").exists():
        return "there are no loop devices"
    missing = [tool for tool in ("mkfs.xfs", "mount", "umount") if shutil.which(tool) is None]
    if missing:
        return f"{', '.join(missing)} is not installed"
    with workspace() as place:
        try:
            with disks(place):
                return None
        except subprocess.CalledProcessError as error:
            return f"no XFS with reflinks can be mounted here: {error.stderr.decode()[-200:]}"


def kinds() -> list[str]:
    """Name the file systems that can be made and mounted here."""
    known = Path("/proc/filesystems").read_text().split()
    return [kind for kind, make in MAKE.items() if kind in known and shutil.which(make[0])]


def command(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, capture_output=True)


def made(kind: str, image: Path, size: int = SIZE) -> Path:
    with image.open("wb") as file:
        file.truncate(size)
    command(*MAKE[kind], image)
    return image


@contextmanager
def mounted(image: Path, place: Path, options: str = "") -> Iterator[Path]:
    """Mount an image; whatever happens, it is not mounted afterwards."""
    place.mkdir(exist_ok=True)
    command("mount", "-o", ",".join(filter(None, ("loop", options))), image, place)
    try:
        yield place
    finally:
        for _ in range(50):
            if subprocess.run(["umount", place], capture_output=True).returncode == 0:
                break
            time.sleep(0.1)  # a killed child may take a while to let go
        else:
            command("umount", "--lazy", place)


@contextmanager
def disks(place: Path) -> Iterator[Path]:
    """Give a folder in which a file of any size is copied at once."""
    image = made("xfs", place / "outer.img", 4 << 30)
    with mounted(image, place / "outer") as folder:
        probe = folder / "probe"
        probe.write_bytes(b"x" * 4096)
        copy_at_once(probe, folder / "copy")
        yield folder


def copy_at_once(source: Path, target: Path) -> None:
    with source.open("rb") as old, target.open("wb") as new:
        fcntl.ioctl(new.fileno(), FICLONE, old.fileno())


@dataclass(frozen=True)
class Subject:
    """A run that is cut, and what it leaves when nobody disturbs it."""

    name: str
    work: Work
    whole: dict[str, str]


@dataclass(frozen=True)
class Cut:
    """A copy of the disk at an instant, and what was known just before it."""

    image: Path
    subject: Subject
    folder: str
    ended: bool
    newest: int
    finished: tuple[tuple[str, Subject], ...]


def cuts_of_run(
    subject: Subject,
    folder: Path,
    image: Path,
    before: tuple[tuple[str, Subject], ...],
    chance: random.Random,
) -> Iterator[Cut]:
    """Run, and copy the disk at random instants until shortly after the end."""
    child = forked(lambda: subject.work(folder), image.parent / "log")
    instants = sorted(chance.expovariate(3) for _ in range(CUTS - 1))
    began, code = time.monotonic(), None
    for i, instant in enumerate(instants):
        time.sleep(max(0.0, began + instant - time.monotonic()))
        code = child.ended() if code is None else code
        yield _cut(subject, folder, image, i, code == FINISHED, before)
        if code is not None:
            break
    code = child.wait() if code is None else code
    if code != FINISHED:
        raise RuntimeError(f"a run that nobody disturbs ended with {code}: {child.said()}")
    yield _cut(subject, folder, image, CUTS, True, before)


def _cut(
    subject: Subject,
    folder: Path,
    image: Path,
    number: int,
    ended: bool,
    before: tuple[tuple[str, Subject], ...],
) -> Cut:
    newest = newest_checkpoint(folder)
    copy = image.with_name(f"{folder.name}-{number}.img")
    copy_at_once(image, copy)
    return Cut(copy, subject, folder.name, ended, newest, before)


def newest_checkpoint(folder: Path) -> int:
    return max((int(file.stem) for file in (folder / "checkpoint").glob("[0-9]*.json")), default=0)


def judged(cut: Cut, place: Path, tally: Tally, kind: str) -> None:
    """Mount a cut disk and look at every run in it."""
    options = "nouuid" if kind == "xfs" else ""
    with mounted(cut.image, place / "cut", options) as disk:
        for name, subject in cut.finished:
            _judge_ended(subject, disk / name, tally, kind)
        if cut.ended:
            _judge_ended(cut.subject, disk / cut.folder, tally, kind)
        else:
            _judge_begun(cut, disk / cut.folder, place / "tried", tally, kind)
    tally.add(f"{kind}: power cuts")


def _judge_ended(subject: Subject, folder: Path, tally: Tally, kind: str) -> None:
    """Of a run that said it had ended, all must be there."""
    if others := differing(folder, subject.whole):
        what = "lost" if not folder.exists() else "different"
        _found(tally, kind, f"{what} after exit 0", subject, folder, ", ".join(others))
    else:
        tally.add(f"{kind}: whole after exit 0")


def _judge_begun(cut: Cut, folder: Path, tried: Path, tally: Tally, kind: str) -> None:
    """A run under way goes on, in a copy, from the last complete checkpoint or the one before."""
    subject = cut.subject
    shutil.rmtree(tried, ignore_errors=True)
    if folder.exists():
        shutil.copytree(folder, tried)
    if (folder / "finished.json").exists():
        if others := differing(folder, subject.whole):
            _found(tally, kind, "finished, but not whole", subject, folder, ", ".join(others))
        else:
            tally.add(f"{kind}: finished and whole")
        return
    # The newest name may not be on the disk yet; the one before it must be.
    if newest_checkpoint(folder) < cut.newest - 1:
        there = f"{newest_checkpoint(folder)} of {cut.newest}"
        _found(tally, kind, "checkpoints lost", subject, folder, f"the newest is {there}")
        return
    begun = (tried / "manifest.json").exists()
    child = forked(lambda: subject.work(tried), tried.with_name("log"))
    code = child.wait()
    if code != FINISHED:
        _found(tally, kind, "lost", subject, folder, f"{code}: {child.said()[-1500:]}")
    elif others := differing(tried, subject.whole):
        _found(tally, kind, "different", subject, folder, ", ".join(others))
    else:
        tally.add(f"{kind}: {'went on' if begun else 'begun anew'} to the same bytes")


def _found(
    tally: Tally, kind: str, what: str, subject: Subject, folder: Path, details: str
) -> None:
    tally.add(f"{kind}: FINDING {what}")
    files = snapshot(folder) if folder.exists() else {}
    tally.found(Finding(f"{kind}: {subject.name}: {what}", details, files))


def subjects(place: Path) -> list[Subject]:
    works = {
        "engine, a checkpoint a step": of_engine(asked("er", epochs=2), 0.0),
        "engine, a checkpoint a task": of_engine(asked("er", tasks=3), 1e9),
        "own loop": own_loop,
    }
    return [
        Subject(name, work, unbroken(work, place / f"whole-{i}"))
        for i, (name, work) in enumerate(works.items())
    ]


def run(given: Asked) -> Tally:
    """Cut one disk after the other, of each file system in turn, until there are enough cuts."""
    prepare()
    tally, chance = Tally(given), random.Random(given.seed)
    with ExitStack() as stack:
        place = stack.enter_context(workspace())
        chosen = subjects(place)
        folder = stack.enter_context(disks(place))
        systems = [kind for kind in kinds() if given.wanted(kind)]
        number = 0
        while not tally.over and _cuts(tally) < given.count:
            one_disk(systems[number % len(systems)], chosen, folder, place, chance, tally)
            number += 1
            print(f"{_cuts(tally)} power cuts, {tally.seconds:.0f} s", flush=True)
    return tally


def one_disk(
    kind: str,
    chosen: list[Subject],
    folder: Path,
    place: Path,
    chance: random.Random,
    tally: Tally,
) -> None:
    """Train some runs on a fresh disk, cutting it now and then; then look at every cut."""
    image = made(kind, folder / "disk.img")
    cuts: list[Cut] = []
    before: tuple[tuple[str, Subject], ...] = ()
    with mounted(image, place / "disk", chance.choice(OPTIONS[kind])) as disk:
        for i in range(RUNS):
            subject = chance.choice(chosen)
            cuts += cuts_of_run(subject, disk / f"run-{i}", image, before, chance)
            before = (*before, (f"run-{i}", subject))
    for cut in cuts:
        # Not beside the disk it was copied from: btrfs takes two of one identity for one.
        if not tally.over and _cuts(tally) < tally.asked.count:
            judged(cut, place, tally, kind)
        cut.image.unlink()


def _cuts(tally: Tally) -> int:
    return sum(count for name, count in tally.outcomes.items() if name.endswith("power cuts"))


def main() -> int:
    if reason := unable():
        print(f"power cuts: left out, {reason}")
        return 0
    return run(Asked.of_command("power_cuts", 500, __doc__)).say("power cuts")


if __name__ == "__main__":
    sys.exit(main())
