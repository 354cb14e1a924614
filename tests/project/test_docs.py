"""The documentation: what its pages show works.

Python blocks run, page by page, one after the other in one namespace; those that need a library
for an adapter run in ``tests/adapters``. Shell blocks run between them on the pages in ``RUN``,
training with tiny settings; on the others, which need data, a network or hours, and where
CIFAR-100 is asked for, ``polarbear`` commands are parsed and not carried out. Commands of other
programs install or start something and are left alone (``OTHERS``). TOML blocks are read.
"""

import ast
import functools
import re
import shutil
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import nbformat
import pytest
import torch
from nbclient import NotebookClient

import polarbear
import polarbear.learn
import polarbear.report
from doc_pages import DOCS, PAGES, ROOT, SHELL, Block, blocks
from polarbear.cli import COMMANDS, load, main
from polarbear.cli.commands.run import plan
from polarbear.methods.catalogue import method_names
from polarbear.named import registry
from polarbear.report.figures import curves
from polarbear.score import catalogue

NOTEBOOK = DOCS / "polar_bear_story.ipynb"
RUN = (
    "docs/tutorial.md",
    "docs/your-own-method.md",
    "docs/how-to/your-own-data.md",
    "docs/how-to/your-own-loop.md",
    "docs/how-to/your-own-and-pretrained-networks.md",
    "docs/how-to/predict.md",
)
#: Making environments and installing are tried by hand and by `make`, not by the tests.
OTHERS = {".", "cd", "export", "git", "make", "pip", "python", "ray", "torchrun"}
#: Lists of files, and what Sphinx reads when the documentation is built.
NOT_CODE = {"text", "{toctree}", "{eval-rst}"}
TINY = {"--epochs": "1", "--first-task-factor": "1", "--tasks": "2", "--threads": "1"}
QUICK = {"run": TINY, "report": {"--formats": "png", "--figures": "average-pw-js"}}


