"""Several processes that do the same at the same moment."""

import subprocess
import sys
from typing import NamedTuple


class Ended(NamedTuple):
    code: int
    error: str


READY = "import sys; sys.stdout.write('.'); sys.stdout.flush(); sys.stdin.read()\n"


def at_once(count: int, before: str, code: str, *words: object) -> list[Ended]:
    """Run ``before`` in several processes, and ``code`` in all of them once all are ready."""
    command = [sys.executable, "-c", before + READY + code, *map(str, words)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    several = [subprocess.Popen(command, text=True, **pipes) for _ in range(count)]
    for process in several:
        assert process.stdout.read(1) == "."
    for process in several:
        process.stdin.close()
        process.stdin = None
    errors = [process.communicate()[1] for process in several]
    return [Ended(p.returncode, e) for p, e in zip(several, errors, strict=True)]
