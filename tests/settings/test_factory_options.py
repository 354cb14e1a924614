"""Options of factories: what their annotations and defaults say, and what is refused."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pytest

from polarbear.base.errors import PolarbearError, UnknownNameError
from polarbear.settings.factory_options import refuse_unfit_options

if TYPE_CHECKING:
    from absent import Absent


def says(
    depth: int,
    frozen: bool = False,
    drop: float | None = 0.1,
    side: int = None,  # type: ignore[assignment]  # noqa: RUF013 (as older code has it)
    **rest: float,
) -> None: ...


def by_default(wide=False, drop=0, name="vit", weights=None, sizes=(1, 2)) -> None: ...


def takes_text(
    name: str, width: int | str = 3, how: Literal["a"] = "a", anything: Any = 1, **rest
) -> None: ...


def absent(depth: int = 2, made: Absent = None) -> None: ...


class Made:
    def __init__(self, depth: int) -> None: ...


def look(function: Any, **options: Any) -> None:
    refuse_unfit_options("network", "my:net", function, options)


@pytest.mark.parametrize(
    ("function", "options", "allowed"),
    [
        (says, {"depth": "one"}, "a whole number"),
        (says, {"depth": 1.5}, "a whole number"),
        (says, {"depth": True}, "a whole number"),
        (says, {"depth": None}, "a whole number"),
        (says, {"depth": [1]}, "a whole number"),
        (says, {"frozen": "False"}, "true or false"),
        (says, {"frozen": "no"}, "true or false"),
        (says, {"frozen": 1}, "true or false"),
        (says, {"drop": "0,1"}, "a number or null"),
        (says, {"drop": False}, "a number or null"),
        (says, {"side": "64px"}, "a whole number"),
        (says, {"rate": "low"}, "a number"),
        (by_default, {"wide": "no"}, "true or false or null"),
        (by_default, {"wide": 0}, "true or false or null"),
        (by_default, {"drop": "low"}, "a number or null"),
        (by_default, {"drop": True}, "a number or null"),
        (absent, {"depth": "one"}, "a number or null"),
        (Made, {"depth": "one"}, "a whole number"),
        (partial(says, frozen=True), {"depth": "one"}, "a whole number"),
    ],
)
def test_a_value_that_would_be_misread_is_refused(
    function: Any, options: dict[str, Any], allowed: str
) -> None:
    ((name, value),) = options.items()
    with pytest.raises(PolarbearError) as caught:
        look(function, **options)
    assert str(caught.value) == (
        f"the option {name} of my:net must be {allowed}, not {value!r}: values on the command "
        "line are JSON, such as true, 0.5 or null, and all else is text"
    )


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (says, {"depth": 1, "frozen": True, "drop": None, "side": None, "rate": 3}),
        (says, {"depth": np.int64(1), "frozen": np.True_, "drop": np.float32(1)}),
        (by_default, {"wide": True, "drop": 0.5, "name": 3, "weights": "a.pt", "sizes": "tiny"}),
        (by_default, {"wide": [True], "drop": None}),
        (takes_text, {"name": "False", "width": "wide", "how": "c", "anything": "1", "more": "x"}),
        (takes_text, {"name": 3, "width": None}),
        (absent, {"depth": 3, "made": "anything"}),
        (dict, {"depth": "one"}),  # written in C, says nothing
    ],
)
def test_what_fits_or_may_be_anything_is_passed(function: Any, options: dict[str, Any]) -> None:
    look(function, **options)


def test_names_are_looked_at_before_values() -> None:
    with pytest.raises(UnknownNameError, match="unknown option of my:net 'wid': did you mean 'wid"):
        look(by_default, wid="no")
    with pytest.raises(PolarbearError, match="'my:net' needs depth: give network_options, or a de"):
        look(says, frozen=True)
