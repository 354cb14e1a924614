"""What a method and its networks keep in Python, to see whether a step changes it.

A replayed step runs no line of Python: a count that goes on, a mean that is replaced or a list that
grows would stand still, and something else would be trained. Seen is what hangs on the method, its
class and its networks: plain values, containers, arrays, tensors, generators of random numbers, the
attributes of objects, also of those whose bound methods are kept, and what a partial is given. Not
seen are globals of a module and what a function holds: its closure, defaults and attributes.
"""

import io
import logging
import pickle
import random
import threading
from collections.abc import Callable, Iterator, Mapping, MutableMapping, MutableSequence, MutableSet
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from operator import is_
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from polarbear.engine.contract.method import Method
from polarbear.engine.task.learner import Learner

#: What the engine itself keeps in a method.
ENGINES = frozenset(("model", "teacher", "context", "networks", "logged", "world"))
#: What PyTorch keeps in every module, its mode among them.
PYTORCHS = frozenset(vars(nn.Module()))
PLAIN = (bool, int, float, complex, str, bytes, type(None), np.generic)
#: What says what to do, or takes what is told: no loss comes from it.
LEFT_ALONE = (
    *(type, ModuleType, FunctionType, BuiltinFunctionType),
    *(logging.Logger, logging.Handler, io.IOBase, threading.Thread),
    Learner,  # behind what a context looks up, such as images
)
GENERATORS = (torch.Generator, np.random.Generator, np.random.RandomState, random.Random)
CONTAINERS = (MutableMapping, MutableSequence, MutableSet, tuple, frozenset)


@dataclass(frozen=True, eq=False)
class Kept:
    """One thing as it was: ``changed`` names what is not so any more, if anything."""

    changed: Callable[[], str | None]
    put_back: Callable[[], None]


@dataclass(frozen=True, eq=False)
class Attributes:
    """All that a learner's method and networks keep, but for parameters and buffers."""

    kept: list[Kept]

    @classmethod
    def of(cls, learner: Learner) -> "Attributes":
        """Look at everything."""
        method = learner.method
        networks = {"self.model": learner.model, "self.teacher": method.teacher}
        modules = [m for m in (*networks.values(), method) if m is not None]
        walk = Walk({id(t) for m in modules for t in (*m.parameters(), *m.buffers())})
        for name, one in {**networks, "self": method}.items():
            walk.look(name, one)
        for own in type(method).__mro__:
            if own not in Method.__mro__:
                walk.look_at_class(own)
        return cls(walk.kept)

    def changed(self) -> str | None:
        """Return the name of something that is not as it was, None if all is."""
        return next((name for one in self.kept if (name := one.changed()) is not None), None)

    def put_back(self) -> None:
        """Bring everything back to what it was."""
        for one in self.kept:
            one.put_back()


class Walk:
    """Goes through everything that hangs on an object, each thing once."""

    def __init__(self, known: set[int]) -> None:
        """Leave out tensors that are known, by their ids: others look after them."""
        self.known = known
        self.seen: dict[int, object] = {}  # by id, which means them as long as they are kept
        self.kept: list[Kept] = []

    def look(self, name: str, value: object) -> None:
        """Note how something is, and all that hangs on it."""
        if isinstance(value, (*PLAIN, *LEFT_ALONE)) or id(value) in self.known:
            return
        if id(value) in self.seen:
            return
        self.seen[id(value)] = value
        if isinstance(value, Tensor):
            self.kept.append(_tensor(name, value))
        elif isinstance(value, np.ndarray):
            self.kept.append(_array(name, value))
        elif isinstance(value, GENERATORS):
            self.kept.append(_generator(name, value))
        elif isinstance(value, Iterator):
            raise RuntimeError(
                f"{name} is an iterator, and to see whether a step takes from it would be to take "
                "from it: keep a list, and where you stand in it in a buffer"
            )
        elif isinstance(value, CONTAINERS):
            self._look_at_container(name, value)
        elif isinstance(value, MethodType):
            self.look(f"{name}.__self__", value.__self__)
        elif isinstance(value, partial):
            for part in ("func", "args", "keywords"):
                self.look(f"{name}.{part}", getattr(value, part))
        else:
            self._look_at_object(name, value)

    def look_at_class(self, own: type) -> None:
        """Look at what the objects of a class share: a count, a list that all of them add to."""

        def now() -> dict[str, Any]:
            return {key: value for key, value in vars(own).items() if _is_kept(key, value)}

        def write(key: str, *value: Any) -> None:
            setattr(own, key, *value) if value else delattr(own, key)

        self._look_at_parts(f"{own.__name__}.", now, write)

    def _look_at_object(self, name: str, value: object) -> None:
        hidden = PYTORCHS if isinstance(value, nn.Module) else frozenset()
        hidden |= ENGINES if isinstance(value, Method) else frozenset()

        slots = _slots(type(value))
        own: dict[str, Any] = getattr(value, "__dict__", {})

        def now() -> dict[str, Any]:
            in_slots = {slot: getattr(value, slot) for slot in slots if hasattr(value, slot)}
            return {key: v for key, v in {**in_slots, **own}.items() if key not in hidden}

        first, count = now(), len(own)
        keys, values = list(first), list(first.values())

        def untouched() -> bool:
            # Before every epoch: a network has a hundred parts, and none of them is ever another.
            there = map(own.get, keys, repeat(own))  # which is none of its own values
            return not slots and len(own) == count and all(map(is_, there, values))

        def write(key: str, *to: Any) -> None:
            # Past what a class makes of it: a module files what it is given, others are frozen.
            if key in getattr(value, "__dict__", {}) or not hasattr(type(value), key):
                value.__dict__.update({key: to[0]}) if to else value.__dict__.pop(key)
            else:
                object.__setattr__(value, key, *to) if to else object.__delattr__(value, key)

        self._look_at_parts(f"{name}.", now, write, untouched)
        if isinstance(value, nn.Module):
            inner = (value._modules, value._parameters, value._buffers)
            for key, part in [pair for parts in inner for pair in parts.items()]:
                self.look(f"{name}.{key}", part)

    def _look_at_parts(
        self,
        name: str,
        now: Callable[[], dict[str, Any]],
        write: Callable[..., None],
        untouched: Callable[[], bool] = lambda: False,
    ) -> None:
        """Note parts as they are; ``untouched`` may say in short that they still are."""
        parts = now()

        def changed() -> str | None:
            if untouched():
                return None
            found = _differing(parts, now())
            return f"{name}{found[0]}" if found else None

        def put_back() -> None:
            for key in [key for key in now() if key not in parts]:
                write(key)
            there = now()
            for key, part in parts.items():
                if key not in there or there[key] is not part:
                    write(key, part)

        self.kept.append(Kept(changed, put_back))
        for key, part in parts.items():
            self.look(f"{name}{key}", part)

    def _look_at_container(self, name: str, value: Any) -> None:
        parts = _parts(value)

        def put_back() -> None:
            there = _parts(value)
            if [*there] != [*parts] or any(there[key] is not parts[key] for key in parts):
                _fill(value, parts)

        if not isinstance(value, (tuple, frozenset)):
            self.kept.append(
                Kept(lambda: name if _differing(parts, _parts(value)) else None, put_back)
            )
        for key, part in parts.items():
            self.look(f"{name}[{key!r}]", part)


