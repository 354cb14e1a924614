"""Options of a function that users wrote, looked at before it makes a network or a preparation."""

from collections.abc import Callable, Mapping
from inspect import Parameter, Signature, signature
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from polarbear.base.errors import PolarbearError, unknown_name
from polarbear.base.files import plain
from polarbear.base.findings import listed
from polarbear.settings.settings import fits

#: The kinds of values that are looked at, as people say them.
_WORDS = {bool: "true or false", int: "a whole number", float: "a number", NoneType: "null"}

# A default says less than an annotation: a function with 0 may also take 0.5, a list or nothing.
_OTHERS = (NoneType, list, dict)
_SAID_BY_DEFAULT = {bool: (bool, *_OTHERS), int: (float, *_OTHERS), float: (float, *_OTHERS)}


def refuse_unfit_options(
    what: str, name: str, function: Callable[..., object], options: Mapping[str, Any]
) -> None:
    """Refuse options that a function of users does not take, and a call without what it needs.

    ``what`` it makes, such as a network, has a setting for them: ``network_options``.
    """
    try:
        parameters = _signature(function).parameters.values()
    except (TypeError, ValueError):  # some written in C do not say
        return
    by_name = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    known = {one.name: one for one in parameters if one.kind in by_name}
    rest = next((one for one in parameters if one.kind is Parameter.VAR_KEYWORD), None)
    for option, value in options.items():
        parameter = known.get(option, rest)
        if parameter is None:
            raise unknown_name(f"option of {name}", option, known)
        _refuse_unfit(f"the option {option} of {name}", value, parameter)
    needed = [one.name for one in known.values() if one.default is one.empty]
    if missing := [one for one in needed if one not in options]:
        raise PolarbearError(
            f"{what} {name!r} needs {listed(missing, write=str)}: give {what}_options, or a "
            "default to each"
        )


def _signature(function: Callable[..., object]) -> Signature:
    try:
        return signature(function, eval_str=True)
    except Exception:  # an annotation may name what is imported for type checkers alone
        return signature(function)


def _refuse_unfit(option: str, value: object, parameter: Parameter) -> None:
    kinds = _kinds(parameter)
    given = plain(value)  # NumPy's numbers are numbers
    if not kinds or value is parameter.default or any(fits(given, kind) for kind in kinds):
        return
    allowed = " or ".join(_WORDS[kind] for kind in kinds if kind in _WORDS)
    raise PolarbearError(
        f"{option} must be {allowed}, not {value!r}: values on the command line are JSON, such as "
        "true, 0.5 or null, and all else is text"
    )


def _kinds(parameter: Parameter) -> tuple[type, ...]:
    """Return what a parameter takes, nothing where it does not say or may also take text."""
    hint = parameter.annotation
    if hint is parameter.empty or isinstance(hint, str):
        return _SAID_BY_DEFAULT.get(type(parameter.default), ())
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return kinds if all(isinstance(kind, type) and kind in _WORDS for kind in kinds) else ()
