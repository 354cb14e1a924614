"""How long a run has taken, and how much of that was its own where others shared the device."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

Share = Callable[[], float]
"""How much of a device a run has at the moment: 1 alone, a tenth beside nine others."""


def all_of_it() -> float:
    """Return the share of a run that is alone on its device."""
    return 1.0


@dataclass(frozen=True)
class Taken:
    """Seconds that a run took, and seconds of one device.

    On a device, those of a run beside nine others count a tenth, those of a run by two processes
    twice. None where the run was resumed from a checkpoint that did not count them.
    """

    seconds: float = 0.0
    device_seconds: float | None = 0.0

    @classmethod
    def from_facts(cls, facts: Mapping[str, Any]) -> "Taken":
        """Return what a checkpoint says of it."""
        counted = facts.get("device_seconds")
        return cls(float(facts["seconds"]), None if counted is None else float(counted))


class Clock:
    """Counts what a run takes, on from what it had taken before."""

    def __init__(self, taken: Taken, share: Share = all_of_it, devices: int = 1) -> None:
        """Begin to count."""
        self.taken = taken
        self._share, self._devices = share, devices
        self._last = time.monotonic()

    def tick(self) -> Taken:
        """Count what has passed since the last time, by the share of now; returns all of it."""
        now = time.monotonic()
        passed, self._last = now - self._last, now
        own = self.taken.device_seconds
        if own is not None:
            own += passed * self._share() * self._devices
        self.taken = Taken(self.taken.seconds + passed, own)
        return self.taken
