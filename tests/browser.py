"""A real browser for tests of the page: Debian's chromium, driven by Playwright."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

# Without these, chromium looks for updates, fonts and components on the network.
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
)


def chromium() -> str:
    """The browser's path; the test is skipped where it is not installed."""
    pytest.importorskip("playwright", reason="needs playwright (the extra dev)")
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("needs Debian's chromium (apt-get install chromium), which is not installed")
    return path


def axe() -> str:
    """The text of axe-core, which finds barriers; the test is skipped where it is not installed."""
    given = os.environ.get("POLARBEAR_AXE")
    if given is None and shutil.which("npm") is not None:
        asked = subprocess.run(["npm", "root", "-g"], capture_output=True, text=True, check=False)
        given = f"{asked.stdout.strip()}/axe-core/axe.min.js"
    if given is None or not Path(given).is_file():
        pytest.skip("needs axe-core: npm install -g axe-core, or POLARBEAR_AXE=its axe.min.js")
    return Path(given).read_text(encoding="utf-8")


@dataclass
class Opened:
    """A page with what it complained about and what it asked of the network."""

    page: Any
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)


@contextmanager
def launched() -> Iterator[Any]:
    """Start the browser; one serves many pages."""
    path = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def opened(browser: Any, file: Path, view: str = "", **context: Any) -> Iterator[Opened]:
    """Open a file at a view, such as #task=3; ``context`` is Playwright's: viewport, …"""
    settings = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **context})
    page = settings.new_page()
    seen = Opened(page)
    page.on("console", lambda said: _note(seen, said))
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.on("request", lambda request: seen.requests.append(request.url))
    try:
        page.goto(file.resolve().as_uri() + view)
        yield seen
    finally:
        settings.close()


def _note(seen: Opened, said: Any) -> None:
    if said.type in ("error", "warning"):
        seen.errors.append(said.text)
