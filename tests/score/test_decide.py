import sys
import types
from dataclasses import replace
from itertools import product
from math import exp, prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from polarbear.base.errors import PolarbearError, PredictionError, UnknownNameError
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.score.decide import (
    AT_ONCE,
    DECISIONS,
    MOST_LABELS,
    POINTS,
    RawScores,
    Seen,
    Truth,
    _expected_of_likeliest,
    decision,
    expected,
    oracle_rule,
    rule_in_words,
    threshold,
    top1,
    top1_parent,
    top1_per_level,
)

Row = list[float]


def about(levels: np.ndarray, inclusive: bool = False) -> Seen:
    """What is known of classes of these levels, of which none has a class above it."""
    truth = Truth(levels, np.full(len(levels), -1))
    return Seen(tuple(f"class {i}" for i in range(len(levels))), inclusive, truth=truth)


def slow_threshold(row: Row, inclusive: bool, levels: list[int]) -> set[int]:
    return {i for i, score in enumerate(row) if score > 0 or (inclusive and score == 0)}


def slow_top1(row: Row, inclusive: bool, levels: list[int]) -> set[int]:
    return {row.index(max(row))}


def slow_top1_per_level(row: Row, inclusive: bool, levels: list[int]) -> set[int]:
    named = set()
    for level in set(levels):
        best = max(score for score, mine in zip(row, levels, strict=True) if mine == level)
        named.add(
            next(i for i, s in enumerate(row) if s == best and levels[i] == level),
        )
    return named


TWINS = {
    "threshold": slow_threshold,
    "top1": slow_top1,
    "top1-per-level": slow_top1_per_level,
}


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray]:
    """Scores with many ties and many zeros, and levels in any order."""
    n, s = draw(st.integers(0, 6)), draw(st.integers(1, 7))
    values = st.one_of(st.sampled_from([-1.0, -0.0, 0.0, 0.5, 1.0]), st.floats(-9, 9, width=32))
    scores = draw(arrays.arrays(np.float32, (n, s), elements=values))
    levels = draw(arrays.arrays(np.intp, s, elements=st.integers(0, 3)))
    return scores, levels


@pytest.mark.parametrize("name", sorted(TWINS))
@given(problems(), st.booleans())
def test_a_rule_is_its_slow_twin(
    name: str, problem: tuple[np.ndarray, np.ndarray], inclusive: bool
) -> None:
    scores, levels = problem
    before = scores.copy()
    named = decision(name)(scores, about(levels, inclusive))
    assert named.dtype == bool
    assert named.shape == scores.shape
    assert [set(np.flatnonzero(row)) for row in named] == [
        TWINS[name](row, inclusive, levels.tolist()) for row in scores.tolist()
    ]
    assert np.array_equal(scores, before)


# --- rules that know parents, or reckon with how probable labels are ----------------------------


def slow_line(label: int, parents: list[int]) -> frozenset[int]:
    """A class and all above it."""
    return frozenset() if label < 0 else slow_line(parents[label], parents) | {label}


def slow_pw_js(predicted: frozenset[int], true: frozenset[int]) -> float:
    return len(predicted & true) ** 2 / (len(predicted | true) * len(predicted))


Gains = dict[frozenset[int], float]


def slow_gains_in_tree(row: Row, parents: list[int]) -> Gains:
    """What each set that a tree allows is expected to score, its states being the classes."""
    weights = [exp(score) for score in row]
    lines = [slow_line(label, parents) for label in range(len(row))]
    return {
        line: sum(w * slow_pw_js(line, true) for w, true in zip(weights, lines, strict=True))
        / sum(weights)
        for line in lines
    }


def slow_gains_of_independent(row: Row) -> Gains:
    """What the k likeliest labels are expected to score, over all sets that could be true."""
    chances = [1 / (1 + exp(-score)) for score in row]
    likeliest = sorted(range(len(row)), key=lambda label: -row[label])
    return {
        first: sum(
            prod(p if yes else 1 - p for p, yes in zip(chances, case, strict=True))
            * slow_pw_js(first, frozenset(i for i, yes in enumerate(case) if yes))
            for case in product((False, True), repeat=len(row))
        )
        for k in range(1, min(MOST_LABELS, len(row)) + 1)
        for first in [frozenset(likeliest[:k])]
    }


KINDRED = {
    "top1-parent": lambda row, guess, truth: {slow_line(row.index(max(row)), guess): 1.0},
    "expected": lambda row, guess, truth: slow_gains_in_tree(row, guess),
    "expected-tree": lambda row, guess, truth: slow_gains_in_tree(row, truth),
}


