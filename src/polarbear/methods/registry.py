"""The classes of methods, found by name, by path, or handed over."""

import sys
from collections.abc import Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, get_type_hints

from polarbear.base.dotted import find_dotted
from polarbear.base.errors import PolarbearError, unknown_name
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
    found: type[Method] = find_dotted(path, "Class", lambda value: isinstance(value, type))
    _refuse_no_method(path, found)
    return found


def _refuse_no_method(path: str, found: object) -> None:
    from polarbear.engine.contract.method import Method

    if not (isinstance(found, type) and issubclass(found, Method)):
        raise PolarbearError(
            f"{path} is no method: it must be a class derived from polarbear.learn.Method"
        )
