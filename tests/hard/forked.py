"""Children of a process that has imported everything: a start costs milliseconds, not seconds.

PyTorch's autograd cannot be used in a child once its parent has used it: the parent never trains.
"""

import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

SLOW = 120.0  # seconds; a tiny run takes 0.2


@dataclass(frozen=True)
class Child:
    """A forked process and the file its words go to."""

    pid: int
    output: Path

    def kill(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)

    def ended(self) -> int | None:
        """Give the exit code, negative for a signal, or None while it goes on."""
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        return os.waitstatus_to_exitcode(status) if pid else None

    def wait(self, seconds: float = SLOW) -> int | None:
        """Wait for its end; one that takes longer is killed and gives None."""
        descriptor = os.pidfd_open(self.pid)
        try:
            if not select.select([descriptor], [], [], max(0.0, seconds))[0]:
                self.kill()
                os.waitpid(self.pid, 0)
                return None
        finally:
            os.close(descriptor)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])

    def said(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")


def forked(work: Callable[[], int], output: Path) -> Child:
    """Do some work in a child; what it gives is the exit code, 70 if it raises."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return Child(pid, output)
    code = 70
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        words = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        for stream in (1, 2):
            os.dup2(words, stream)
        code = work()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
