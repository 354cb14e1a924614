"""What a method knows beside what it makes of it: an oracle's decision and its own."""

from typing import Any

from polarbear.base.errors import counted
from polarbear.report.figures import curves, style
from polarbear.report.figures.style import Drawing
from polarbear.report.options import Options
from polarbear.report.palette import COLOURS
from polarbear.report.read.decided import decided
from polarbear.report.read.groups import Runs
from polarbear.score.decide import rule_in_words

#: Distance of the two dots of a method, in rows: their error bars must not cover one another.
APART = 0.14


def decisions(runs: Runs, options: Options) -> list[Drawing]:
    """Draw pw-JS of each method's own decision, and of the best oracle on the same raw scores."""
    found = decided(runs, options.root)
    names = [rule_in_words(found.knowledge(group)) for group in found.groups]
    oracles = ", ".join(dict.fromkeys(names))
    knowledge = [found.of(group, found.knowledge(group)) for group in found.groups]
    own = [found.of(group, "own") for group in found.groups]
    figure = style.new_figure(style.PAGE * 0.8, 1.1 + 0.36 * len(found.groups))
    axes = figure.add_subplot()
    for place, ((low, *_), (high, *_)) in enumerate(zip(own, knowledge, strict=True)):
        axes.plot([low, high], [place - APART, place + APART], color="#bbbbbb", zorder=1)
    for name, numbers, marker, shift in (
        ("decision: what was predicted", own, "o", -APART),
        (f"knowledge: {oracles}", knowledge, "D", APART),
    ):
        means, stds, _ = zip(*numbers, strict=True)
        places = [place + shift for place in range(len(means))]
        look: Any = {"color": COLOURS[0 if marker == "o" else 1], "marker": marker, "capsize": 2}
        axes.errorbar(means, places, xerr=stds, linestyle="none", label=name, **look)
    axes.set_yticks(range(len(own)), [curves.label(group) for group in found.groups])
    axes.set_ylim(len(own) - 0.5, -0.5)
    highest = max(mean for mean, *_ in (*own, *knowledge) if mean == mean)
    axes.set_xlim(0, min(1.02, 1.15 * max(highest, 1e-9)))
    axes.set_xlabel(found.words)
    figure.legend(loc="outside lower center", ncols=2)
    over = counted(sum(group.count for group in found.groups), "run")
    words = (
        f"Knowledge and decision: {found.words} of what each method predicted, and of what an "
        f"oracle, which is told the hierarchy, predicts by the same raw scores ({oracles}), "
        f"{runs.benchmark}, test images; {over} with kept raw scores, bars of one standard "
        "deviation."
    )
    return [Drawing("decisions", words, figure)]
