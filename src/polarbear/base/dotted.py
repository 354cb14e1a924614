"""What users wrote, found by its dotted path: ``package.module:name``."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from inspect import Parameter, signature
from pathlib import Path
from types import ModuleType
from typing import Any

from polarbear.base.errors import PolarbearError, install_line, unknown_name
from polarbear.base.findings import listed


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


def refuse_other_options(
    what: str, name: str, function: Callable[..., object], options: Mapping[str, Any]
) -> None:
    """Refuse options that a function of users does not take, and a call without what it needs.

    ``what`` it makes, such as a network, has a setting for them: ``network_options``.
    """
    try:
        parameters = signature(function).parameters.values()
    except (TypeError, ValueError):  # some written in C do not say
        return
    by_name = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    known = [one for one in parameters if one.kind in by_name]
    takes_all = any(one.kind is Parameter.VAR_KEYWORD for one in parameters)
    for option in options:
        if not takes_all and option not in [one.name for one in known]:
            raise unknown_name(f"option of {name}", option, [one.name for one in known])
    needed = [one.name for one in known if one.default is one.empty and one.name not in options]
    if needed:
        raise PolarbearError(
            f"{what} {name!r} needs {listed(needed, write=str)}: give {what}_options, or a "
            "default to each"
        )


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
