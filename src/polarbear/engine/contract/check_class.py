"""What the class of a method says of itself: checked in no time, before anything is trained."""

from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from difflib import get_close_matches
from inspect import get_annotations
from typing import Any, get_args

from polarbear.base.errors import unknown_name
from polarbear.base.findings import Finding, error, listed, warning
from polarbear.engine.contract.elsewhere import ELSEWHERE, OF_THE_CLASS, never_called
from polarbear.engine.contract.method import Method


def check_class(method: Any) -> Iterator[Finding]:
    """Return everything odd about a class; warnings are of what may well be meant."""
    if not (isinstance(method, type) and issubclass(method, Method)):
        yield error(
            f"{method!r} is no class derived from Method: write class Mine(Method), and pass the "
            "class itself, not an object of it"
        )
        return
    yield from _check_methods(method)
    yield from _check_words(method)
    yield from _check_elsewhere(method)
    yield from _check_names(method)
    yield from _check_options(method)


def _check_methods(method: type[Method]) -> Iterator[Finding]:
    own_backward = method.backward is not Method.backward
    if method.loss is Method.loss and not own_backward:
        yield error("it has no loss: define loss(self, batch), which gives a scalar tensor")
    if method.replay == "reference" and not own_backward:
        yield warning(
            "replay = 'reference' hands memory images to backward(batch, reference), which is not "
            "overridden: they are never used. Override it, or use replay = 'mixed'"
        )
    if method.held_out and method.replay != "mixed":
        yield error(
            f"held_out = {method.held_out!r} keeps images of the task and of memory out of the "
            "main phase, which has both with replay = 'mixed' alone"
        )
    held_out: Any = method.held_out
    if isinstance(held_out, int | float) and not (0 <= held_out < 1 or held_out == int(held_out)):
        yield error(
            f"held_out must be a whole number of images per class, or a part of those that memory "
            f"has of a class, such as 0.1, not {held_out!r}"
        )
    chosen_before = method.replay == "mixed" and method.selection == "random"
    if method.trains_on == "balanced" and (method.held_out or not chosen_before):
        yield error(
            "trains_on = 'balanced' is the memory as it will be when the task ends, chosen before "
            "it begins: that needs replay = 'mixed', selection = 'random' and held_out = 0"
        )
    views: Any = method.views
    if isinstance(views, int) and (views < 1 or isinstance(views, bool)):
        yield error(f"views must be at least 1, and 2 for two views of each image, not {views!r}")
    if method.selection == "reservoir" and method.replay in ("none", "mixed"):
        yield error(
            f"selection = 'reservoir' changes memory at every step, and replay = {method.replay!r} "
            "cannot follow: use replay = 'reference'"
        )
    if method.store is not Method.store and method.replay == "none":
        yield warning("store is never called: with replay = 'none' there is no memory")
    if not method.summary:
        yield warning("summary is empty: `polarbear methods` has nothing to say of it")


def _check_words(method: type[Method]) -> Iterator[Finding]:
    """Check the class attributes that tell the engine what to provide."""
    for name, hint in get_annotations(Method).items():
        value, (kind,) = getattr(method, name), get_args(hint)
        allowed = get_args(kind)
        if str in allowed:  # a name, or the dotted path of something of one's own
            allowed = (*get_args(allowed[0]), *[value] * (isinstance(value, str) and ":" in value))
        if isinstance(value, property) and name not in OF_THE_CLASS:
            continue  # an object's own, as its options may decide
        if allowed and value not in allowed:
            yield error(str(unknown_name(name, value, allowed)))
        if not allowed and not isinstance(value, (int, float) if kind is float else kind):
            yield error(f"{name} must be {kind.__name__}, not {value!r}")


def _check_elsewhere(method: type[Method]) -> Iterator[Finding]:
    """Refuse what would never be called: whoever wrote it believes that it is."""
    own = {name for base in method.__mro__ if base not in Method.__mro__ for name in vars(base)}
    for name in ELSEWHERE:
        if name in own:
            yield error(never_called(name))


def _check_names(method: type[Method]) -> Iterator[Finding]:
    known = [name for name in vars(Method) if not name.startswith("_")]
    for name in vars(method):
        near = get_close_matches(name, known, n=1, cutoff=0.8)
        if name not in known and near:
            yield warning(
                f"{name!r} means nothing to the engine: did you mean {near[0]!r}? If it is your "
                "own, a name less alike would be clearer"
            )


def _check_options(method: type[Method]) -> Iterator[Finding]:
    options = method.Options
    bare_class = "__dataclass_params__" not in vars(options) and get_annotations(options)
    if bare_class or not is_dataclass(options):
        yield error("Options is no data class: put @dataclass(frozen=True) before class Options")
        return
    if not options.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        yield error("Options can be changed: write @dataclass(frozen=True) before class Options")
    bare = [f.name for f in fields(options) if f.default is f.default_factory is MISSING]
    if bare:
        yield error(f"Options has no default for {listed(bare)}: a run must need no flag")
