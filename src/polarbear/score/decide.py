"""Decision rules: which classes are predicted, given one raw score for each seen class.

A rule is a pure function of raw scores and of what is known about the classes, so any rule can be
tried on the raw scores of a finished run. One of your own comes by its dotted path,
``package.module:rule``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from inspect import signature
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polarbear.base.arrays import Bools, Floats, Ints, frozen
from polarbear.base.dotted import find_dotted
from polarbear.base.errors import PolarbearError, PredictionError, unknown_name
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.score.parents import as_parents

RawScores = NDArray[np.floating[Any]]

#: The paper's rule, and that of a method without one of its own.
USUAL = "threshold"
#: What a manifest calls the rule of a method that has one of its own.
OWN_RULE = "own"
#: What people must read behind the name of a rule that is told what no learner is.
ORACLE = " (oracle)"
#: Rules that can only be asked of a method that infers parents.
NEEDS_PARENTS = ("top1-parent",)
#: Labels that :func:`expected` predicts at most where it is told no parents.
MOST_LABELS = 5
#: Images that :func:`expected` works out at once, so that memory does not grow with their number.
AT_ONCE = 2048
#: Points of an integral: exact for as many as 128 classes, and to rounding for thousands.
POINTS = 64


@dataclass(frozen=True, eq=False)
class Truth:
    """What the hierarchy says of the seen classes, and no learner is told.

    ``levels`` (s,) is each class's depth, all leaves together at the lowest; ``parents`` (s,) the
    column of the nearest seen class above it, or -1.
    """

    levels: Ints
    parents: Ints

    @classmethod
    def of(cls, hierarchy: Hierarchy, classes: tuple[str, ...]) -> "Truth":
        """Look the classes up."""
        numbers = [hierarchy.index(name) for name in classes]
        leaf = hierarchy.is_leaf[numbers]
        levels = np.where(leaf, hierarchy.depth.max(), hierarchy.depth[numbers])
        above = hierarchy.closure[np.ix_(numbers, numbers)] & ~np.eye(len(numbers), dtype=bool)
        nearest = np.where(above, hierarchy.depth[numbers], -1).argmax(axis=1)
        parents = np.where(above.any(axis=1), nearest, -1).astype(np.intp)
        return cls(frozen(levels), frozen(parents))  # many batches, and epochs, are told the same


@dataclass(frozen=True, eq=False)
class Seen:
    """What a rule is told about the seen classes, a column of raw scores each.

    ``inclusive`` tells whether a score of exactly 0 is a yes; ``parents`` (s,) the column of the
    class above each, or -1, as the method has inferred it, None where it infers none.
    """

    classes: tuple[str, ...]
    inclusive: bool = False
    parents: Ints | None = None
    truth: Truth | None = None

    @classmethod
    def of(
        cls,
        hierarchy: Hierarchy,
        classes: tuple[str, ...],
        *,
        inclusive: bool = False,
        parents: Ints | None = None,
    ) -> "Seen":
        """Return all that is known about classes of a hierarchy."""
        return cls(classes, inclusive, parents, Truth.of(hierarchy, classes))

    @property
    def oracle(self) -> Truth:
        """What only oracles may use: rules marked by :func:`oracle_rule`."""
        if self.truth is None:
            raise PolarbearError(
                "about.oracle is for rules that say they are oracles: put @polarbear.oracle_rule "
                "before the rule, and every report will say so, or do without it"
            )
        return self.truth


Rule = Callable[[RawScores, Seen], Bools]


def oracle_rule(rule: Rule) -> Rule:
    """Mark a rule that uses ``about.oracle``: what it predicts no learner could."""
    rule.oracle = True  # type: ignore[attr-defined]
    return rule


def threshold(scores: RawScores, about: Seen) -> Bools:
    """Predict each class whose score (n, s) is over 0, or 0 if inclusive: the paper's rule."""
    return scores >= 0 if about.inclusive else scores > 0


