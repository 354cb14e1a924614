"""Signals as a wish to stop, which a run fulfils at its next step."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


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
    """Take the first Ctrl-C and signals of schedulers as wishes to stop; in the main thread alone.

    These are SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2, as far as the system has them and nobody ignores
    them: nohup does so with SIGHUP. A second Ctrl-C is left to whoever cared for it before.
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(*_: object) -> None:
        stop.asked = True
        signal.signal(signal.SIGINT, second)

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for name in ("SIGHUP", "SIGUSR1", "SIGUSR2"):
        number = getattr(signal, name, None)
        if number is not None and (handler := signal.getsignal(number)) != signal.SIG_IGN:
            before[number] = handler
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
