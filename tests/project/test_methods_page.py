"""The page of all methods says what their classes and the files in ``results`` say."""

from types import ModuleType

import pytest

from doc_pages import bench_script


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    """Return the script that writes the page."""
    return bench_script("methods_page")


def test_the_page_is_what_the_script_writes(maker: ModuleType) -> None:
    page = maker.PAGE.read_text(encoding="utf-8")
    assert maker.written(page) == page, "run python bench/methods_page.py"


@pytest.mark.parametrize(
    ("name", "millions"),
    [
        ("finetune", 7.6),
        ("er", 11.1),
        ("er-infinite", 85),
        ("incremental-joint", 76),
        ("joint", 16),
    ],
)
def test_images_passed_are_those_of_the_specification(
    maker: ModuleType, name: str, millions: float
) -> None:
    assert float(maker.costs(name)[-1]) == pytest.approx(millions, abs=0.05)


def test_what_kin_keeps_is_what_its_page_says(maker: ModuleType) -> None:
    images, networks, megabytes, told, _ = maker.costs("kin")
    assert (images, networks, told) == ("20 per class", "22", "task borders")
    assert float(megabytes) == pytest.approx(7.1 + 41.6, abs=0.5)