def test_every_rule_has_a_twin() -> None:
    assert DECISIONS.keys() == TWINS.keys() | KINDRED.keys()


@st.composite
def trees(draw: st.DrawFn, s: int) -> np.ndarray:
    """Parents of s classes, which may come before or after them."""
    arrival = draw(st.permutations(range(s)))
    parents = np.full(s, -1)
    for place, label in enumerate(arrival):
        parents[label] = draw(st.sampled_from([-1, *arrival[:place]]))
    return parents


def refuse_worse(predicted: np.ndarray, gains: Gains) -> None:
    """What is predicted must be among the best; which of equal ones, rounding may say."""
    mine = frozenset(np.flatnonzero(predicted).tolist())
    assert gains[mine] >= max(gains.values()) - 1e-12


@pytest.mark.parametrize("name", sorted(KINDRED))
@given(st.data(), problems())
def test_a_rule_with_parents_is_its_slow_twin(
    name: str, data: st.DataObject, problem: tuple[np.ndarray, np.ndarray]
) -> None:
    scores, levels = problem
    guess, truth = data.draw(trees(len(levels))), data.draw(trees(len(levels)))
    before, seen = scores.copy(), Seen(("",) * len(levels), False, guess, Truth(levels, truth))
    predicted = decision(name)(scores, seen)
    for row, found in zip(scores.tolist(), predicted, strict=True):
        refuse_worse(found, KINDRED[name](row, guess.tolist(), truth.tolist()))
    assert np.array_equal(scores, before)


@given(problems())
def test_without_parents_labels_are_reckoned_independent(
    problem: tuple[np.ndarray, np.ndarray],
) -> None:
    scores, levels = problem
    for row, found in zip(scores.tolist(), expected(scores, about(levels)), strict=True):
        refuse_worse(found, slow_gains_of_independent(row))


def test_the_expectation_is_right_for_many_classes_too() -> None:
    random = np.random.default_rng(0)
    for number in (5, 2 * POINTS, 1083):
        chances = -np.sort(-(random.random((4, number)) ** [[1], [3], [30], [300]]), axis=1)
        found = _expected_of_likeliest(chances)
        for row, gains in zip(chances, found, strict=True):
            for k, gain in enumerate(gains, start=1):
                inside, outside = distribution(row[:k]), distribution(row[k:])
                a, b = np.arange(k + 1), np.arange(len(outside))
                mean = inside @ (a[:, None] ** 2 / (k * (k + b))) @ outside
                assert gain == pytest.approx(mean, rel=1e-9)


def distribution(chances: np.ndarray) -> np.ndarray:
    """How probable it is that 0, 1, 2, … of independent labels are true."""
    found = np.ones(1)
    for p in chances:
        found = np.convolve(found, [1 - p, p])
    return found


def test_what_is_expected_does_not_depend_on_the_other_images() -> None:
    scores = np.random.default_rng(0).normal(size=(AT_ONCE + 3, 9)).astype(np.float16)
    for seen in (
        about(np.zeros(9)),
        Seen(("",) * 9, parents=np.array([-1, 0, 0, 0, -1, *[4] * 4])),
    ):
        together = expected(scores, seen)
        assert len(together) == len(scores)
        assert np.array_equal(together[-5:], expected(scores[-5:], seen))


def test_parents_are_asked_of_methods_that_infer_them_alone() -> None:
    scores = np.array([[0.2, 0.7]])
    assert top1_parent(scores, Seen(("bear", "polar"), parents=np.array([-1, 0]))).all()
    with pytest.raises(PolarbearError, match=r"top1-parent predicts .* this method infers none"):
        top1_parent(scores, Seen(("bear", "polar")))
    with pytest.raises(PredictionError, match="and no circle"):
        top1_parent(scores, Seen(("bear", "polar"), parents=np.array([1, 0])))


def test_a_score_of_zero_is_named_by_inclusive_methods_alone() -> None:
    scores, levels = np.array([[0.0, -0.0, 1e-30, -1e-30]]), np.zeros(4, dtype=np.intp)
    assert threshold(scores, about(levels)).tolist() == [[False, False, True, False]]
    assert threshold(scores, about(levels, True)).tolist() == [[True, True, True, False]]


def test_of_equal_scores_the_first_class_is_named() -> None:
    scores, levels = np.array([[0.5, 0.5, 0.1, 0.1]]), np.array([0, 0, 1, 1])
    assert top1(scores, about(levels)).tolist() == [[True, False, False, False]]
    assert top1_per_level(scores, about(levels)).tolist() == [[True, False, True, False]]


