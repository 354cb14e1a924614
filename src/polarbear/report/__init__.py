"""From run folders to figures, tables and a page; nothing here imports PyTorch."""

from polarbear.report.build import Report, build_report, draw
from polarbear.report.options import Options
from polarbear.report.read.groups import Group, Run, Runs
from polarbear.report.read.paper import Published, paper_results
from polarbear.report.read.runs import read_runs

__all__ = [
    "Group",
    "Options",
    "Published",
    "Report",
    "Run",
    "Runs",
    "build_report",
    "draw",
    "paper_results",
    "read_runs",
]
