"""Ctrl-C in the program ``polarbear``: one line and an exit code, at any moment, no traceback.

A KeyboardInterrupt can come out anywhere: in an import, in a destructor, while Python ends. The
program has nothing to lose that a kill would not lose, so that it may end at once.
"""

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path

STOPPED = 130  # as shells have it for a program that Ctrl-C ended


def leave_on_ctrl_c() -> None:
    """Let Ctrl-C end this process, if it is the program's own or one of its workers."""
    started_as_module = sys.orig_argv[1:3] == ["-m", "polarbear"]
    script = Path(sys.argv[0]) if sys.argv else Path()
    is_program = script.name == "polarbear" or script.parts[-2:] == ("polarbear", "__main__.py")
    # Where nobody has set it: a shell's background job ignores Ctrl-C.
    if (started_as_module or is_program) and _on_ctrl_c() is signal.default_int_handler:
        signal.signal(signal.SIGINT, _leave)


def unwind_on_ctrl_c() -> None:
    """Let the first Ctrl-C tidy up before the program ends; the next one ends it at once."""
    if _on_ctrl_c() is _leave:
        signal.signal(signal.SIGINT, _unwind)


def keep_exit_code() -> None:
    """Ignore Ctrl-C while Python ends: it would bring back the default, which kills the process."""
    if _on_ctrl_c() in (_leave, _unwind):
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def _on_ctrl_c() -> object:
    return signal.getsignal(signal.SIGINT)


def _leave(*_: object) -> None:
    processes = sys.modules.get("multiprocessing.process")
    is_worker = processes is not None and processes.parent_process() is not None
    if not is_worker:  # its program says it
        with suppress(OSError):  # closed, or a terminal that is gone
            # A progress display has hidden the cursor and stands at its line.
            os.write(2, b"\n\x1b[?25h" * os.isatty(2) + b"polarbear: stopped\n")
    os._exit(STOPPED)


def _unwind(*_: object) -> None:
    signal.signal(signal.SIGINT, _leave)
    sys.unraisablehook = lambda _: None  # an interrupted destructor is nobody's concern
    raise KeyboardInterrupt
