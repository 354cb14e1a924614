"""The pages of the documentation and their blocks of code, as the tests run them."""

import re
import shlex
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
FILES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md")))
#: What the report writes into docs/figures are parts of pages, without code.
PAGES = {
    page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8")
    for page in FILES
    if page.parent != DOCS / "figures"
}
SHELL = ("", "bash", "sh", "console")
FENCED = re.compile(
    r"^(?:<!-- needs: (?P<needs>[^\n]+) -->\n)?```(?P<language>[^\n]*)\n(?P<text>.*?)^```",
    re.MULTILINE | re.DOTALL,
)


def bench_script(name: str) -> ModuleType:
    """Return a script of ``bench``, such as one that writes a page, as a module."""
    spec = spec_from_file_location(name, ROOT / "bench" / f"{name}.py")
    module = module_from_spec(spec)
    sys.path.insert(0, str(ROOT / "bench"))  # as Python does with the folder of a script
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(ROOT / "bench"))
    return module


class Block(NamedTuple):
    """A block of a page; ``needs`` names a library it runs with that the tests may not have."""

    language: str
    line: int
    text: str
    needs: str = ""

    @property
    def shell(self) -> list[list[str]]:
        """The words of each command."""
        if self.language not in SHELL:
            return []
        lines = (shlex.split(line, comments=True) for line in self.text.splitlines())
        return [words for words in lines if words]

    @property
    def commands(self) -> list[list[str]]:
        """The words after ``polarbear`` of each of its commands, also of those torchrun starts."""
        starts = [words for words in self.shell if words[0] in ("polarbear", "torchrun")]
        return [words[words.index("polarbear") + 1 :] for words in starts]

    def compiled(self, page: str) -> object:
        """Return the code; empty lines first, so that a traceback names the line of the page."""
        return compile("\n" * self.line + self.text, ROOT / page, "exec")


def blocks(page: str) -> list[Block]:
    """Fenced blocks, and indented commands as blocks of one line."""
    text, found = PAGES[page], []
    for match in FENCED.finditer(text):
        line = text.count("\n", 0, match.start("text"))
        language, needs = match["language"].strip(), match["needs"] or ""
        found.append(Block(language, line, match["text"], needs))
    for match in re.finditer(r"^ {4}(polarbear .*)$", text, re.MULTILINE):
        found.append(Block("bash", text.count("\n", 0, match.start()), match[1]))
    return sorted(found, key=lambda block: block.line)
