"""Mutated files of every format that is read: a right answer, or an error of ours that names it.

    python -m hard.fuzz --count 100000 --seed 1

Each file is read in a child with a limit on memory and on time; whatever else comes out than a
right answer or a ``PolarbearError`` with the file's name is a finding, kept with its bytes.
"""

import faulthandler
import json
import os
import pickle
import random
import resource
import select
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hard.campaign import Asked, Finding, Tally, workspace
from hard.forked import forked
from hard.formats import FORMATS
from hard.mutations import mutated
from hard.reading import Format, Reading, TookOthersError
from hard.tiny import prepare
from polarbear.base.errors import PolarbearError

BATCH = 400  # files to a child
SLOW = 10  # seconds to a file; they take milliseconds
ROOM = 2 << 30  # bytes of address space beyond what a child begins with
LARGE = 1 << 30  # bytes of memory that no small file needs

#: Refusals that are right though they take others along or name no file: what came is valid, but
#: does not fit what was asked for.
FAIR = ("different benchmarks", "would both be", "no table for", "has no order")


@dataclass(frozen=True)
class Case:
    """One mutated file of a format: its number and seed say all of it."""

    number: int
    seed: int

    def mutated(self, bench: "Bench") -> tuple[str, bytes | None]:
        chance = random.Random(f"{self.seed}/{bench.format.name}/{self.number}")
        return mutated(bench.kind, bench.valid, chance)


@dataclass(frozen=True)
class Bench:
    """A format's files, made once, and what its reader gives of them."""

    format: Format
    base: Path
    file: Path
    valid: bytes
    expected: Reading

    @classmethod
    def of(cls, one: Format, base: Path) -> "Bench":
        made = base.parent / one.make.__name__
        if not made.exists():
            one.make(made)
        shutil.copytree(made, base)
        file = max(base.glob(one.file))
        (base / "hostile_module.py").write_text("import builtins\nbuiltins.hostile = True\n")
        return cls(one, base, file, file.read_bytes(), _expected(one, base))

    @property
    def kind(self) -> str:
        """How it is mutated; arrays of one kind may be in either file."""
        return {".npy": "npy", ".npz": "npz"}.get(self.file.suffix, self.format.kind)

    def put(self, content: bytes | None) -> None:
        if self.file.is_dir():
            self.file.rmdir()
        if content is None:
            self.file.unlink(missing_ok=True)
            self.file.mkdir()
        else:
            self.file.write_bytes(content)

    @property
    def names(self) -> tuple[str, ...]:
        """What a message may call the file; a run's may be called by its folder."""
        home = self.base / "runs" / "bad"
        folder = [str(home)] if home in self.file.parents else []
        return (self.file.name, *self.format.called, *folder)


def _expected(one: Format, base: Path) -> Reading:
    """What the reader gives of the valid file; read in a child, as the mutated ones are."""

    def read() -> int:
        os.chdir(base)
        (base / "expected").write_bytes(pickle.dumps(one.read(base)))
        return 0

    child = forked(read, base / "expected.log")
    if child.wait() != 0:
        raise RuntimeError(f"{one.name}: the valid file cannot be read: {child.said()}")
    found: Reading = pickle.loads((base / "expected").read_bytes())
    return found


def judged(bench: Bench) -> tuple[str, str]:
    """Read the file as it is now; gives the outcome, and for a finding what is wrong."""
    if hasattr(sys.modules["builtins"], "hostile"):
        del sys.modules["builtins"].hostile  # type: ignore[attr-defined]
    sys.modules.pop("hostile_module", None)
    try:
        outcome = _weighed(bench, bench.format.read(bench.base))
    except PolarbearError as error:
        outcome = _refusal(bench, error)
    except TookOthersError as error:
        outcome = "FINDING takes others along", str(error)
    except (Exception, RecursionError) as error:
        outcome = _raw(error)
    if hasattr(sys.modules["builtins"], "hostile") and not bench.format.may_import:
        return "FINDING runs code that a file names", outcome[1]
    if _OUTSIDE:
        return "FINDING writes elsewhere", str(_OUTSIDE.pop())
    return outcome


