"""Intervals and tests against SciPy's."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from polarbear.score.intervals import (
    Difference,
    Sample,
    difference,
    interval,
    paired,
    quantile,
    two_sided,
    welch,
)

SCORES = st.lists(st.floats(0, 1, width=16), min_size=2, max_size=12)


@given(st.floats(0.5, 1e5), st.floats(0, 60))
def test_the_tails_are_scipys(freedom: float, t: float) -> None:
    assert two_sided(t, freedom) == pytest.approx(2 * stats.t.sf(t, freedom), rel=1e-8, abs=1e-12)
    assert two_sided(-t, freedom) == two_sided(t, freedom)


@given(st.floats(0.5, 1e5), st.sampled_from([0.5, 0.9, 0.95, 0.99]))
def test_the_quantiles_are_scipys(freedom: float, confidence: float) -> None:
    due = stats.t.ppf((1 + confidence) / 2, freedom)
    assert quantile(freedom, confidence) == pytest.approx(due, rel=1e-8)


def test_the_quantile_of_many_is_the_normal_one() -> None:
    assert quantile(1e6) == pytest.approx(stats.norm.ppf(0.975), rel=1e-5)


@given(SCORES)
def test_an_interval_is_scipys(values: list[float]) -> None:
    found = interval(values)
    error = stats.sem(values)
    assert (found.mean, found.n) == (pytest.approx(np.mean(values)), len(values))
    due = stats.t.ppf(0.975, len(values) - 1) * error
    assert found.half_width == pytest.approx(due, abs=1e-12)


def noisy(seed: int, n: int, level: float) -> np.ndarray:
    return np.random.default_rng(seed).normal(level, 0.05, n)


@pytest.mark.parametrize("seed", range(5))
def test_pairs_are_scipys(seed: int) -> None:
    a, b = noisy(seed, 10, 0.5), noisy(seed + 100, 10, 0.53)
    found, due = paired(a, b), stats.ttest_rel(a, b)
    low, high = due.confidence_interval(0.95)
    assert found.p == pytest.approx(due.pvalue)
    assert (found.mean - found.half_width, found.mean + found.half_width) == pytest.approx(
        (low, high)
    )
    assert (found.n, found.paired) == ((10, 10), True)


@pytest.mark.parametrize("seed", range(5))
def test_unpaired_samples_are_scipys(seed: int) -> None:
    a, b = noisy(seed, 4, 0.5), 3 * noisy(seed + 100, 10, 0.2)
    found, due = difference(a, b), stats.ttest_ind(a, b, equal_var=False)
    low, high = due.confidence_interval(0.95)
    assert found.p == pytest.approx(due.pvalue)
    assert (found.mean - found.half_width, found.mean + found.half_width) == pytest.approx(
        (low, high)
    )
    assert (found.n, found.paired) == ((4, 10), False)
    told = (Sample(float(x.mean()), float(x.std(ddof=1)), len(x)) for x in (a, b))
    assert welch(*told) == found


def test_nan_is_no_value() -> None:
    nan = math.nan
    assert interval([0.5, nan, 0.7]) == interval([0.5, 0.7])
    assert difference([0.5, nan, 0.7], [0.1, 0.2]) == difference([0.5, 0.7], [0.1, 0.2])
    assert paired([0.5, nan, 0.7, 0.8], [0.1, 0.3, 0.2, nan]) == paired([0.5, 0.7], [0.1, 0.2])


def same(found: Difference, mean: float, p: float, n: tuple[int, int]) -> bool:
    return (found.n, found.significant) == (n, False) and np.array_equal(
        [found.mean, found.half_width, found.p], [mean, math.nan, p], equal_nan=True
    )


def test_one_run_says_nothing_of_chance() -> None:
    one, none = interval([0.5]), interval([])
    assert (one.mean, one.n, none.n) == (0.5, 1, 0)
    assert all(map(math.isnan, (one.half_width, none.mean, none.half_width)))
    assert same(difference([0.5], [0.25, 0.25]), 0.25, math.nan, (1, 2))
    assert same(paired([0.5], [0.25]), 0.25, math.nan, (1, 1))
    assert same(paired([], []), math.nan, math.nan, (0, 0))


def test_values_that_are_all_the_same() -> None:
    for compare in (paired, difference):
        equal, apart = compare([0.5, 0.5], [0.5, 0.5]), compare([0.75, 0.75], [0.5, 0.5])
        assert (equal.p, equal.half_width, equal.significant) == (1.0, 0.0, False)
        assert (apart.p, apart.half_width, apart.significant) == (0.0, 0.0, True)
