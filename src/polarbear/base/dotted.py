"""What users wrote, found by its dotted path: ``package.module:name``."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from polarbear.base.errors import PolarbearError, install_line, unknown_name


def find_dotted(path: str, what: str, fits: Callable[[object], bool] = callable) -> Any:
    """Return what a dotted path names; a file in the current directory counts as a module.

    ``what`` is the word for it in errors, such as ``Class``; of the module's names, those whose
    values ``fits`` says yes to are suggested for a misspelt one.

    >>> find_dotted("collections:OrderedDict", "Class").__name__
    'OrderedDict'
    """
    module_name, _, name = path.partition(":")
    if not (name.isidentifier() and all(part.isidentifier() for part in module_name.split("."))):
        raise PolarbearError(f"{path!r} is no dotted path: write package.module:{what}")
    with _current_directory():
        module = _import(module_name, path)
    if not hasattr(module, name):
        public = [n for n, value in vars(module).items() if fits(value) and n[0] != "_"]
        place = getattr(module, "__file__", None) or module_name
        raise unknown_name(f"{what.lower()} in {place}", name, public)
    return getattr(module, name)


def _import(module: str, path: str) -> ModuleType:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise PolarbearError(_missing(error.name or "", module, path)) from error
    except (ImportError, SyntaxError) as error:
        raise PolarbearError(f"{path} cannot be imported: {error}") from error


def _missing(absent: str, module: str, path: str) -> str:
    if absent == "torch":
        return f"{path} needs PyTorch: {install_line('torch')}"
    if not f"{module}.".startswith(f"{absent}."):
        return f"{path} needs the module {absent!r}, which is not installed"
    remedy = "install it, or put the folder it lies in on PYTHONPATH"
    if module.endswith(".py"):
        remedy = f"leave out .py: {path.replace('.py:', ':')}"
    return f"{path}: there is no module {absent!r}, neither installed nor in {Path.cwd()}; {remedy}"


@contextmanager
def _current_directory() -> Iterator[None]:
    """Let files of the current directory be imported, after all that is installed."""
    here = str(Path.cwd())
    if here in sys.path:
        yield
        return
    sys.path.append(here)
    try:
        yield
    finally:
        sys.path.remove(here)