def _weighed(bench: Bench, found: Reading) -> tuple[str, str]:
    if found == bench.expected:
        return "read the same", ""
    new = [line for line in found.said if line not in bench.expected.said]
    if new and not bench.format.unnamed and not _named(bench, " ".join(new)):
        return "FINDING said without the file's name", " | ".join(new)
    if new:
        return "left out or passed over, by name", ""
    if bench.format.exact:
        return "FINDING other content in silence", f"{found.content}"[:2000]
    if not bench.format.valid(found.content):
        return "FINDING impossible content in silence", f"{found.content}"[:2000]
    return "read as other, valid content", ""


def _refusal(bench: Bench, error: PolarbearError) -> tuple[str, str]:
    where = f"{type(error).__name__} at {_innermost(error)}: {error}"
    fair = any(words in str(error) for words in FAIR)
    if not bench.format.unnamed and not fair and not _named(bench, str(error)):
        return "FINDING refused without the file's name", where
    if bench.format.among and not fair:
        return "FINDING takes others along", where
    return "refused by name", ""


def _raw(error: BaseException) -> tuple[str, str]:
    kind = "bare OSError" if isinstance(error, OSError) else "raw exception"
    if isinstance(error, MemoryError):
        kind = "large: MemoryError"
    return f"FINDING {kind}", f"{type(error).__name__} at {_innermost(error)}: {str(error)[:500]}"


def _named(bench: Bench, message: str) -> bool:
    return any(name in message for name in bench.names)


