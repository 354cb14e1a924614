"""The methods by name; names and summaries are known without importing PyTorch."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import (
    TYPE_CHECKING,
    Any,
    NamedTuple,
    get_type_hints,
)

from polarbear.base.errors import PolarbearError, install_line, unknown_name
from polarbear.settings.settings import fits

if TYPE_CHECKING:
    from polarbear.engine.contract.method import Method

ENTRY_POINTS = "polarbear.methods"

#: Classes that were handed over in this process, by path.
_HANDED_OVER: "dict[str, type[Method]]" = {}


class Listed(NamedTuple):
    """Where a method is (``package.module:Class``) and what it does, in a line."""

    path: str
    summary: str


METHODS: Mapping[str, Listed] = MappingProxyType(
    {
        "finetune": Listed(
            "polarbear.methods.finetune:Finetune",
            "trains on each task as it comes; the lower bound",
        ),
        "er": Listed(
            "polarbear.methods.er:ER",
            "replays random stored images",
        ),
        "er-infinite": Listed(
            "polarbear.methods.er_infinite:ERInfinite",
            "replays every earlier image with the labels it came with",
        ),
        "mask-seen": Listed(
            "polarbear.methods.mask_seen:MaskSeen",
            "replays random stored images; only the current task's classes get a loss",
        ),
        "agem": Listed(
            "polarbear.methods.agem:AGEM",
            "projects the gradient so that the loss on stored images does not grow",
        ),
        "icarl-cnn": Listed(
            "polarbear.methods.icarl_cnn:ICarlCNN",
            "distils old classes from the previous network; herded memory",
        ),
        "icarl-norm": Listed(
            "polarbear.methods.icarl_norm:ICarlNorm",
            "iCaRL-CNN with a cosine head",
        ),
        "lucir": Listed(
            "polarbear.methods.lucir:LUCIR",
            "keeps features near the previous network's; margin between old and new classes",
        ),
        "joint": Listed(
            "polarbear.methods.joint:Joint",
            "trains on all classes at once with complete labels; the upper bound",
        ),
        "incremental-joint": Listed(
            "polarbear.methods.incremental_joint:IncrementalJoint",
            "trains on all data so far with complete labels; the upper bound task by task",
        ),
    }
)


def method_names() -> tuple[str, ...]:
    """Return the names of the built-in methods and of those that installed packages add.

    >>> method_names()[:3]
    ('finetune', 'er', 'er-infinite')
    """
    return (*METHODS, *_added())


def summary(name: str) -> str:
    """Return a line about a method, without importing it.

    >>> summary("er")
    'replays random stored images'
    """
    if name in METHODS:
        return METHODS[name].summary
    added = _added()
    if name not in added:
        raise unknown_name("method", name, method_names())
    dist = added[name].dist
    return f"from the package {dist.name}" if dist else f"from {added[name].value}"


def resolve(name: str) -> "type[Method]":
    """Return a method's class by its name or by its dotted path, ``package.module:Class``.

    A file in the current directory counts as a module: ``my_method:MyMethod``. A class that cannot
    be trained, or not as it says, is refused.
    """
    found = find_class(name)
    _refuse_faulty(name, found)
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
    if name in (added := _added()):
        return _load(added[name].value)
    if ":" in name:
        with _current_directory():
            return _load(name)
    error = unknown_name("method", name, method_names())
    raise type(error)(f"{error}; or the dotted path of your own: package.module:Class")


def _refuse_faulty(name: str, method: "type[Method]") -> None:
    """Refuse what would otherwise fail late or, as a misspelt word, train something else."""
    from polarbear.engine.contract.check_class import check_class

    faults = [found.message for found in check_class(method) if found.level == "error"]
    if faults:
        raise PolarbearError(f"{name} cannot be run: {'; '.join(faults)}")


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


def _added() -> dict[str, EntryPoint]:
    found = {one.name: one for one in entry_points(group=ENTRY_POINTS)}
    return {name: found[name] for name in sorted(found) if name not in METHODS}


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
