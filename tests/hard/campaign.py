"""What all campaigns share: their flags, their counts, and what they keep of a finding."""

import argparse
import hashlib
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

KEPT = 3  # of each kind of finding that many examples


@dataclass(frozen=True)
class Asked:
    """How long a campaign goes on, and where it keeps what it finds."""

    count: int
    seconds: float
    seed: int
    out: Path
    only: tuple[str, ...] = ()

    @classmethod
    def of_command(cls, name: str, count: int, about: str | None) -> "Asked":
        parser = argparse.ArgumentParser(f"python -m hard.{name}", description=about)
        parser.add_argument("--count", type=int, default=count)
        parser.add_argument("--seconds", type=float, default=float("inf"), help="end by then")
        parser.add_argument("--seed", type=int, default=0)
        parser.add_argument("--out", type=Path, default=Path("build/hard") / name)
        parser.add_argument("--only", default="", help="kinds with this in their name, by commas")
        given = parser.parse_args()
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # unmount and tidy up first
        only = tuple(word for word in given.only.split(",") if word)
        return cls(given.count, given.seconds, given.seed, given.out, only)

    def wanted(self, name: str) -> bool:
        return not self.only or any(word in name for word in self.only)


@dataclass(frozen=True)
class Finding:
    """Something that must not be: what kind, the details, and the files that show it."""

    kind: str
    details: str
    files: dict[str, bytes] = field(default_factory=dict, repr=False)


@dataclass
class Tally:
    """Counts by outcome and the findings, of which a few of each kind are kept as files."""

    asked: Asked
    outcomes: Counter[str] = field(default_factory=Counter)
    findings: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)
    began: float = field(default_factory=time.monotonic)

    def add(self, outcome: str, times: int = 1) -> None:
        self.outcomes[outcome] += times

    def found(self, finding: Finding) -> None:
        self.findings[finding.kind] += 1
        self.first.setdefault(finding.kind, finding.details)
        if self.findings[finding.kind] <= KEPT:
            self._keep(finding)

    def _keep(self, finding: Finding) -> None:
        key = hashlib.sha256(finding.kind.encode()).hexdigest()[:10]
        folder = self.asked.out / key / str(self.findings[finding.kind])
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        text = f"{finding.kind}\n\n{finding.details}\n"
        (folder / "what.txt").write_text(text, encoding="utf-8", errors="backslashreplace")
        for name, content in finding.files.items():
            (folder / name).write_bytes(content)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    @property
    def over(self) -> bool:
        return self.seconds > self.asked.seconds

    def say(self, title: str) -> int:
        """Print the counts and the findings; gives the exit code."""
        print(f"\n{title}: {sum(self.outcomes.values()):,} in {self.seconds:.0f} s")
        for name, count in sorted(self.outcomes.items()):
            print(f"  {count:8,}  {name}")
        print(f"  {sum(self.findings.values()):8,}  findings of {len(self.findings)} kinds")
        for kind, count in self.findings.most_common():
            details = self.first[kind].encode("ascii", "backslashreplace").decode()
            print(f"\n  {count:8,}  {kind}\n            {details[:300]}")
        if self.findings:
            print(f"\nexamples are in {self.asked.out}")
        return int(bool(self.findings))


@contextmanager
def workspace() -> Iterator[Path]:
    """Give a folder that is gone afterwards, in memory where there is such a place."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(
        prefix="polarbear-hard-", dir=memory if memory.is_dir() else None
    ) as folder:
        yield Path(folder)
