"""Everything to write and train a method with: the public names that need PyTorch."""

from polarbear.engine.contract.batch import Batch, Moment
from polarbear.engine.contract.method import Method, bce, frozen_copy, teacher_targets
from polarbear.launch.check.learner import CheckError, Finding, check_learner
from polarbear.launch.runner import resume, run
from polarbear.methods.presets import settings_for
from polarbear.settings.settings import Settings

__all__ = [
    "Batch",
    "CheckError",
    "Finding",
    "Method",
    "Moment",
    "Settings",
    "bce",
    "check_learner",
    "frozen_copy",
    "resume",
    "run",
    "settings_for",
    "teacher_targets",
]