def test_the_likeliest_is_named_even_if_it_is_unlikely() -> None:
    scores, levels = np.array([[-5.0, -3.0, -4.0]]), np.array([1, 1, 0])
    assert top1(scores, about(levels)).tolist() == [[False, True, False]]
    assert top1_per_level(scores, about(levels)).tolist() == [[False, True, True]]


@given(problems())
def test_rules_take_scores_as_they_are_kept(problem: tuple[np.ndarray, np.ndarray]) -> None:
    scores, levels = problem
    told = replace(about(levels), parents=np.full(len(levels), -1))
    for rule in DECISIONS.values():
        assert rule(scores.astype(np.float16), told).shape == scores.shape


def test_an_unknown_rule_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        UnknownNameError,
        match="did you mean 'threshold'\\? Valid: expected, expected-tree, threshold",
    ):
        decision("treshold")
    with pytest.raises(UnknownNameError, match="did you mean 'top1-per-level'"):
        decision("top1_per_level")


BEARS = Hierarchy.from_parents(
    {"animal": None, "bear": "animal", "dog": "animal", "polar": "bear", "brown": "bear"}
    | {"lamp": None}
)


def test_the_truth_about_the_seen_classes_is_the_hierarchys() -> None:
    truth = Truth.of(BEARS, ("polar", "lamp", "bear", "animal", "dog"))
    assert truth.levels.tolist() == [2, 2, 1, 0, 2]
    assert truth.parents.tolist() == [2, -1, 3, -1, 3]
    # Of a class above that has not come yet, nothing is known: the next one up is.
    assert Truth.of(BEARS, ("animal", "polar")).parents.tolist() == [-1, 0]
    for array in (truth.levels, truth.parents):  # a rule that wrote there would mislead the next
        with pytest.raises(ValueError, match="read-only"):
            array += 1


def own_rules(**rules: object) -> types.ModuleType:
    module = types.ModuleType("own_rules")
    vars(module).update(rules)
    return module


def best_two(scores: RawScores, about: Seen) -> np.ndarray:
    return scores >= np.sort(scores, axis=1)[:, -2:-1]


def peeking(scores: RawScores, about: Seen) -> np.ndarray:
    return np.broadcast_to(about.oracle.parents < 0, scores.shape)


def test_a_rule_of_ones_own_comes_by_its_dotted_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "own_rules", own_rules(best_two=best_two))
    rule, seen = decision("own_rules:best_two"), Seen.of(BEARS, ("polar", "bear", "lamp"))
    assert rule(np.array([[0.1, -0.3, -0.2]]), seen).tolist() == [[True, False, True]]
    assert (rule.name, rule.oracle) == ("own_rules:best_two", False)


def test_only_a_rule_that_says_it_is_an_oracle_is_told_the_truth(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scores, seen = np.zeros((1, 2)), Seen.of(BEARS, ("polar", "bear"))
    monkeypatch.setitem(sys.modules, "own_rules", own_rules(peeking=peeking))
    with pytest.raises(PolarbearError, match=r"put @polarbear\.oracle_rule before the rule"):
        decision("own_rules:peeking")(scores, seen)
    sound = own_rules(peeking=oracle_rule(lambda scores, about: peeking(scores, about)))
    monkeypatch.setitem(sys.modules, "own_rules", sound)
    rule = decision("own_rules:peeking")
    assert rule.oracle
    assert rule(scores, seen).tolist() == [[False, True]]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (3, "own_rules:rule is no decision rule: it must be a function"),
        (lambda scores: scores > 0, "no decision rule: it must be a function \\(scores, about\\)"),
        (lambda scores, about: scores, "gives float64 \\(2, 3\\) for scores of \\(2, 3\\)"),
        (lambda scores, about: scores[0] > 0, "gives bool \\(3,\\) for scores of \\(2, 3\\)"),
        (lambda scores, about: [[True]], "gives <class 'list'> for scores"),
    ],
)
def test_what_is_no_rule_is_refused(
    monkeypatch: pytest.MonkeyPatch, rule: object, message: str
) -> None:
    monkeypatch.setitem(sys.modules, "own_rules", own_rules(rule=rule))
    with pytest.raises(PolarbearError, match=message):
        decision("own_rules:rule")(np.zeros((2, 3)), Seen(("a", "b", "c")))


def test_whoever_reads_of_an_oracle_is_told() -> None:
    assert [rule_in_words(name) for name in (*DECISIONS, "own")] == [
        *("threshold", "top1", "top1-parent", "expected"),
        *("top1-per-level (oracle)", "expected-tree (oracle)", "own"),
    ]
    assert rule_in_words("not_there:rule") == "not_there:rule"  # and nothing is imported
    assert rule_in_words("not_there:rule", oracle=True) == "not_there:rule (oracle)"
