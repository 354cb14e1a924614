"""How sure a mean over runs is, and a difference of two means: 95 % intervals of Student's t.

Pair what can be paired: two methods on the same class orders share what makes an order easy, and
the differences order by order vary less than the scores do.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from polarbear.base.arrays import Floats

#: Of all such intervals, this share holds what it is about.
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Sample:
    """What a difference needs of one side: ``std`` has n - 1 in its denominator, NaN for one run.

    >>> Sample.of([0.25, 0.5, 0.75])
    Sample(mean=0.5, std=0.25, n=3)
    """

    mean: float
    std: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float] | Floats) -> "Sample":
        """Return the sample of the values that are there: NaN is none."""
        given = np.asarray(values, np.float64)
        there = given[~np.isnan(given)]
        mean = float(there.mean()) if there.size else math.nan
        return cls(mean, float(there.std(ddof=1)) if there.size > 1 else math.nan, there.size)

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return self.std / math.sqrt(self.n) if self.n else math.nan

    @property
    def half_width(self) -> float:
        """Half of the mean's 95 % interval, NaN for fewer than two."""
        return _half_width(self.error, self.n - 1)


@dataclass(frozen=True)
class Interval:
    """A mean over ``n`` runs: in 95 of 100 such cases the true one is within ``half_width``.

    ``half_width`` is NaN for fewer than two.
    """

    mean: float
    half_width: float
    n: int


@dataclass(frozen=True)
class Difference:
    """The mean of one side less the other's; ``n`` of each, which are the same where paired.

    ``p`` is how often a difference as large would come of nothing (two-sided). It is NaN, as
    ``half_width`` is, where a side is too small to tell.
    """

    mean: float
    half_width: float
    p: float
    n: tuple[int, int]
    paired: bool

    @property
    def significant(self) -> bool:
        """Whether zero is outside the interval."""
        return abs(self.mean) > self.half_width


def interval(values: Sequence[float] | Floats) -> Interval:
    """Return the mean of independent values with its 95 % interval; NaN is no value.

    >>> found = interval([0.5, 0.6, 0.7])
    >>> round(found.mean, 3), round(found.half_width, 3), found.n
    (0.6, 0.248, 3)
    """
    sample = Sample.of(values)
    return Interval(sample.mean, sample.half_width, sample.n)


def paired(a: Sequence[float] | Floats, b: Sequence[float] | Floats) -> Difference:
    """Return the mean of a - b over pairs, such as two methods' scores on the same class orders.

    Pairs of which one is NaN do not count.

    >>> paired([0.5, 0.7, 0.6], [0.4, 0.6, 0.51]).significant
    True
    """
    sample = Sample.of(np.asarray(a, np.float64) - np.asarray(b, np.float64))
    return _judged(sample.mean, sample.error, sample.n - 1, (sample.n, sample.n), paired=True)


def difference(a: Sequence[float] | Floats, b: Sequence[float] | Floats) -> Difference:
    """Return the difference of the means of values that cannot be paired (Welch); NaN is no value.

    >>> difference([0.5, 0.7, 0.6], [0.4, 0.6, 0.51]).significant
    False
    """
    return welch(Sample.of(a), Sample.of(b))


def welch(a: Sample, b: Sample) -> Difference:
    """Return the difference of two means of which mean, deviation and number are known."""
    squares = [side.error**2 for side in (a, b)]
    error = math.sqrt(sum(squares))
    # Welch and Satterthwaite: as many as a sample with the deviation of the difference would have.
    parts = (v**2 / (side.n - 1) for v, side in zip(squares, (a, b), strict=True) if side.n > 1)
    freedom = sum(squares) ** 2 / spread if (spread := sum(parts)) > 0 else float(a.n + b.n - 2)
    return _judged(a.mean - b.mean, error, freedom, (a.n, b.n), paired=False)


def _judged(
    mean: float, error: float, freedom: float, n: tuple[int, int], *, paired: bool
) -> Difference:
    if math.isnan(error):
        return Difference(mean, math.nan, math.nan, n, paired)
    t = math.inf if mean else 0.0  # of values that are all the same
    p = two_sided(mean / error if error else t, freedom)
    return Difference(mean, _half_width(error, freedom), p, n, paired)


def _half_width(error: float, freedom: float) -> float:
    return math.nan if math.isnan(error) else quantile(freedom) * error


@lru_cache(maxsize=1024)
def quantile(freedom: float, confidence: float = CONFIDENCE) -> float:
    """Return how far out Student's t lies in as few cases as the confidence leaves.

    >>> round(quantile(9), 3)
    2.262
    """
    low, high = 0.0, 1.0
    while two_sided(high, freedom) > 1 - confidence:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if two_sided(middle, freedom) > 1 - confidence else (low, middle)
    return high


def two_sided(t: float, freedom: float) -> float:
    """Return how often Student's t is at least so far from zero.

    >>> round(two_sided(2.262, 9), 4)
    0.05
    """
    if math.isinf(t):
        return 0.0
    # The regularised incomplete beta function I_x(a, b); its fraction converges for small x.
    a, b, square = freedom / 2, 0.5, t * t
    x, rest = freedom / (freedom + square), square / (freedom + square)
    if x < (a + 1) / (a + b + 2):
        return _beta(x, rest, a, b)
    return 1 - _beta(rest, x, b, a)


def _beta(x: float, rest: float, a: float, b: float) -> float:
    """Return I_x(a, b) by its continued fraction from the inside out; ``rest`` is 1 - x."""
    if x == 0:
        return 0.0
    fraction = 0.0
    for m in range(200, -1, -1):
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)) if m else 1.0
        fraction = even / (1 + odd / (1 + fraction))
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return math.exp(scale + a * math.log(x) + b * math.log(rest)) * fraction / a
