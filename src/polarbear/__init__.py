"""polarbear: incremental learning with coarse and fine labels."""

from polarbear.benchmarks import Benchmark, benchmarks, load, register
from polarbear.hierarchy import Hierarchy
from polarbear.schedule import Schedule
from polarbear.split import SplitRule
from polarbear.stream import Stream, Task, View

__version__ = "0.1.0"

__all__ = [
    "Benchmark",
    "Hierarchy",
    "Schedule",
    "SplitRule",
    "Stream",
    "Task",
    "View",
    "benchmarks",
    "load",
    "register",
]
