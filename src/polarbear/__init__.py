"""polarbear: incremental learning with coarse and fine labels."""

# ruff: noqa: E402

from polarbear.interrupt import leave_on_ctrl_c

leave_on_ctrl_c()  # before all that takes its time to import

from polarbear import metrics
from polarbear.benchmarks import Benchmark, benchmarks, load, register
from polarbear.check import CheckError, check_hierarchy, check_stream
from polarbear.evaluate import Evaluator
from polarbear.hierarchy import Hierarchy
from polarbear.predictions import read_predictions, save_predictions
from polarbear.record import start_run, write_scores
from polarbear.schedule import Schedule
from polarbear.scores import ScoreTable
from polarbear.split import SplitRule
from polarbear.stream import Stream, Task, View

__version__ = "0.1.0"

__all__ = [
    "Benchmark",
    "CheckError",
    "Evaluator",
    "Hierarchy",
    "Schedule",
    "ScoreTable",
    "SplitRule",
    "Stream",
    "Task",
    "View",
    "benchmarks",
    "check_hierarchy",
    "check_stream",
    "load",
    "metrics",
    "read_predictions",
    "register",
    "save_predictions",
    "start_run",
    "write_scores",
]
