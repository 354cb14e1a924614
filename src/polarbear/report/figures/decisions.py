"""What a method knows beside what it makes of it: an oracle's decision and its own."""

from dataclasses import replace
from textwrap import fill
from typing import Any

import numpy as np

from polarbear.base.errors import DataError, counted
from polarbear.report.figures import curves, style
from polarbear.report.figures.curves import labels, legend_columns
from polarbear.report.figures.style import Drawing, points
from polarbear.report.options import Options
from polarbear.report.palette import COLOURS
from polarbear.report.read.decided import Decided, decided
from polarbear.report.read.groups import Group, Runs
from polarbear.report.read.words import ENOUGH, over_runs, which_runs
from polarbear.score.decide import OWN_RULE, rule_in_words
from polarbear.score.intervals import Sample

#: Distance of the two dots of a method, in rows: their error bars must not cover one another.
APART = 0.14
DECISION, KNOWLEDGE = "decision: what was predicted", "knowledge"


def decisions(runs: Runs, options: Options) -> list[Drawing]:
    """Draw pw-JS of each method's own decision, and of the best oracle on the same raw scores."""
    found = decided(runs, options.root)
    both = [one for group in found.groups if (one := _with_both(found, group))[0].runs]
    if not both:
        raise DataError("no run says what an oracle makes of its raw scores")
    groups, own, knowledge = zip(*both, strict=True)
    names = [rule_in_words(found.knowledge(group)) for group in groups]
    oracles = ", ".join(dict.fromkeys(names))
    names_below = legend_columns((DECISION, f"{KNOWLEDGE}: {oracles}"), options.width)
    figure = style.new_figure(options.width, 1.1 + 0.36 * len(groups))
    axes, label = figure.add_subplot(), labels(groups)
    for place, (low, high) in enumerate(zip(own, knowledge, strict=True)):
        axes.plot([low.mean, high.mean], [place - APART, place + APART], color="#bbbbbb", zorder=1)
    for name, numbers, marker, shift in (
        (DECISION, own, "o", -APART),
        (fill(f"{KNOWLEDGE}: {oracles}", names_below[1]), knowledge, "D", APART),
    ):
        means = [one.mean for one in numbers]
        spread = [one.half_width if one.n >= ENOUGH else 0.0 for one in numbers]
        places = [place + shift for place in range(len(means))]
        look: Any = {"color": COLOURS[0 if marker == "o" else 1], "marker": marker}
        look |= {"capsize": points(2)}
        axes.errorbar(means, places, xerr=spread, linestyle="none", label=name, **look)
    axes.set_yticks(range(len(own)), [label(group) for group in groups])
    axes.set_ylim(len(own) - 0.5, -0.5)
    highest = max(one.mean for one in (*own, *knowledge) if one.n)
    axes.set_xlim(0, min(1.02, 1.15 * max(highest, 1e-9)))
    axes.set_xlabel(found.words)
    figure.legend(loc="outside lower center", ncols=names_below[0])
    curves.note(axes, over_runs(curves.counts(groups)), options.width)
    over = counted(sum(group.count for group in groups), "run")
    words = (
        f"Knowledge and decision: {found.words} of what each method predicted, and of what an "
        f"oracle, which is told the hierarchy, predicts by the same raw scores ({oracles}), "
        f"{runs.benchmark}, test images; {over} with kept raw scores, bars: 95 % "
        f"intervals where n ≥ {ENOUGH} ({which_runs(groups)})."
    )
    return [Drawing("decisions", words, figure)]


def _with_both(found: Decided, group: Group) -> tuple[Group, Sample, Sample]:
    """Return the runs of which both are known, and what was predicted and is known by these alone.

    Earlier summaries lack what an oracle makes of them: means of other runs would be apart for
    their class orders, too.
    """
    own, best = (found.values[group.name][rule] for rule in (OWN_RULE, found.knowledge(group)))
    there = ~np.isnan(own + best)
    runs = tuple(run for run, yes in zip(group.runs, there, strict=True) if yes)
    return replace(group, runs=runs), Sample.of(own[there]), Sample.of(best[there])
