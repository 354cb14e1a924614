"""Errors: one family, and messages that help."""

from pathlib import Path

import pytest

from polarbear.base import errors
from polarbear.base.errors import PolarbearError, UnknownNameError, install_line, unknown_name

OURS = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, Exception)
]


@pytest.mark.parametrize("error", OURS)
def test_one_except_catches_them_all_and_they_are_value_errors(error: type[Exception]) -> None:
    assert issubclass(error, PolarbearError)
    assert issubclass(error, ValueError)


def test_the_nearest_name_is_offered_and_all_are_listed() -> None:
    error = unknown_name("benchmark", "iirc-cifer", ["iirc-shapes", "iirc-cifar"])
    assert isinstance(error, UnknownNameError)
    assert str(error) == (
        "unknown benchmark 'iirc-cifer': did you mean 'iirc-cifar'? Valid: iirc-cifar, iirc-shapes"
    )


def test_case_does_not_hide_the_nearest_name() -> None:
    assert "did you mean 'polar Bear'?" in str(unknown_name("class", "POLAR BEAR", ["polar Bear"]))


def test_a_name_like_no_other_gets_no_guess() -> None:
    assert str(unknown_name("class", "zzzzz", ["bear"])) == "unknown class 'zzzzz': Valid: bear"


@pytest.mark.parametrize("name", [None, 3, b"bear", ("bear",)])
def test_anything_may_come_as_a_name(name: object) -> None:
    assert repr(name) in str(unknown_name("class", name, ["bear"]))


def test_a_long_list_is_cut_and_counted() -> None:
    message = str(unknown_name("class", "c7", [f"c{i:02d}" for i in range(57)]))
    assert message.endswith("c18, c19, … (57 in all)")
    assert "c20" not in message


def test_what_to_install_is_a_checkouts_path_only_in_a_checkout_of_ours(tmp_path: Path) -> None:
    package = tmp_path / "our work" / "src" / "polarbear"
    package.mkdir(parents=True)
    project = package.parents[1] / "pyproject.toml"
    by_name = "pip install 'polarbear-iirc[torch]'"
    assert install_line("torch", package) == by_name
    project.write_text('[project]\nname = "somebody-elses"\n')
    assert install_line("torch", package) == by_name
    project.write_text('[project]\nname = "polarbear-iirc"\n')
    assert install_line("torch", package) == f"pip install -e '{project.parent}[torch]'"


def test_this_checkout_has_the_name_that_messages_give() -> None:
    project = Path(__file__).parents[2] / "pyproject.toml"
    assert f'\nname = "{errors.DISTRIBUTION}"\n' in project.read_text(encoding="utf-8")
    assert install_line("cli").startswith("pip install -e ")
