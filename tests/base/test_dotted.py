"""Dotted paths: what is found by one, from where, and what a wrong one says."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from polarbear.base.dotted import find_dotted
from polarbear.base.errors import PolarbearError, UnknownNameError

CODE = "class Thing: ...\ndef make(): ...\ndef _hidden(): ...\nnumber = 3\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "a_file_here.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("a_file_here", None)


def test_a_file_here_is_found_and_the_path_left_as_it_was(here: Path) -> None:
    path = list(sys.path)
    assert str(here) not in path
    assert find_dotted("a_file_here:make", "function").__name__ == "make"
    assert find_dotted("a_file_here:number", "number") == 3
    assert sys.path == path


def test_what_is_installed_comes_before_a_file_here(here: Path) -> None:
    (here / "wave.py").write_text("open = None\n")
    assert find_dotted("wave:open", "function") is not None
    sys.modules.pop("wave")


def test_only_what_fits_is_suggested(here: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown class in .*a_file_here.py 'Think'") as one:
        find_dotted("a_file_here:Think", "Class", lambda value: isinstance(value, type))
    assert str(one.value).endswith("did you mean 'Thing'? Valid: Thing")
    with pytest.raises(UnknownNameError, match=r"unknown rule in .*Valid: Thing, make$"):
        find_dotted("a_file_here:mak", "rule")


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("a_file_here", "'a_file_here' is no dotted path: write package.module:rule"),
        ("a_file_here:", "is no dotted path"),
        (":make", "is no dotted path"),
        ("a_file_here:make.it", "is no dotted path"),
        ("../a_file_here:make", "is no dotted path"),
        ("not_there:make", "not_there:make: there is no module 'not_there', .* on PYTHONPATH"),
        ("a_file_here.py:make", "no module 'a_file_here.py', .*; leave out .py: a_file_here:make"),
    ],
)
def test_a_wrong_path_says_what_is_wrong_with_it(here: Path, path: str, message: str) -> None:
    with pytest.raises(PolarbearError, match=message):
        find_dotted(path, "rule")
