"""polarbear: incremental learning with coarse and fine labels."""

from polarbear import metrics
from polarbear.benchmarks import Benchmark, benchmarks, load, register
from polarbear.evaluate import Evaluator
from polarbear.hierarchy import Hierarchy
from polarbear.schedule import Schedule
from polarbear.scores import ScoreTable
from polarbear.split import SplitRule
from polarbear.stream import Stream, Task, View

__version__ = "0.1.0"

__all__ = [
    "Benchmark",
    "Evaluator",
    "Hierarchy",
    "Schedule",
    "ScoreTable",
    "SplitRule",
    "Stream",
    "Task",
    "View",
    "benchmarks",
    "load",
    "metrics",
    "register",
]
