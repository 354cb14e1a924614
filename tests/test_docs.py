"""The documentation: what its pages show works.

Python blocks run, page by page, one after the other in one namespace. Shell blocks run between
them on the pages in ``RUN``, training with tiny settings; on the others, ``polarbear`` commands are
parsed and not carried out.
"""

import functools
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import nbformat
import pytest
import torch
from nbclient import NotebookClient

from polarbear.cli import COMMANDS, Command, main
from polarbear.cli.run import parse
from polarbear.methods.registry import method_names

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NOTEBOOK = DOCS / "polar_bear_story.ipynb"
PAGES = {
    page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8")
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))
}
RUN = ("docs/tutorial.md", "docs/how-to/your-own-data.md", "docs/how-to/your-own-loop.md")
SHELL = ("", "bash", "sh", "console")
TINY = {"--epochs": "1", "--first-task-factor": "1", "--tasks": "2", "--threads": "1"}
QUICK = {"run": TINY, "report": {"--formats": "png", "--figures": "average-pw-js"}}


class Block(NamedTuple):
    language: str
    line: int
    text: str

    @property
    def commands(self) -> list[list[str]]:
        """The words of each ``polarbear`` command."""
        if self.language not in SHELL:
            return []
        lines = (shlex.split(line, comments=True) for line in self.text.splitlines())
        return [words[1:] for words in lines if words[:1] == ["polarbear"]]


def blocks(page: str) -> list[Block]:
    """Fenced blocks, and indented commands as blocks of one line."""
    text, found = PAGES[page], []
    for match in re.finditer(r"^```([^\n]*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        found.append(Block(match[1].strip(), text.count("\n", 0, match.start(2)), match[2]))
    for match in re.finditer(r"^ {4}(polarbear .*)$", text, re.MULTILINE):
        found.append(Block("bash", text.count("\n", 0, match.start()), match[1]))
    return sorted(found, key=lambda block: block.line)


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
    known = import_module("polarbear.benchmarks")  # polarbear.benchmarks itself is a function
    monkeypatch.setattr(known, "_REGISTRY", dict(known._REGISTRY))
    monkeypatch.setattr(known, "_FOLDERS", {})
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    sys.modules.pop("own_method", None)


@pytest.mark.parametrize("page", pages_with(lambda block: block.language == "python"))
def test_the_code_of_a_page_runs(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    for block in blocks(page):
        if block.language == "python":
            # Empty lines first, so that a traceback names the line of the page.
            code = compile("\n" * block.line + block.text, ROOT / page, "exec")
            exec(code, vars(module))
        elif page in RUN:
            for words in block.commands:
                assert main(quick(words)) == 0, words


def quick(words: list[str]) -> list[str]:
    """The same command, with settings that make it quick where it has none itself."""
    more = QUICK.get(words[0], {})
    return [*words, *(w for flag in more if flag not in words for w in (flag, more[flag]))]


@pytest.mark.parametrize("page", pages_with(lambda block: block.commands))
def test_the_commands_of_a_page_are_understood(
    page: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    load = Command.load
    monkeypatch.setattr(Command, "load", lambda command: parsed_only(load(command)))
    for block in blocks(page):
        for words in block.commands if page not in RUN else []:
            assert main(words) == 0, f"{page}: polarbear {' '.join(words)}: {capsys.readouterr()}"
    for name in re.findall(r"`polarbear ([a-z][a-z-]*)", PAGES[page]):
        assert name in COMMANDS


def parsed_only(function: Callable[..., None]) -> Callable[..., object]:
    if function.__module__ == "polarbear.cli.run":
        return parse

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


def test_every_page_to_run_has_commands() -> None:
    assert all(any(block.commands for block in blocks(page)) for page in RUN)


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    folder = (ROOT / page).parent
    prose = re.sub(r"^```.*?^```", "", PAGES[page], flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", prose):
        if not re.match(r"[a-z]+:", target):
            assert (folder / target).exists(), f"{page}: {target}"


def test_every_page_and_method_is_in_a_table_of_contents() -> None:
    listed = set()
    for page, text in PAGES.items():
        for toctree in re.findall(r"```\{toctree\}\n(.*?)```", text, re.DOTALL):
            entries = [line for line in toctree.split("\n") if line and not line.startswith(":")]
            listed |= {(ROOT / page).parent / entry for entry in entries}
    pages = {path.with_suffix("") for path in (*DOCS.rglob("*.md"), *DOCS.rglob("*.ipynb"))}
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
