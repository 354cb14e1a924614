"""``polarbear decide``: kept raw scores scored by other decision rules."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from polarbear.cli.shared.console import console, plain_table, print_json, print_table, share
from polarbear.cli.shared.options import JOBS, Json, Results, RunsRoot, flag
from polarbear.report.read.decided import RULES, Decided, Over, decided
from polarbear.report.read.groups import Group
from polarbear.report.read.runs import read_runs
from polarbear.report.read.words import of_fewer, spans
from polarbear.score.decide import rule_in_words
from polarbear.score.intervals import Sample


def decide(
    paths: Results = (Path("runs"),),
    /,
    *,
    over: Annotated[Over, flag("pw-JS after the last task, or the mean over all tasks.")] = "last",
    root: RunsRoot = None,
    json: Json = False,
) -> None:
    """Tell what a method knows from what it decides: score kept raw scores by other rules.

    A line per method, a column per rule, means with 95 % intervals over runs; own is what the runs
    predicted. Only runs made with --keep-scores can be asked; others are named. Summaries from
    before all rules were asked have own, threshold and top1 alone.
    """
    runs = read_runs(paths, jobs=JOBS)
    found = decided(runs, root, over)
    if json:
        groups = {group.name: _numbers(found, group) for group in found.groups}
        left_out = {str(path): why for path, why in found.left_out.items()}
        about = {"benchmark": runs.benchmark, "over": over, "last_task": found.last}
        print_json({**about, "groups": groups, "left_out": left_out})
        return
    screen = console()
    several = any(group.count > 1 for group in found.groups)
    words = f"{found.words}, {runs.benchmark}{', mean ± 95 % interval over runs' * several}"
    screen.print(words, style="bold", soft_wrap=True)
    table = plain_table("method", "runs", "orders", "seeds", *map(rule_in_words, RULES))
    for group in found.groups:
        who = (group.title, str(group.count), spans(group.orders), spans(group.seeds))
        table.add_row(*who, *(_cell(found.of(group, rule), group.count) for rule in RULES))
    print_table(screen, table)
    for line in _left_out(found.left_out):
        screen.print(f"left out: {line}", style="dim", soft_wrap=True)


def _left_out(reasons: Mapping[Path, str]) -> Iterator[str]:
    """Return a line per reason: its first run by name, the others by their number.

    >>> list(_left_out({Path("a"): "no scores", Path("b"): "damaged", Path("c"): "no scores"}))
    ['a and 1 more: no scores', 'b: damaged']
    """
    by_reason: dict[str, list[Path]] = {}
    for path, why in reasons.items():
        by_reason.setdefault(why, []).append(path)
    for why, paths in by_reason.items():
        more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        yield f"{paths[0]}{more}: {why}"


def _numbers(found: Decided, group: Group) -> dict[str, dict[str, Any] | None]:
    """Return each rule's numbers for programs, None where it cannot be asked."""
    by_rule: dict[str, dict[str, Any] | None] = {}
    for rule in RULES:
        one = found.of(group, rule)
        numbers = {
            "mean": one.mean,
            "std": None if math.isnan(one.std) else one.std,
            "half_width": None if math.isnan(one.half_width) else one.half_width,
            "runs": one.n,
            "oracle": found.is_oracle(group, rule),
        }
        by_rule[rule] = numbers if one.n else None
    return by_rule


def _cell(one: Sample, count: int) -> str:
    half = f" ± {share(one.half_width)}" if one.n > 1 else ""
    return share(one.mean) + half + of_fewer(one.n, count)