def top1(scores: RawScores, about: Seen) -> Bools:
    """Predict the likeliest class alone.

    >>> top1(np.array([[0.1, 0.9, 0.5]]), Seen(("bear", "panda", "lamp"))).tolist()
    [[False, True, False]]
    """
    predicted = np.zeros(scores.shape, dtype=bool)
    predicted[np.arange(len(scores)), scores.argmax(axis=1)] = True
    return predicted


@oracle_rule
def top1_per_level(scores: RawScores, about: Seen) -> Bools:
    """Predict the likeliest class at each level: an oracle, since no learner is told the levels."""
    predicted = np.zeros(scores.shape, dtype=bool)
    for level in np.unique(about.oracle.levels):
        columns = np.flatnonzero(about.oracle.levels == level)
        predicted[:, columns] = top1(scores[:, columns], about)
    return predicted


def top1_parent(scores: RawScores, about: Seen) -> Bools:
    """Predict the likeliest class and all above it, as the method has inferred them.

    >>> seen = Seen(("bear", "panda", "lamp"), parents=np.array([-1, 0, -1]))
    >>> top1_parent(np.array([[0.1, 0.9, 0.5]]), seen).tolist()
    [[True, True, False]]
    """
    if about.parents is None:
        raise PolarbearError(no_parents("top1-parent"))
    likeliest: Ints = scores.argmax(axis=1)
    return upwards(about.parents)[likeliest]


def expected(scores: RawScores, about: Seen) -> Bools:
    """Predict the labels with the highest expected pw-JS.

    Where the method infers parents, an image is of one class and all above it, with the softmax of
    the scores for probabilities. Else labels are independent, with the sigmoid for theirs, and the
    likeliest few are predicted.
    """
    best = _likeliest_few if about.parents is None else partial(_best_in_tree, about.parents)
    parts = [best(scores[i : i + AT_ONCE]) for i in range(0, len(scores), AT_ONCE)]
    return np.concatenate([np.zeros((0, scores.shape[1]), dtype=bool), *parts])


@oracle_rule
def expected_tree(scores: RawScores, about: Seen) -> Bools:
    """Predict as :func:`expected` with the true parents: an oracle, since no learner has them."""
    return expected(scores, replace(about, parents=about.oracle.parents))


def upwards(parents: Ints) -> Bools:
    """Return, for each class, true for itself and all above it: (s, s). No parent is -1.

    >>> upwards(np.array([1, -1, -1])).astype(int).tolist()
    [[1, 1, 0], [0, 1, 0], [0, 0, 1]]
    """
    parents = as_parents(parents, len(parents))
    found, above = np.eye(len(parents), dtype=bool), parents
    while (below := np.flatnonzero(above >= 0)).size:
        found[below, above[below]] = True
        above = np.where(above >= 0, parents[above], -1)
    return found


def _best_in_tree(parents: Ints, scores: RawScores) -> Bools:
    sets = upwards(parents)
    size = sets.sum(axis=1)
    both = sets.astype(np.intp) @ sets.T
    # Rows are what is true, columns what is predicted.
    gains = both / (size[:, None] + size - both) * both / size
    power = np.exp(scores - scores.max(axis=1, keepdims=True).astype(np.float64))
    best: Ints = (power / power.sum(axis=1, keepdims=True) @ gains).argmax(axis=1)
    return sets[best]


def _likeliest_few(scores: RawScores) -> Bools:
    """Predict the k likeliest classes, k being the best of 1 to 5 where labels are independent."""
    order = np.argsort(-scores, axis=1, kind="stable")
    falling = np.take_along_axis(scores, order, axis=1).astype(np.float64)
    probable = np.exp(-np.logaddexp(0, -falling))
    number = _expected_of_likeliest(probable).argmax(axis=1) + 1
    predicted = np.zeros(scores.shape, dtype=bool)
    within = np.arange(scores.shape[1]) < number[:, None]
    np.put_along_axis(predicted, order, within, axis=1)
    return predicted


