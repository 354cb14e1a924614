import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.optim.lr_scheduler import ReduceLROnPlateau

from polarbear.engine.task.plateau import Plateau
from polarbear.settings.settings import Settings

# Few values, so that scores are often equal, or better by just the threshold.
scores = st.lists(
    st.one_of(st.sampled_from([0.0, 0.1, 0.101, 0.102, 0.5, 0.501]), st.floats(0, 1)), max_size=60
)


def rates(settings: Settings, given: list[float]) -> list[float]:
    plateau = Plateau(settings.learning_rate)
    found = []
    for score in given:
        plateau = plateau.update(score, settings)
        found.append(plateau.rate)
    return found


# The first optimiser of a process takes seconds to import.
@given(
    scores,
    st.integers(0, 4),
    st.sampled_from([0.0, 1e-3, 0.05]),
    st.sampled_from([0.1, 0.5]),
    st.sampled_from([1.0, 0.3]),
)
def test_the_rate_is_that_of_pytorch(
    given: list[float], patience: int, threshold: float, factor: float, rate: float
) -> None:
    settings = Settings(
        "er",
        learning_rate=rate,
        plateau_patience=patience,
        plateau_threshold=threshold,
        plateau_factor=factor,
    )
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=rate)
    theirs = ReduceLROnPlateau(
        optimiser,
        mode="max",
        factor=factor,
        patience=patience,
        threshold=threshold,
        threshold_mode="abs",
        eps=0,
    )
    expected = []
    for score in given:
        theirs.step(score)
        expected.append(optimiser.param_groups[0]["lr"])
    assert rates(settings, given) == expected


def test_the_papers_schedule_falls_after_eleven_epochs_without_progress() -> None:
    settings = Settings("er")
    found = rates(settings, [0.5] + [0.5] * 23)
    assert found == [1.0] * 11 + [0.1] * 11 + [pytest.approx(0.01)] * 2


def test_progress_of_exactly_the_threshold_is_none() -> None:
    settings = Settings("er", plateau_threshold=0.25, plateau_patience=0)
    assert rates(settings, [0.5, 0.75]) == [1.0, 0.1]
    assert rates(settings, [0.5, 0.7500001]) == [1.0, 1.0]


def test_slow_progress_in_small_steps_is_measured_from_the_last_best() -> None:
    settings = Settings("er", plateau_threshold=0.1, plateau_patience=1)
    # 0.06 a time: every other epoch is over the best by more than 0.1.
    assert rates(settings, [0.1, 0.16, 0.22, 0.28, 0.34]) == [1.0] * 5


def test_there_is_no_floor() -> None:
    settings = Settings("er", plateau_patience=0)
    assert rates(settings, [0.0] * 21)[-1] == pytest.approx(1e-20)


def test_an_update_leaves_the_old_state_alone() -> None:
    before = Plateau(1.0)
    before.update(0.3, Settings("er"))
    assert before == Plateau(1.0, -math.inf, 0)
