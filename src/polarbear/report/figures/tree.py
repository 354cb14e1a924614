"""The tree a method infers beside the true one: which subclass it puts below which superclass."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from polarbear.base.errors import DataError
from polarbear.base.names import file_name
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.report.figures.style import MISSING, RIGHT, WRONG, Drawing, new_figure, points
from polarbear.report.options import Options
from polarbear.report.read.answers import known_hierarchy
from polarbear.report.read.groups import Runs
from polarbear.report.read.trees import Inferred, inferred

if TYPE_CHECKING:
    from matplotlib.axes import Axes

ROW = 0.115  # inches a line of 7 points has
LEFT, MIDDLE, RIGHT_SIDE = 0.0, (0.38, 0.62), 1.0


def inferred_trees(runs: Runs, options: Options) -> list[Drawing]:
    """Draw, for each method that infers a tree, that of its run that came farthest."""
    hierarchy = known_hierarchy(runs.benchmark)
    trees = inferred(runs, hierarchy)
    if not trees:
        raise DataError("no method of these runs infers which class lies below which")
    return [_drawing(tree, hierarchy, options.width, first=tree is trees[0]) for tree in trees]


def _drawing(tree: Inferred, hierarchy: Hierarchy, width: float, *, first: bool) -> Drawing:
    lines = _lines(tree.seen, tree.true)
    figure = new_figure(width, 0.9 + ROW * len(lines))
    axes = figure.add_subplot()
    _draw(axes, hierarchy, lines, tree.true, tree.found)
    words = (
        f"The tree that {tree.group.title} infers (right) beside the true one (left), order "
        f"{tree.run.order}, after task {tree.run.done[-1]}. Of {len(tree.true)} parents, found: "
        f"{tree.right}, wrong: {tree.wrong}; given to classes that have none: {tree.needless}."
    )
    name = "inferred-tree" if first else f"inferred-tree-{file_name(tree.group.name)}"
    return Drawing(name, words, figure)


def _lines(seen: Sequence[str], true: Mapping[str, str]) -> list[str]:
    """Return the classes that no other lies below: in families, then those that stand alone."""
    parents = set(true.values())
    below = [one for one in seen if one in true and one not in parents]
    alone = [one for one in seen if one not in true and one not in parents]
    return sorted(below, key=lambda one: (true[one], one)) + sorted(alone)


def _draw(
    axes: "Axes",
    hierarchy: Hierarchy,
    lines: list[str],
    true: Mapping[str, str],
    found: Mapping[str, str],
) -> None:
    height = {one: -place for place, one in enumerate(lines)}
    family = {
        parent: [height[c] for c in lines if true.get(c) == parent] for parent in true.values()
    }
    centre = {parent: sum(places) / len(places) for parent, places in family.items() if places}
    inferred = centre | {guess: height[guess] for guess in found.values() if guess in height}
    thin: Any = {"linewidth": points(0.6)}
    small: Any = {"va": "center", "fontsize": "small"}
    for one, y in height.items():
        parent, guess = true.get(one), found.get(one)
        colour = RIGHT if guess == parent else MISSING if guess is None else WRONG
        axes.text(0.5, y, hierarchy.title(one), ha="center", color=colour, **small)
        if parent in centre:
            axes.plot([LEFT, MIDDLE[0]], [centre[parent], y], color="#bbbbbb", **thin)
        if guess in inferred:
            axes.plot([MIDDLE[1], RIGHT_SIDE], [y, inferred[guess]], color=colour, **thin)
    for x, side, places in ((LEFT, "right", centre), (RIGHT_SIDE, "left", inferred)):
        for parent, place in places.items():
            axes.text(x, place, f" {hierarchy.title(parent)} ", ha=side, **small)
    heads = (LEFT, "true", "#222222"), (RIGHT_SIDE, "inferred", "#222222")
    kinds = (0.3, "right", RIGHT), (0.5, "none", MISSING), (0.7, "wrong", WRONG)
    for x, words, colour in (*heads, *kinds):
        axes.text(x, 1.6, words, ha="center", color=colour, **small)
    axes.set_xlim(-0.4, 1.4)
    axes.set_ylim(-len(lines), 3)
    axes.axis("off")
