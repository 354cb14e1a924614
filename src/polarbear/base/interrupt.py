"""Wishes to stop in the program ``polarbear``: one line and an exit code, at any moment.

A KeyboardInterrupt can come out anywhere: in an import, in a destructor, while Python ends. The
program has nothing to lose that a kill would not lose, so that it may end at once. While a run
trains, the same signals are answered with a checkpoint (``launch.stop``).
"""

import os
import signal
import sys
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

STOPPED = 130  # as shells have it for a program that Ctrl-C ended

#: What schedulers send before they kill, and what a terminal sends that is gone; fewer on Windows.
TERM, HUP, USR = (
    tuple(getattr(signal, name) for name in names if hasattr(signal, name))
    for names in (("SIGTERM",), ("SIGHUP",), ("SIGUSR1", "SIGUSR2"))
)

TRAINING = ("run", "resume")


def leave_when_asked() -> None:
    """Let Ctrl-C end this process, if it is the program's own or one of its workers.

    One that is to train ends by a scheduler's signals too, with the code of a run that can go on.
    """
    started_as_module = ("-m", "polarbear") in pairwise(sys.orig_argv)
    script = Path(sys.argv[0]) if sys.argv else Path()
    is_program = script.name == "polarbear" or script.parts[-2:] == ("polarbear", "__main__.py")
    if not (started_as_module or is_program):
        return
    # Where nobody has set it: a shell's background job ignores Ctrl-C, and nohup has SIGHUP so.
    if _on_ctrl_c() is signal.default_int_handler:
        signal.signal(signal.SIGINT, leave)
    if sys.argv[1:2] and sys.argv[1] in TRAINING:
        for number in (*TERM, *HUP, *USR):
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, leave)


def unwind_on_ctrl_c() -> None:
    """Let the first Ctrl-C tidy up before the program ends; the next one ends it at once."""
    if _on_ctrl_c() is leave:
        signal.signal(signal.SIGINT, _unwind)


def keep_exit_code() -> None:
    """Ignore all this while Python ends: it would bring back the default, a kill."""
    for number in (signal.SIGINT, *TERM, *HUP, *USR):
        if signal.getsignal(number) in (leave, _unwind):
            signal.signal(number, signal.SIG_IGN)


def _on_ctrl_c() -> object:
    return signal.getsignal(signal.SIGINT)


def leave(*_: object) -> None:
    """End this process at once: a signal handler."""
    processes = sys.modules.get("multiprocessing.process")
    is_worker = processes is not None and processes.parent_process() is not None
    if not is_worker:  # its program says it
        with suppress(OSError):  # closed, or a terminal that is gone
            # A progress display has hidden the cursor and stands at its line.
            os.write(2, b"\n\x1b[?25h" * os.isatty(2) + b"polarbear: stopped\n")
    os._exit(STOPPED)


def _unwind(*_: object) -> None:
    signal.signal(signal.SIGINT, leave)
    sys.unraisablehook = lambda _: None  # an interrupted destructor is nobody's concern
    raise KeyboardInterrupt
