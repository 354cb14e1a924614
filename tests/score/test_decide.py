import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from polarbear.base.errors import UnknownNameError
from polarbear.score.decide import DECISIONS, decision, threshold, top1, top1_per_level

Row = list[float]


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


@pytest.mark.parametrize("name", sorted(DECISIONS))
@given(problems(), st.booleans())
def test_a_rule_is_its_slow_twin(
    name: str, problem: tuple[np.ndarray, np.ndarray], inclusive: bool
) -> None:
    scores, levels = problem
    before = scores.copy()
    named = decision(name)(scores, inclusive, levels)
    assert named.dtype == bool
    assert named.shape == scores.shape
    assert [set(np.flatnonzero(row)) for row in named] == [
        TWINS[name](row, inclusive, levels.tolist()) for row in scores.tolist()
    ]
    assert np.array_equal(scores, before)


def test_every_rule_has_a_twin() -> None:
    assert DECISIONS.keys() == TWINS.keys()


def test_a_score_of_zero_is_named_by_inclusive_methods_alone() -> None:
    scores, levels = np.array([[0.0, -0.0, 1e-30, -1e-30]]), np.zeros(4, dtype=np.intp)
    assert threshold(scores, False, levels).tolist() == [[False, False, True, False]]
    assert threshold(scores, True, levels).tolist() == [[True, True, True, False]]


def test_of_equal_scores_the_first_class_is_named() -> None:
    scores, levels = np.array([[0.5, 0.5, 0.1, 0.1]]), np.array([0, 0, 1, 1])
    assert top1(scores, False, levels).tolist() == [[True, False, False, False]]
    assert top1_per_level(scores, False, levels).tolist() == [[True, False, True, False]]


def test_the_likeliest_is_named_even_if_it_is_unlikely() -> None:
    scores, levels = np.array([[-5.0, -3.0, -4.0]]), np.array([1, 1, 0])
    assert top1(scores, False, levels).tolist() == [[False, True, False]]
    assert top1_per_level(scores, False, levels).tolist() == [[False, True, True]]


@given(problems())
def test_rules_take_scores_as_they_are_kept(problem: tuple[np.ndarray, np.ndarray]) -> None:
    scores, levels = problem
    for rule in DECISIONS.values():
        assert rule(scores.astype(np.float16), False, levels).shape == scores.shape


def test_an_unknown_rule_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        UnknownNameError, match="did you mean 'threshold'\\? Valid: threshold, top1"
    ):
        decision("treshold")
    with pytest.raises(UnknownNameError, match="did you mean 'top1-per-level'"):
        decision("top1_per_level")
