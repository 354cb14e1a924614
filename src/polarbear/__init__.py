"""polarbear: incremental learning with coarse and fine labels.

The public names that need NumPy alone. Those that need PyTorch are in :mod:`polarbear.learn`,
reports in :mod:`polarbear.report`, other libraries in :mod:`polarbear.adapters`.
"""

# ruff: noqa: E402

from polarbear.base.interrupt import leave_when_asked

leave_when_asked()  # before all that takes its time to import

from polarbear.base.errors import (
    DataError,
    HierarchyError,
    PolarbearError,
    PredictionError,
    ScheduleError,
    UnknownNameError,
)
from polarbear.base.findings import Finding
from polarbear.base.version import __version__
from polarbear.benchmark.checks import CheckError, check_hierarchy, check_stream
from polarbear.benchmark.counts import ClassSize, Statistics, stream_statistics
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.schedule import Schedule
from polarbear.benchmark.source import Source
from polarbear.benchmark.split import SplitRule
from polarbear.benchmark.stream import Stream, Task, View
from polarbear.data.cifar100 import open_cifar100
from polarbear.data.folders import open_folders
from polarbear.data.imagenet import open_imagenet
from polarbear.data.npz import open_npz
from polarbear.data.shapes import draw_leaf
from polarbear.data.table import open_table
from polarbear.named.benchmark import Benchmark
from polarbear.named.registry import benchmarks, load, register
from polarbear.runs.folder import RunFolder, find_runs
from polarbear.runs.guards import RunError
from polarbear.runs.own_loop import start_run, write_scores
from polarbear.runs.result import Result
from polarbear.score import metrics
from polarbear.score.catalogue import ImageScore, PairScore, Shown, register_score
from polarbear.score.decide import Seen, decision, oracle_rule
from polarbear.score.evaluate import Evaluator
from polarbear.score.predictions import read_predictions, save_predictions
from polarbear.score.table import ScoreTable

__all__ = [
    "Benchmark",
    "CheckError",
    "ClassSize",
    "DataError",
    "Evaluator",
    "Finding",
    "Hierarchy",
    "HierarchyError",
    "ImageScore",
    "PairScore",
    "PolarbearError",
    "PredictionError",
    "Result",
    "RunError",
    "RunFolder",
    "Schedule",
    "ScheduleError",
    "ScoreTable",
    "Seen",
    "Shown",
    "Source",
    "SplitRule",
    "Statistics",
    "Stream",
    "Task",
    "UnknownNameError",
    "View",
    "__version__",
    "benchmarks",
    "check_hierarchy",
    "check_stream",
    "decision",
    "draw_leaf",
    "find_runs",
    "load",
    "metrics",
    "open_cifar100",
    "open_folders",
    "open_imagenet",
    "open_npz",
    "open_table",
    "oracle_rule",
    "read_predictions",
    "register",
    "register_score",
    "save_predictions",
    "start_run",
    "stream_statistics",
    "write_scores",
]
