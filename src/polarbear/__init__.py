"""polarbear: incremental learning with coarse and fine labels."""

# ruff: noqa: E402

from polarbear.base.interrupt import leave_on_ctrl_c

leave_on_ctrl_c()  # before all that takes its time to import

from polarbear.base.version import __version__
from polarbear.benchmark.checks import CheckError, check_hierarchy, check_stream
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.schedule import Schedule
from polarbear.benchmark.split import SplitRule
from polarbear.benchmark.stream import Stream, Task, View
from polarbear.named.registry import Benchmark, benchmarks, load, register
from polarbear.runs.own_loop import start_run, write_scores
from polarbear.score import metrics
from polarbear.score.evaluate import Evaluator
from polarbear.score.predictions import read_predictions, save_predictions
from polarbear.score.table import ScoreTable

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
    "__version__",
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
