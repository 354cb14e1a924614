"""Signals as a wish to stop, which a run fulfils at its next step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from polarbear.base.interrupt import HUP, TERM, USR, leave


class StopWish(Protocol):
    """Whatever says whether a run is to stop: a ``threading.Event``, or signals."""

    def is_set(self) -> bool:
        """Whether one was asked for."""
        ...


class Stop:
    """Whether runs were asked to stop. Signal handlers set it: nothing here may take a lock."""

    def __init__(self) -> None:
        """Begin with no such wish."""
        self.asked = False

    def is_set(self) -> bool:
        """Whether one was asked for."""
        return self.asked


@contextmanager
def stop_on_signal() -> Iterator[Stop]:
    """Take SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and the first Ctrl-C as wishes to stop.

    In the main thread alone. A second Ctrl-C is left to whoever cared for it before. Where SIGHUP
    is ignored, as nohup has it, it stays so; so does what a program of one's own does on SIGUSR1
    and SIGUSR2.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(*_: object) -> None:
        stop.asked = True
        signal.signal(signal.SIGINT, second)

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *TERM, *HUP, *USR)}
    for number, handler in tuple(before.items()):
        kept = number in HUP and handler == signal.SIG_IGN
        if kept or (number in USR and handler not in (signal.SIG_DFL, leave)):
            del before[number]
    ctrl_c = before[signal.SIGINT]
    second = ctrl_c if callable(ctrl_c) else signal.default_int_handler
    for number in before:
        signal.signal(number, ask)
    try:
        yield stop
    finally:
        for number, handler in before.items():
            # Python gives None for a handler that C code has set, and takes none.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
