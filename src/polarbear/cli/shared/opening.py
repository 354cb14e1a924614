"""The first lines of a run's log: what runs, where, and with which settings."""

from pathlib import Path
from typing import TYPE_CHECKING

from polarbear.base.errors import counted
from polarbear.base.names import readable
from polarbear.report.read.grouping import in_words
from polarbear.runs.result_file import departures
from polarbear.settings.settings import deciding

if TYPE_CHECKING:
    from polarbear.engine.machine import Machine
    from polarbear.engine.trainer import Trainer

#: Settings that are no other recipe: which run it is, and how it computes.
NO_DEPARTURE = deciding("run", "arithmetic", "speed", "files")
ESSENTIAL = ("epochs", "batch_size", "learning_rate", "network")


def opening(trainer: "Trainer", folder: Path) -> tuple[str, str]:
    """Return a line on what runs where, and one on its settings."""
    settings = trainer.settings
    what = f"{readable(settings.method)} on {settings.benchmark}, order {settings.order}"
    which = f"seed {settings.seed}, {counted(trainer.tasks, 'task')}"
    count = trainer.learner.world.size
    together = f", by {count} processes together" if count > 1 else ""
    where = f"on {_place(trainer.learner.machine)}{together}, in {folder}"
    kept = "memory_per_class" if settings.memory_total is None else "memory_total"
    names = ESSENTIAL if trainer.learner.method.replay == "none" else (*ESSENTIAL, kept)
    told = ", ".join(in_words(name, getattr(settings, name)) for name in names)
    changed = {k: v for k, v in departures(settings.to_dict()).items() if k not in NO_DEPARTURE}
    words = ", ".join(in_words(key, value) for key, value in changed.items())
    usual = f"not as in the preset: {words}" if changed else "all as in the preset"
    return f"{what}, {which}, {where}", f"{told}; {usual}"


def _place(machine: "Machine") -> str:
    import torch

    if machine.device.type == "cuda":
        name = torch.cuda.get_device_name(machine.device)
        return f"{machine.device} ({name}), {machine.precision}"
    return f"{machine.device}, {counted(torch.get_num_threads(), 'thread')}, {machine.precision}"
