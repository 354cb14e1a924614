"""Hypothesis strategies: any hierarchy, schedule, leaf vector and rule, also odd ones."""

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st

from polarbear import Hierarchy, Schedule, SplitRule, Stream
from polarbear.base.arrays import Ints

thorough = settings(max_examples=150)
quick = settings(max_examples=50)

# Awkward names on purpose: blanks, case, letters beyond ASCII, one name inside another.
NAMES = (
    *("bear", "polar bear", "Bear", "bär", "n02134084", "lamp", "a", "b", "c", "d", "e"),
    *("cup", "cups", "mask", "x_y", "x y", "0", "-1", "None", "熊"),
)


@st.composite
def hierarchies(draw: st.DrawFn, most: int = 12) -> Hierarchy:
    """A forest of any depth whose parents may be numbered before or after their children."""
    count = draw(st.sampled_from(range(1, most + 1)))
    names = draw(st.permutations(NAMES))[:count]
    above = [draw(st.sampled_from(range(-1, i))) for i in range(count)]
    place = draw(st.permutations(range(count)))
    parents = [-1] * count
    for child, up in enumerate(above):
        parents[place[child]] = place[up] if up >= 0 else -1
    return Hierarchy(tuple(names), tuple(parents))


@st.composite
def two_level_hierarchies(draw: st.DrawFn, most: int = 20) -> Hierarchy:
    """Superclasses with many or few subclasses, and classes without one, as IIRC has them."""
    count = draw(st.integers(1, most))
    supers = draw(st.integers(0, max(0, count // 2)))
    parents = [-1] * supers + [draw(st.integers(-1, supers - 1)) for _ in range(count - supers)]
    return Hierarchy(tuple(NAMES[:count]), tuple(parents))


@st.composite
def schedules(draw: st.DrawFn, hierarchy: Hierarchy, everything: bool = False) -> Schedule:
    """Any cut of any classes in any order: a parent may come after its child, or with it."""
    names = draw(st.permutations(hierarchy.names))
    if not everything:
        names = names[: draw(st.integers(1, len(names)))]
    bounds = [0, *(i for i in range(1, len(names)) if draw(st.booleans())), len(names)]
    return Schedule.of(names[a:b] for a, b in pairwise(bounds))


@st.composite
def leaf_vectors(draw: st.DrawFn, hierarchy: Hierarchy) -> Ints:
    """Class numbers a row, mixed: leaves with no, few and many rows, and rows of no class (-1)."""
    sizes = st.sampled_from([0, 1, 2, 3, 4, 5, 9, 10, 20, 33, 50, 60])
    count = [draw(sizes) for _ in hierarchy.leaves]
    leaves = np.repeat(np.flatnonzero(hierarchy.is_leaf), count)
    strange = np.full(draw(st.integers(0, 3)), -1)
    return _random(draw).permutation(np.concatenate([leaves, strange]).astype(np.intp))


@st.composite
def rules(draw: st.DrawFn, shuffled: bool | None = None) -> SplitRule:
    """Any shares, cap and shuffle, or equal parts."""
    share = st.one_of(st.sampled_from([0.0, 0.04, 0.1, 0.2, 0.4, 0.8, 1.0]), st.floats(0, 1))
    valid = draw(share)
    seed = draw(st.none() | st.integers(0, 99)) if shuffled is None else (7 if shuffled else None)
    return SplitRule(
        valid,
        draw(share.filter(lambda post: valid + post <= 1)),
        draw(share),
        draw(share),
        draw(st.integers(1, 10)),
        seed,
        draw(st.booleans()),
    )


@st.composite
def streams(draw: st.DrawFn, everything: bool = False) -> Stream:
    """Any stream; ``everything`` puts all classes of the hierarchy into its schedule."""
    hierarchy = draw(st.one_of(hierarchies(), two_level_hierarchies()))
    train, test = draw(leaf_vectors(hierarchy)), draw(leaf_vectors(hierarchy))
    return Stream(
        hierarchy,
        draw(schedules(hierarchy, everything)),
        train,
        test,
        SplitRule() if draw(st.integers(0, 3)) == 0 else draw(rules()),
        file_order=_random(draw).permutation(len(train)) if draw(st.booleans()) else None,
    )


def _random(draw: Any) -> np.random.Generator:
    return np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
