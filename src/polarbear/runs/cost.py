"""What a run took and keeps: images trained on, seconds, and bytes from one task to the next."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from polarbear.base.errors import DataError
from polarbear.runs.folder import RunFolder
from polarbear.settings.settings import fits


@dataclass(frozen=True)
class Cost:
    """``passes`` of training images, ``seconds``, and bytes ``kept``; None where it is not known.

    A pass is one image in one step. Kept is what must last from one task to the next beside the
    network itself: stored images with what is stored with them, frozen networks, tensors.
    ``device_seconds`` are a run's part of the seconds where others shared its device.
    """

    passes: int | None = None
    seconds: float | None = None
    kept: int | None = None
    device_seconds: float | None = None

    @classmethod
    def of(cls, folder: RunFolder) -> "Cost":
        """Return what a run has cost so far; seconds and bytes are known at its end alone."""
        facts = folder.facts()
        # A run that wrote no epochs may be of a loop of one's own, which trains unseen.
        passes = facts["passes"] if "passes" in facts else count_passes(folder) or None
        kept = sum(facts["kept"].values()) if "kept" in facts else None
        return cls(passes, folder.seconds(), kept, facts.get("device_seconds"))

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Cost":
        """Return what a summary says of it; older ones have the seconds alone."""
        found = content.get("cost") or {}
        given = {name: found.get(name) for name in ("passes", "kept", "device_seconds")}
        given["seconds"] = content.get("seconds")
        for name, value in given.items():
            if not fits(value, float | None if name.endswith("seconds") else int | None):
                raise DataError(f"its {name} are {value!r:.40}")
        return cls(**given)

    def to_json(self) -> dict[str, Any]:
        """Return what a summary holds beside its seconds."""
        return {key: value for key, value in asdict(self).items() if key != "seconds"}


def count_passes(folder: RunFolder) -> int:
    """Return how many images a run has trained on, an image as often as it was looked at."""
    return sum(epoch.images + epoch.memory_images for epoch in folder.epochs())
