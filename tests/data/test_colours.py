"""Mean and deviation of the colours of images."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from polarbear.base.arrays import Pixels
from polarbear.data import colours
from polarbear.data.colours import Colours, colours_of

COUNT = 37


@pytest.fixture(autouse=True)
def _few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(colours, "AT_ONCE", 8)


def images(seed: int = 0) -> Pixels:
    random = np.random.default_rng(seed)
    drawn = random.integers(0, 256, (COUNT, 5, 4, 3)) * [1.0, 0.5, 0.1]
    return drawn.astype(np.uint8)


def exact(values: list[int]) -> tuple[float, Fraction]:
    """Return the mean, rounded once, and the variance of pixel values, of 255ths."""
    mean = Fraction(sum(values), 255 * len(values))
    squares = Fraction(sum(value * value for value in values), 255**2 * len(values))
    return float(mean), squares - mean**2


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_in_the_sums(seed: int) -> None:
    found = colours_of(images(seed))
    for colour in range(3):
        mean, variance = exact(images(seed)[..., colour].ravel().tolist())
        assert found.mean[colour] == mean
        assert found.std[colour] == pytest.approx(float(variance) ** 0.5, rel=1e-15)


def test_a_deviation_far_smaller_than_the_mean() -> None:
    """One pixel of a hundred million: a sum of floats would have lost it."""
    bright = np.full((1, 1000, 1000, 3), 255, np.uint8)
    bright[0, 0, 0] = 254

    class Many:
        def __len__(self) -> int:
            return 100

        def __getitem__(self, rows: slice) -> Pixels:
            counted = range(*rows.indices(100))
            plain = np.full((1, 1000, 1000, 3), 255, np.uint8)
            return np.concatenate([plain if row else bright for row in counted])

    n = 10**8
    expected = (Fraction(1, n) - Fraction(1, n**2)) / 255**2
    assert colours_of(Many()).std[0] == pytest.approx(float(expected) ** 0.5, rel=1e-14)


def test_a_colour_that_is_everywhere_the_same_divides_by_one() -> None:
    grey = images()
    grey[..., 2] = 51
    found = colours_of(grey)
    assert (found.mean[2], found.std[2]) == (0.2, 1.0)


def test_how_far_it_is_is_told() -> None:
    told: list[Any] = []
    colours_of(images(), lambda *at: told.append(at))
    assert told == [(8, 37), (16, 37), (24, 37), (32, 37), (37, 37)]


def test_what_cannot_be_normalised_by_is_refused() -> None:
    with pytest.raises(colours.PolarbearError, match="std must be three numbers over 0"):
        Colours((0, 0, 0), (1, 1, 0))