def _expected_of_likeliest(probable: Floats) -> Floats:
    """Return the expected pw-JS of the first k labels, k = 1 to 5, of independent ones: (n, k).

    Of a labels inside that are true and b outside, a² / (k (k + b)) is expected, and a and b are
    independent. The mean of 1 / (k + b) is the integral over t from 0 to 1 of t^(k-1) times the
    product of 1 - p + p t over the labels outside: a polynomial, so that few points are exact.
    """
    most = min(MOST_LABELS, probable.shape[1])
    points, weights = np.polynomial.legendre.leggauss(min(POINTS, probable.shape[1] // 2 + 1))
    inverse = np.zeros((len(probable), most))
    for t, weight in zip((points + 1) / 2, weights / 2, strict=True):
        each = 1 - probable * (1 - t)
        outside = each[:, most:].prod(axis=1)
        for k in range(most, 0, -1):
            inverse[:, k - 1] += weight * t ** (k - 1) * outside
            outside = outside * each[:, k - 1]
    first = probable[:, :most]
    squared = first.cumsum(axis=1) ** 2 + (first * (1 - first)).cumsum(axis=1)
    gains: Floats = squared * inverse / np.arange(1, most + 1)
    return gains


DECISIONS: Mapping[str, Rule] = MappingProxyType(
    {
        USUAL: threshold,
        "top1": top1,
        "top1-parent": top1_parent,
        "expected": expected,
        "top1-per-level": top1_per_level,
        "expected-tree": expected_tree,
    }
)


@dataclass(frozen=True)
class Decision:
    """A rule with its name, and whether it is an oracle: only then it is told the truth."""

    name: str
    rule: Rule
    oracle: bool

    def __call__(self, scores: RawScores, about: Seen) -> Bools:
        """Return the classes predicted for raw scores: bool (n, s) for (n, s)."""
        found = self.rule(scores, about if self.oracle else replace(about, truth=None))
        if not isinstance(found, np.ndarray) or found.dtype != bool or found.shape != scores.shape:
            what = f"{found.dtype} {found.shape}" if isinstance(found, np.ndarray) else type(found)
            raise PredictionError(
                f"the decision rule {self.name} gives {what} for scores of {scores.shape}: it must "
                "give a bool array of that shape, true where a class is predicted"
            )
        return found


def decision(name: str) -> Decision:
    """Return a rule by name or dotted path.

    >>> decision("top1-per-level").oracle
    True
    """
    if name in DECISIONS:
        rule = DECISIONS[name]
    elif ":" in name:
        rule = find_dotted(name, "rule")
        _refuse_no_rule(name, rule)
    else:
        error = unknown_name("decision rule", name, DECISIONS)
        raise type(error)(f"{error}; or the dotted path of your own: package.module:rule")
    return Decision(name, rule, bool(getattr(rule, "oracle", False)))


def rules_in_words() -> str:
    """Return the rules there are, for people.

    >>> rules_in_words().split(", ")[-1]
    'expected-tree (oracle) or package.module:rule'
    """
    return f"{', '.join(map(rule_in_words, DECISIONS))} or package.module:rule"


def no_parents(name: str) -> str:
    """Return why a rule that needs parents cannot be asked of a method that infers none."""
    return (
        f"the decision rule {name} predicts what the method takes for a class's parents, and this "
        "method infers none: choose another rule, or a method that does, such as kin"
    )


def rule_in_words(name: str, oracle: bool = False) -> str:
    """Return a rule's name as people must read it: of an oracle, it says so.

    Whoever reads results need not trust them, so a module that they name is not imported.
    """
    known = name in DECISIONS and decision(name).oracle
    return name + ORACLE if oracle or known else name


def _refuse_no_rule(name: str, rule: object) -> None:
    try:
        if not callable(rule):
            raise TypeError
        signature(rule).bind(None, None)
    except TypeError:
        raise PolarbearError(
            f"{name} is no decision rule: it must be a function (scores, about) that gives a bool "
            "array of the scores' shape"
        ) from None
    except ValueError:  # some written in C do not say what they take
        pass
