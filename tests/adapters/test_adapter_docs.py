"""The documentation's blocks for other libraries run where these are installed."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from doc_pages import PAGES, Block, blocks

PAGE = "docs/how-to/other-libraries.md"
FOUND = [(page, block) for page in PAGES for block in blocks(page) if block.needs]


def named(of: object) -> str:
    return f"{of.needs}-line-{of.line}" if isinstance(of, Block) else str(of)


@pytest.mark.parametrize(("page", "block"), FOUND, ids=named)
def test_a_block_runs_with_its_library(
    library: Callable[[str], ModuleType],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    page: str,
    block: Block,
) -> None:
    library(block.needs)
    monkeypatch.chdir(tmp_path)
    exec(block.compiled(page), {"__name__": "page"})


def test_the_page_has_a_block_for_every_library() -> None:
    needed = {block.needs for page, block in FOUND if page == PAGE}
    assert needed == {
        *("tensorflow", "jax", "grain", "datasets", "torchmetrics", "avalanche", "continuum")
    }


def test_every_adapter_is_in_the_how_to_and_in_the_reference() -> None:
    import polarbear.adapters

    folder = Path(polarbear.adapters.__file__).parent
    shared = {"__init__", "missing", "samples"}
    for module in {file.stem for file in folder.glob("*.py")} - shared:
        assert f"`{module}`" in PAGES[PAGE], module
        assert f"polarbear.adapters.{module}." in PAGES["docs/reference/adapters.md"], module