def _innermost(error: BaseException) -> str:
    """The last line of polarbear's own on the way to an error."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/polarbear/" in f.filename]
    if not frames:
        return "?"
    last = frames[-1]
    return f"{last.filename.rpartition('/polarbear/')[2]}:{last.lineno} {last.name}"


# A child: limits, an ear at the interpreter's door, one file after the other.

_OUTSIDE: list[str] = []
_ALLOWED: list[str] = ["/dev/null", "/proc/"]
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def _hear(event: str, args: tuple[Any, ...]) -> None:
    if event != "open" or not isinstance(args[0], (str, bytes)) or not (args[2] or 0) & _WRITING:
        return
    path = str(Path(os.fsdecode(args[0])).absolute())
    if ".." in Path(path).parts or not path.startswith(tuple(_ALLOWED)):
        _OUTSIDE.append(path)


def _child(bench: Bench, cases: list[Case], report: int, stack: int) -> None:
    os.chdir(bench.base)
    sys.path.insert(0, str(bench.base))
    _ALLOWED.append(f"{bench.base}/")
    sys.addaudithook(_hear)
    warnings.simplefilter("ignore")
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    for case in cases:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        how, content = case.mutated(bench)
        bench.put(content)
        made = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        _tell(report, {"begun": case.number, "how": how})
        resource.setrlimit(resource.RLIMIT_AS, (size + ROOM, resource.RLIM_INFINITY))
        faulthandler.dump_traceback_later(SLOW, exit=True, file=stack)
        outcome, details = judged(bench)
        faulthandler.cancel_dump_traceback_later()
        resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - made) * 1024
        if grown > LARGE:
            outcome, details = "FINDING large", f"{grown >> 20} MiB; {outcome}: {details}"
        _tell(report, {"ended": case.number, "how": how, "outcome": outcome, "details": details})
        if made - before > 200_000 or grown > LARGE:
            return  # a fresh child sees growth again; the parent sends the rest to one


def _tell(report: int, message: dict[str, Any]) -> None:
    content = json.dumps(message).encode("ascii") + b"\n"
    while content:
        content = content[os.write(report, content) :]


@dataclass
class Batch:
    """A child at work on a batch, as its parent sees it."""

    bench: Bench
    cases: list[Case]
    done: int = 0
    how: str = "?"

    def run(self, note: Callable[[Case, str, str, str], None]) -> None:
        """Have the cases judged; whichever ends the child is judged by how it ended."""
        while self.done < len(self.cases):
            code, stack = self._child(note)
            if code != 0 and self.done < len(self.cases):
                case = self.cases[self.done]
                kind, details = _death(code, stack)
                note(case, self.how, f"FINDING {kind}", details)
                self.done += 1

    def _child(self, note: Callable[[Case, str, str, str], None]) -> tuple[int, str]:
        reading, writing = os.pipe()
        with tempfile.TemporaryFile() as stack:
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    quiet = os.open(os.devnull, os.O_WRONLY)
                    os.dup2(quiet, 1)
                    os.dup2(stack.fileno(), 2)
                    _child(self.bench, self.cases[self.done :], writing, stack.fileno())
                    code = 0
                except BaseException:
                    traceback.print_exc()
                    sys.stderr.flush()
                finally:
                    os._exit(code)
            os.close(writing)
            self._listen(reading, pid, note)
            status = os.waitpid(pid, 0)[1]
            stack.seek(0)
            return os.waitstatus_to_exitcode(status), stack.read().decode(errors="replace")

    def _listen(self, reading: int, pid: int, note: Callable[[Case, str, str, str], None]) -> None:
        rest = b""
        with os.fdopen(reading, "rb", buffering=0) as pipe:
            while True:
                if not select.select([pipe], [], [], 3 * SLOW)[0]:
                    os.kill(pid, signal.SIGKILL)
                    return
                part = pipe.read(1 << 16)
                if not part:
                    return
                *lines, rest = (rest + part).split(b"\n")
                for line in map(json.loads, lines):
                    self.how = line["how"]
                    if "ended" in line:
                        note(self.cases[self.done], self.how, line["outcome"], line["details"])
                        self.done += 1


def _death(code: int, stack: str) -> tuple[str, str]:
    if "Timeout" in stack:
        lines = [line.strip() for line in stack.splitlines() if "/polarbear/" in line]
        return "slow", f"{SLOW} s at {lines[0] if lines else stack[-500:]}"
    if code == -signal.SIGKILL:
        return "slow", f"no answer in {3 * SLOW} s, not even to the watchdog"
    return f"crash ({code})", stack[-1500:]


def run(asked: Asked) -> Tally:
    """Go through the formats, each with its share of the files."""
    prepare()
    tally = Tally(asked)
    chosen = [one for one in FORMATS if asked.wanted(one.name)]
    weights = left = sum(one.weight for one in chosen)
    with workspace() as place:
        for i, one in enumerate(chosen):
            bench = Bench.of(one, place / f"format-{i}")
            share = max(1, round(asked.count * one.weight / weights))
            seconds = (asked.seconds - tally.seconds) * one.weight / left
            left -= one.weight
            _fuzz(bench, share, tally, tally.seconds + seconds)
            shutil.rmtree(bench.base, ignore_errors=True)
    return tally


def _fuzz(bench: Bench, count: int, tally: Tally, until: float) -> None:
    def note(case: Case, how: str, outcome: str, details: str) -> None:
        if not outcome.startswith("FINDING"):
            tally.add(outcome)
            return
        tally.add("findings")
        content = case.mutated(bench)[1]
        # One kind is one cause: what went wrong, where, without the words that change.
        where = details.partition(": ")[0] if " at " in details.partition(": ")[0] else ""
        kind = f"{bench.format.name}: {outcome.removeprefix('FINDING ')} {where}".strip()
        about = f"{details}\n\nmutation {how}, case {case.number} of seed {case.seed}"
        tally.found(Finding(kind, about, {bench.file.name: content} if content else {}))

    began = tally.seconds
    for first in range(0, count, BATCH):
        if tally.seconds > until:
            break
        numbers = range(first, min(first + BATCH, count))
        Batch(bench, [Case(n, tally.asked.seed) for n in numbers]).run(note)
    took = tally.seconds - began
    print(f"{bench.format.name}: {count} files, {took:.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(run(Asked.of_command("fuzz", 100_000, __doc__)).say("mutated files"))
