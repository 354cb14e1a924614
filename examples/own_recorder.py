"""A recorder: a table of how a run stands after each task, right after any number of stops too."""

import csv
from pathlib import Path

from polarbear import RunFolder
from polarbear.learn import EpochRecord, Recorder, ScoreRecord, Settings


class Standing(Recorder):
    def __init__(self, folder: str | Path, settings: Settings) -> None:
        self.folder, self.settings = Path(folder), settings
        self.seconds: dict[tuple[int, int, str], float] = {}

    def epoch(self, record: EpochRecord) -> None:
        # By its place: an epoch that is told again, after a stop, takes its own place.
        self.seconds[record.task, record.epoch, record.phase] = record.seconds

    def scores(self, record: ScoreRecord) -> None:
        if record.split != "test":
            return
        with (self.folder / "standing.csv").open("w", newline="") as file:
            table = csv.writer(file)
            table.writerow(["after task", "pw-JS", "seconds of training"])
            for one in RunFolder(self.folder).scores():  # those from before a stop, too
                if one.split == "test":
                    spent = sum(s for (task, *_), s in self.seconds.items() if task == one.after)
                    table.writerow([one.after, f"{one.r:.3f}", f"{spent:.1f}"])