def _slots(kind: type) -> tuple[str, ...]:
    """Return the names of the attributes that objects of a class have in slots."""
    slots: list[str] = []
    for base in kind.__mro__:
        named = vars(base).get("__slots__", ())
        slots += [named] if isinstance(named, str) else named
    return tuple(slot for slot in slots if slot not in ("__dict__", "__weakref__"))


def _is_kept(key: str, value: object) -> bool:
    """Whether a class keeps something there, and does not say what its objects are and do."""
    says = hasattr(type(value), "__get__") or isinstance(value, LEFT_ALONE)
    return not says and not (key.startswith("__") and key.endswith("__"))


def _differing(before: Mapping[Any, Any], now: Mapping[Any, Any]) -> list[Any]:
    both = [key for key in before if key in now]
    other = [key for key in both if not _same(before[key], now[key])]
    return [*other, *(before.keys() ^ now.keys())]


def _same(one: Any, other: Any) -> bool:
    """Whether two values are one, or plain and equal; what hangs on others is looked at there."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, PLAIN):
        return bool(one == other) or (one != one and other != other)
    return isinstance(one, tuple) and len(one) == len(other) and all(map(_same, one, other))


def _parts(container: Any) -> dict[Any, Any]:
    if isinstance(container, Mapping):
        return dict(container)
    if isinstance(container, (MutableSet, frozenset)):
        return {part: part for part in container}
    return dict(enumerate(container))


def _fill(container: Any, parts: Mapping[Any, Any]) -> None:
    if isinstance(container, MutableMapping):
        container.clear()
        container.update(parts)
    elif isinstance(container, MutableSet):
        container.clear()
        for part in parts:
            container.add(part)
    else:
        while container:
            container.pop()  # not every sequence can be cleared: an array.array cannot
        container.extend(parts.values())


def _tensor(name: str, tensor: Tensor) -> Kept:
    copy = tensor.detach().clone()

    def version() -> tuple[int, int]:
        # `tensor.data = …` puts it elsewhere, and is no new version.
        place = tensor.data_ptr() if tensor.layout == torch.strided else 0
        return place, 0 if tensor.is_inference() else tensor._version

    first = version()

    def put_back() -> None:
        # Asked of its values, since `tensor.data` can be changed behind its back.
        if not torch.equal(tensor.detach(), copy):
            tensor.data.copy_(copy)

    return Kept(lambda: None if version() == first else name, put_back)


def _array(name: str, array: "np.ndarray[Any, Any]") -> Kept:
    copy = array.copy()

    def changed() -> str | None:
        return None if array.tobytes() == copy.tobytes() else name

    def put_back() -> None:
        if changed():
            array[...] = copy

    return Kept(changed, put_back)


def _generator(name: str, generator: Any) -> Kept:
    """Note where a method's own random numbers stand: in a replay, they would be drawn no more."""
    read, write = _reading_and_writing(generator)
    first = read()
    before = _as_bytes(first)
    return Kept(lambda: None if _as_bytes(read()) == before else name, lambda: write(first))


def _reading_and_writing(generator: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    if isinstance(generator, np.random.Generator):
        bits = generator.bit_generator
        return (lambda: bits.state), (lambda state: setattr(bits, "state", state))
    if isinstance(generator, np.random.RandomState):
        return (lambda: generator.get_state(legacy=False)), generator.set_state
    if isinstance(generator, random.Random):
        return generator.getstate, generator.setstate
    return generator.get_state, generator.set_state


def _as_bytes(state: Any) -> bytes:
    return state.numpy().tobytes() if isinstance(state, Tensor) else pickle.dumps(state)
