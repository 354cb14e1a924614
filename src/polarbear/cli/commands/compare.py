"""``polarbear compare``: two runs or groups with each other, or results with the paper's tables."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from polarbear.base.errors import PolarbearError, counted
from polarbear.cli.shared.console import (
    console,
    number,
    plain_table,
    print_json,
    print_table,
    share,
)
from polarbear.cli.shared.opening import NO_DEPARTURE
from polarbear.cli.shared.options import JOBS, Json, Results, flag
from polarbear.report.read.beside_paper import PAPERS_ROUNDING, BesidePaper, beside_paper
from polarbear.report.read.differences import Beside, between, mean_r, r_after, shared_orders
from polarbear.report.read.grouping import in_words, warn_of_twins
from polarbear.report.read.groups import Group, Run, Runs
from polarbear.report.read.paper import Published, paper_results
from polarbear.report.read.runs import read_benchmarks, read_runs
from polarbear.report.read.words import which_runs
from polarbear.runs.result_file import departures
from polarbear.score.intervals import Difference, Sample

Line = dict[str, Any]

APART = ("ablations",)  # folders of methods with something changed, which the paper does not have


def compare(
    paths: Results = (Path("runs"),),
    /,
    *,
    paper: Annotated[
        bool, flag("Compare with the paper's tables, even where two are given.")
    ] = False,
    json: Json = False,
) -> None:
    """Compare R_j task by task, with 95 % intervals of the difference.

    Two runs, or two folders with runs, are compared with each other: order by order where both have
    the same class orders. Anything else is compared with the paper's tables, benchmark by
    benchmark; folders below it that are called ablations are left out.
    """
    if len(paths) == 2 and not paper:
        runs = read_runs(paths, twins=True, jobs=JOBS)  # a run on each side is what is compared
        _compare_two(runs, *paths, json=json)
    else:
        _compare_with_paper(read_benchmarks(paths, apart=APART, jobs=JOBS), json=json)


# --- with each other


def _compare_two(runs: Runs, a: Path, b: Path, *, json: bool) -> None:
    sides = _side(runs, a), _side(runs, b)
    if twice := {run.path for run in _runs(sides[0])} & {run.path for run in _runs(sides[1])}:
        raise PolarbearError(
            f"{min(twice)} is in both {a} and {b}: give two folders, neither of them in the other"
        )
    warn_of_twins((*sides[0], *sides[1]))
    pairs = _matched(*sides)
    if not pairs:
        names = (", ".join(group.title for group in side) or "no scores" for side in sides)
        raise PolarbearError(
            f"{a} and {b} have no method in common ({' and '.join(names)}): give folders of one "
            "method each"
        )
    found = [_two_groups(one, other, a, b) for one, other in pairs]
    if json:
        left_out = {str(path): why for path, why in runs.short.items()}
        print_json({"benchmark": runs.benchmark, "compared": found, "left_out": left_out})
        return
    screen = console()
    for (one, other), content in zip(pairs, found, strict=True):
        screen.print(f"a: {_described(one)} in {a}", soft_wrap=True)
        screen.print(f"b: {_described(other)} in {b}", soft_wrap=True)
        screen.print(_how(one, other), soft_wrap=True)
        table = plain_table("task", "a", "b", "a − b", "95 %", "p", "n")
        for line in (*content["tasks"], *([content["mean"]] if content["mean"] else [])):
            table.add_row(*_cells(line, "a", "b"), _p(line["p"]), _n(line))
        print_table(screen, table)
        screen.print(f"{_chance(content['tasks'])}\n", soft_wrap=True)
    for side, path, place in ((sides[0], a, 0), (sides[1], b, 1)):
        there = [pair[place].name for pair in pairs]
        for group in (group for group in side if group.name not in there):
            screen.print(f"{group.title} is in {path} alone", style="dim", soft_wrap=True)
    _say_short(runs)


def _side(runs: Runs, path: Path) -> tuple[Group, ...]:
    """Return the groups of the runs at or below a path."""
    place = path.resolve()
    parts = (
        replace(g, runs=tuple(r for r in g.runs if r.path.resolve().is_relative_to(place)))
        for g in runs.groups
    )
    return tuple(group for group in parts if group.runs)


def _runs(groups: Sequence[Group]) -> list[Run]:
    return [run for group in groups for run in group.runs]


def _matched(a: Sequence[Group], b: Sequence[Group]) -> list[tuple[Group, Group]]:
    """Return what is to be compared: two groups of any kind, of several those that are alike."""
    if len(a) == len(b) == 1:
        return [(a[0], b[0])]
    by_name = {group.name: group for group in b}
    pairs = [(group, by_name[group.name]) for group in a if group.name in by_name]
    # A method with other settings on the other side, if it is there once.
    done = {group.name for group, _ in pairs}
    for group in (group for group in a if group.name not in done):
        others = [g for g in b if g.method == group.method and g.name not in done]
        same = [g for g in a if g.method == group.method and g.name not in done]
        if len(others) == len(same) == 1:
            pairs.append((group, others[0]))
    return pairs


def _two_groups(a: Group, b: Group, path_a: Path, path_b: Path) -> Line:
    tasks = np.flatnonzero(np.multiply(a.counts(), b.counts())).tolist()
    lines = [{"task": j, **_line(between(a, b, partial(r_after, task=j)))} for j in tasks]
    over = {"task": "mean", **_line(between(a, b, partial(mean_r, tasks=tasks)))}
    return {
        "a": {"name": a.name, "path": str(path_a), "runs": a.count},
        "b": {"name": b.name, "path": str(path_b), "runs": b.count},
        "paired_by_order": list(shared_orders(a, b)),
        "tasks": [line for line in lines if line["difference"] is not None],
        "mean": over if len(tasks) > 1 and over["difference"] is not None else None,
    }


def _line(beside: Beside) -> Line:
    found = beside.difference
    numbers = {
        "a": beside.a,
        "b": beside.b,
        "difference": found.mean,
        "half_width": found.half_width,
        "p": found.p,
    }
    told = {name: None if math.isnan(value) else value for name, value in numbers.items()}
    return {**told, "n": list(found.n), "paired": found.paired}


def _how(a: Group, b: Group) -> str:
    orders = shared_orders(a, b)
    if orders:
        return f"paired by the {len(orders)} class orders that both have; 95 % intervals (t)"
    return "unpaired, as they share fewer than two class orders; 95 % intervals (Welch's t)"


# --- with the paper


def _compare_with_paper(benchmarks: Sequence[Runs], *, json: bool) -> None:
    found = {
        runs.benchmark: _groups_with_paper(runs, published)
        for runs in benchmarks
        if (published := paper_results(runs.benchmark))
    }
    if not found:
        raise PolarbearError(
            f"the paper has no table for {' or '.join(runs.benchmark for runs in benchmarks)}: "
            "give two folders, and they are compared with each other"
        )
    if json:
        print_json({name: _as_json(groups) for name, groups in found.items()})
        return
    screen = console()
    for runs in benchmarks:
        if runs.benchmark not in found:
            screen.print(f"{runs.benchmark}: the paper has no table for it\n", soft_wrap=True)
            continue
        if len(benchmarks) > 1:
            screen.print(f"{runs.benchmark}\n", style="bold", soft_wrap=True)
        _print_tables(runs, found[runs.benchmark])


def _groups_with_paper(
    runs: Runs, published: dict[str, Published]
) -> dict[str, tuple[Group, BesidePaper]]:
    """Return each group whose method the paper has, beside the paper."""
    # Several groups of a method differ in their names, and only a lone one is named as the method.
    groups = [group for group in runs.groups if group.method in published]
    return {group.name: (group, beside_paper(group, published[group.method])) for group in groups}


def _as_json(found: Mapping[str, tuple[Group, BesidePaper]]) -> dict[str, Line]:
    return {
        name: {
            "tasks": [_with_paper(group, beside, task) for task in beside.tasks],
            "mean": _mean_with_paper(group, beside),
            "tasks_apart": beside.apart if beside.told else None,
            "verdict": beside.verdict,
        }
        for name, (group, beside) in found.items()
    }


def _print_tables(runs: Runs, found: Mapping[str, tuple[Group, BesidePaper]]) -> None:
    published = paper_results(runs.benchmark)
    for group, beside in found.values():
        _print(group, beside, published[group.method])
    if len(found) > 1:
        _print_in_short(found.values())
    if others := [group.title for group in runs.groups if group.name not in found]:
        console().print(f"The paper has no numbers for {', '.join(others)}.\n", soft_wrap=True)
    _say_short(runs)


def _with_paper(group: Group, beside: BesidePaper, task: int) -> Line:
    values = [r_after(run, task) for run in group.runs]
    theirs = paper_results(group.benchmark)[group.method].std[task]
    return {"task": task, **_sides(beside.tasks[task], values, float(theirs))}


def _mean_with_paper(group: Group, beside: BesidePaper) -> Line | None:
    """Return the line of the means over tasks; None where these are no more than one."""
    if len(beside.tasks) < 2:
        return None
    tasks = [*beside.tasks]
    values = [mean_r(run, tasks) for run in group.runs]
    theirs = paper_results(group.benchmark)[group.method].std[tasks].mean()
    return {"task": "mean", **_sides(beside.over_all, values, float(theirs))}


def _sides(beside: Beside, values: Sequence[float], papers_std: float) -> Line:
    line, std = _line(beside), Sample.of(values).std
    return {
        "ours": line["a"],
        "ours_std": None if math.isnan(std) else std,
        "runs": line["n"][0],
        "paper": line["b"],
        "paper_std": papers_std,
        "paper_runs": line["n"][1],
        "difference": line["difference"],
        "half_width": line["half_width"],
    }


def _print(group: Group, beside: BesidePaper, paper: Published) -> None:
    screen = console()
    screen.print(_described(group), style="bold", soft_wrap=True)
    # What the paper did not run, as far as the runs tell their settings.
    told = next((run.settings for run in group.runs if run.settings), {})
    asked = {"method": group.method, "benchmark": group.benchmark, "options": {}, **told}
    unlike = {k: v for k, v in departures(asked).items() if k not in NO_DEPARTURE}
    if unlike:
        words = ", ".join(in_words(key, value) for key, value in unlike.items())
        screen.print(f"not the paper's settings: {words}", soft_wrap=True)
    screen.print(
        f"unpaired, the paper's n is {paper.runs}; 95 % intervals (Welch's t), "
        f"with {PAPERS_ROUNDING} for the paper's rounding",
        soft_wrap=True,
    )
    table = plain_table("task", "ours", "paper", "difference", "95 %", "std", "paper std", "n")
    lines = [_with_paper(group, beside, task) for task in beside.tasks]
    for line in lines:
        stds = share(line["ours_std"]), share(line["paper_std"])
        table.add_row(*_cells(line, "ours", "paper", 2), *stds, str(line["runs"]))
    mean = _mean_with_paper(group, beside)
    if mean is not None:
        stds = share(mean["ours_std"]), f"≤{mean['paper_std']:.3f}"
        table.add_row(*_cells(mean, "ours", "paper"), *stds, str(mean["runs"]))
    print_table(screen, table)
    said = _chance(lines)
    if mean is not None and mean["half_width"] is not None:
        where = "outside" if beside.over_all.difference.significant else "inside"
        said += f" Over all tasks it is {where}: {beside.verdict}."
    screen.print(f"{said}\n", soft_wrap=True)


def _print_in_short(found: Iterable[tuple[Group, BesidePaper]]) -> None:
    """Print what the tables above come to, a line per group."""
    screen = console()
    table = plain_table("ours less the paper's", "n", "last task", "all tasks", "apart", " ")
    for group, beside in found:
        if beside.tasks:
            last = beside.tasks[max(beside.tasks)].difference
            apart = f"{beside.apart} of {beside.told}" if beside.told else "–"
            shown = _shown(last), _shown(beside.over_all.difference)
            table.add_row(group.title, str(group.count), *shown, apart, beside.verdict or "–")
    print_table(screen, table)
    screen.print()


def _shown(found: Difference) -> str:
    if math.isnan(found.mean):
        return "–"
    wide = "" if math.isnan(found.half_width) else f" ±{found.half_width:.3f}"
    return f"{found.mean:+z.3f}{wide}"


# --- both


def _described(group: Group) -> str:
    return f"{group.title}, {counted(group.count, 'run')} ({which_runs([group])})"


def _cells(line: Line, ours: str, theirs: str, digits: int = 3) -> tuple[str, ...]:
    half = line["half_width"]
    return (
        str(line["task"]),
        share(line[ours]),
        share(line[theirs], digits),
        number(line["difference"], "+z.3f"),
        "–" if half is None else f"±{half:.3f}",
    )


def _p(value: float | None) -> str:
    return "<0.001" if value is not None and value < 0.001 else number(value, ".3f")


def _n(line: Line) -> str:
    a, b = line["n"]
    return str(a) if line["paired"] else f"{a}, {b}"


def _chance(lines: Sequence[Line]) -> str:
    """Say how many differences are more than chance, and how many of them chance makes."""
    told = [line for line in lines if line["half_width"] is not None]
    if not told:
        return "One run on a side has no interval: run more class orders (--orders 0-9)."
    apart = sum(abs(line["difference"]) > line["half_width"] for line in told)
    return (
        f"0 is outside the interval after {apart} of {counted(len(told), 'task')}; of so many, "
        f"chance alone puts {0.05 * len(told):.1f} there."
    )


def _say_short(runs: Runs) -> None:
    for path, why in runs.short.items():
        words = f"{path} has no scores after task {runs.last}: {why}"
        console().print(words, style="dim", soft_wrap=True)
