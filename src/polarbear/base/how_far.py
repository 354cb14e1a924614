"""How far long work in the library is: a line now and then for whoever listens."""

import logging
import time

#: The command line shows what comes here, though of ``polarbear`` it shows warnings alone.
progress_log = logging.getLogger("polarbear.progress")
progress_log.setLevel(logging.INFO)

SECONDS_BETWEEN_LINES = 30.0


class HowFar:
    """Says how far some work is and how long the rest may take; nothing where it is short."""

    def __init__(self, what: str) -> None:
        """Begin counting the seconds."""
        self.what, self.begun = what, time.monotonic()
        self.said = self.begun

    def __call__(self, done: int, total: int) -> None:
        """Take note of what is done, and say so if the last line is old enough."""
        now = time.monotonic()
        if now - self.said < SECONDS_BETWEEN_LINES or done == total:
            return
        self.said = now
        left = clock((now - self.begun) / done * (total - done))
        progress_log.info("%s: %s of %s, about %s left", self.what, f"{done:,}", f"{total:,}", left)


def clock(seconds: float) -> str:
    """Write a duration.

    >>> clock(42), clock(125), clock(7260)
    ('42 s', '2 min', '2 h 1 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