def pages_with(test: Callable[[Block], object]) -> list[str]:
    return [page for page in PAGES if any(test(block) for block in blocks(page))]


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """An empty folder with the examples on the path, one thread, no benchmark registered twice."""
    for example in (ROOT / "examples").glob("*.py"):
        shutil.copy(example, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delenv("POLARBEAR_DATA", raising=False)
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    monkeypatch.setattr(registry, "_FOLDERS", {})
    monkeypatch.setattr(catalogue, "_CATALOGUE", dict(catalogue._CATALOGUE))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    for name in ("own_method", "own_images", "own_networks", "own_recorder", "prompts"):
        sys.modules.pop(name, None)


def runs_here(block: Block) -> bool:
    return block.language == "python" and not block.needs


@pytest.mark.parametrize("page", pages_with(runs_here))
def test_the_code_of_a_page_runs(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    for block in blocks(page):
        if runs_here(block):
            exec(block.compiled(page), vars(module))
        else:
            for words in filter(carried_out, block.commands if page in RUN else []):
                assert main(quick(words)) == 0, words


def carried_out(words: list[str]) -> bool:
    return "iirc-cifar" not in words


def quick(words: list[str]) -> list[str]:
    """The same command, with settings that make it quick where it has none itself."""
    more = QUICK.get(words[0], {})
    return [*words, *(w for flag in more if flag not in words for w in (flag, more[flag]))]


@pytest.mark.parametrize("page", pages_with(lambda block: block.commands))
def test_the_commands_of_a_page_are_understood(
    page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("polarbear.cli.load", lambda name: parsed_only(load(name)))
    for block in blocks(page):
        for words in block.commands:
            if page in RUN and carried_out(words):
                continue
            assert main(words) == 0, f"{page}: polarbear {' '.join(words)}: {capsys.readouterr()}"
    for name in re.findall(r"`polarbear ([a-z][a-z-]*)", PAGES[page]):
        assert name in COMMANDS


def parsed_only(function: Callable[..., None]) -> Callable[..., object]:
    if function.__module__ == "polarbear.cli.commands.run":
        return plan

    @functools.wraps(function)
    def nothing(*_: object, **__: object) -> None:
        """Do nothing."""

    return nothing


def test_a_wrong_command_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = "```bash\npolarbear run er --benchmark iirc-shapes --epoch-count 3\n```\n"
    monkeypatch.setitem(PAGES, "docs/wrong.md", wrong)
    with pytest.raises(AssertionError, match="epoch-count"):
        test_the_commands_of_a_page_are_understood("docs/wrong.md", monkeypatch, NoOutput())


class NoOutput:
    def readouterr(self) -> str:
        return ""


@pytest.mark.parametrize("page", PAGES)
def test_no_block_of_a_page_is_left_out_unsaid(page: str) -> None:
    """A block is run, parsed or read, or is of a kind that is left alone for a reason said here."""
    for block in blocks(page):
        assert block.language in {"python", "toml", *SHELL, *NOT_CODE}, block
        assert {words[0] for words in block.shell} <= OTHERS | {"polarbear"}, block
        assert not block.needs or block.language == "python", block
        if block.language == "toml":
            assert tomllib.loads(block.text)


DOORS = {"polarbear": polarbear, "learn": polarbear.learn, "report": polarbear.report}


def shown_code() -> dict[str, str]:
    """The Python that users read: pages, examples and the notebook."""
    code = {
        f"{page}, block {i}": block.text
        for page in PAGES
        for i, block in enumerate(blocks(page))
        if block.language == "python"
    }
    code |= {path.name: path.read_text() for path in (ROOT / "examples").glob("*.py")}
    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    return code | {f"cell {i}": c.source for i, c in enumerate(cells) if c.cell_type == "code"}


def past_the_doors(code: str) -> list[str]:
    """What code takes from polarbear that no door has; adapters are doors of their own."""
    taken = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import):
            taken += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            taken += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            taken += [f"polarbear.{node.attr}"] * (node.value.id == "polarbear")
            taken += [f"polarbear.learn.{node.attr}"] * (node.value.id == "learn")
    return [name for name in taken if name.split(".")[0] == "polarbear" and not at_a_door(name)]


def at_a_door(name: str) -> bool:
    _, *parts = name.split(".")
    if not parts or parts == ["learn"] or parts == ["report"] or parts[0] == "adapters":
        return True
    door = DOORS[parts.pop(0)] if parts[0] in DOORS else polarbear
    return len(parts) == 1 and parts[0] in door.__all__


def test_what_users_read_goes_through_the_front_doors() -> None:
    code = shown_code()
    assert len(code) > 20
    deep = {place: found for place, text in code.items() if (found := past_the_doors(text))}
    assert not deep


@pytest.mark.parametrize(
    "code",
    [
        "from polarbear.runs.folder import RunFolder",
        "import polarbear.engine.trainer",
        "from polarbear import score",
        "from polarbear.learn import Trainer",
        "polarbear.base.errors.DataError",
        "learn.runner",
    ],
)
def test_a_deeper_import_would_be_noticed(code: str) -> None:
    assert past_the_doors(code)


def test_every_door_has_what_it_lists() -> None:
    for door in DOORS.values():
        assert all(hasattr(door, name) for name in door.__all__)


def test_every_page_to_run_has_commands() -> None:
    assert all(any(block.commands for block in blocks(page)) for page in RUN)
    assert set(RUN) <= set(pages_with(runs_here))


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    folder = (ROOT / page).parent
    prose = re.sub(r"^```.*?^```", "", PAGES[page], flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", prose):
        if not re.match(r"[a-z]+:", target):
            assert (folder / target).exists(), f"{page}: {target}"


def test_pages_say_how_the_papers_curves_are_drawn() -> None:
    said = re.compile(r"paper's(?: own)?(?: curves)?[^.\n]*?\b(dashed|dotted)\b")
    found = [word for text in PAGES.values() for word in said.findall(text)]
    assert (set(found), curves.DOTTED) == ({"dotted"}, {"linestyle": (0, (1, 1.5))})


@pytest.mark.parametrize("page", [*PAGES, NOTEBOOK.relative_to(ROOT).as_posix()])
def test_what_is_installed_is_ours(page: str) -> None:
    """On the package index, polarbear is a stranger's and ours is not there yet: give a path."""
    text = (ROOT / page).read_text(encoding="utf-8")
    assert not re.search(r"pip install ['\"]?polarbear", text)
    assert not re.search(r"(?<!/)polarbear\[", text)


def test_every_page_and_method_is_in_a_table_of_contents() -> None:
    listed = set()
    for page, text in PAGES.items():
        for toctree in re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL):
            entries = [line for line in toctree.split("\n") if line and not line.startswith(":")]
            listed |= {(ROOT / page).parent / entry for entry in entries}
    written = [ROOT / page for page in PAGES if page.startswith("docs/")]
    pages = {path.with_suffix("") for path in (*written, *DOCS.rglob("*.ipynb"))}
    assert pages - {DOCS / "index"} == listed
    assert {DOCS / "methods" / name for name in method_names()} <= listed


# Jupyter's own libraries warn; what the notebook does is no business of theirs.
@pytest.mark.filterwarnings("ignore")
def test_the_notebook_tells_its_story(tmp_path: Path) -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    told = "".join(output.get("text", "") for output in outputs)
    assert "shown as ['dotted circle'], asked for ['circle', 'dotted circle']" in told
    implication = {line.split()[0]: float(line.split()[4]) for line in told.splitlines()[-2:]}
    assert implication["icarl-norm"] > 2 * implication["er"]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2


def test_the_notebook_is_stored_small_and_without_traces_of_a_machine() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert len(text) < 60_000
    assert not re.search(r"/(home|root|tmp|work|Users)/", text)
