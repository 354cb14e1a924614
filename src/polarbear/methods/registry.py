"""The classes of methods, found by name, by path, or handed over."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, get_type_hints

from polarbear.base.errors import PolarbearError, install_line, unknown_name
from polarbear.methods.catalogue import METHODS, added, method_names
from polarbear.settings.settings import fits

if TYPE_CHECKING:
    from polarbear.engine.contract.method import Method

#: Classes that were handed over in this process, by path.
_HANDED_OVER: "dict[str, type[Method]]" = {}


def resolve(name: str) -> "type[Method]":
    """Return a method's class by its name or by its dotted path, ``package.module:Class``.

    A file in the current directory counts as a module: ``my_method:MyMethod``. A class that cannot
    be trained, or not as it says, is refused.
    """
    found = find_class(name)  # first: its error says what to do without PyTorch
    from polarbear.engine.contract.check_class import check_class

    # Else it would fail late or, as a misspelt word, train something else.
    faults = [one.message for one in check_class(found) if one.level == "error"]
    if faults:
        raise PolarbearError(f"{name} cannot be run: {'; '.join(faults)}")
    return found


def name_of(method: "type[Method]") -> str:
    """Return the name or the path of a class, by which :func:`resolve` now finds it.

    A class of a notebook or a script cannot be imported: it is found as long as Python runs.
    """
    path = f"{method.__module__}:{method.__qualname__}"
    _refuse_no_method(path, method)
    for name, listed in METHODS.items():
        if listed.path == path:
            return name
    _HANDED_OVER[path] = method
    return path


def find_class(name: str) -> "type[Method]":
    """Return a method's class as it is, for those who look for faults in it themselves."""
    if name in _HANDED_OVER:
        return _HANDED_OVER[name]
    module, _, own = name.partition(":")
    if "<locals>" in own or (module == "__main__" and not hasattr(sys.modules[module], own)):
        raise PolarbearError(
            f"{name} was defined in a notebook, a script or a function, where it cannot be "
            "imported from. Go on there: polarbear.learn.resume(folder, method=TheClass); or put "
            "the class into a file of its own, my_method.py, and run my_method:TheClass"
        )
    if name in METHODS:
        return _load(METHODS[name].path)
    if name in (installed := added()):
        return _load(installed[name].value)
    if ":" in name:
        with _current_directory():
            return _load(name)
    error = unknown_name("method", name, method_names())
    raise type(error)(f"{error}; or the dotted path of your own: package.module:Class")


def make_options(method: "type[Method]", values: Mapping[str, Any]) -> Any:
    """Return a method's ``Options`` with these values; unknown names and wrong types are errors."""
    names = [one.name for one in fields(method.Options)]
    hints = get_type_hints(method.Options)
    for key, value in values.items():
        if not names:
            raise PolarbearError(f"{method.__name__} has no options, so not {key!r} either")
        if key not in names:
            raise unknown_name(f"option of {method.__name__}", key, names)
        if not fits(value, hints[key]):
            shown = hints[key].__name__ if isinstance(hints[key], type) else str(hints[key])
            raise PolarbearError(f"{key} of {method.__name__} must be {shown}, not {value!r}")
    return method.Options(**values)


def _load(path: str) -> "type[Method]":
    module_name, _, class_name = path.partition(":")
    if not (class_name.isidentifier() and all(p.isidentifier() for p in module_name.split("."))):
        raise PolarbearError(f"{path!r} is no dotted path: write package.module:Class")
    module = _import(module_name, path)
    if not hasattr(module, class_name):
        classes = [name for name, value in vars(module).items() if isinstance(value, type)]
        raise unknown_name(f"class in {module.__file__ or module_name}", class_name, classes)
    found: type[Method] = getattr(module, class_name)
    _refuse_no_method(path, found)
    return found


def _refuse_no_method(path: str, found: object) -> None:
    from polarbear.engine.contract.method import Method

    if not (isinstance(found, type) and issubclass(found, Method)):
        raise PolarbearError(
            f"{path} is no method: it must be a class derived from polarbear.learn.Method"
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
    if f"{module}.".startswith(f"{absent}."):
        hint = f"; leave out .py: {path.replace('.py:', ':')}" if module.endswith(".py") else ""
        return f"{path}: there is no module {absent!r}, neither installed nor in {Path.cwd()}{hint}"
    return f"{path} needs the module {absent!r}, which is not installed"


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
