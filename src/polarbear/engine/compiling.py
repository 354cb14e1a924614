"""Functions through ``torch.compile``, or as they are where that does not work."""

import logging
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, cached_property
from itertools import count
from textwrap import shorten
from types import FunctionType
from typing import Any

import torch

log = logging.getLogger("polarbear")

_number = count()


class Compiled:
    """A function of a module, compiled for one kind of call.

    PyTorch compiles the same lines eight times at most, for whatever calls them, and then runs them
    as they are: with a warning of its own, at the speed they had before. So each kind of call has a
    copy of the lines for itself.
    """

    def __init__(self, function: FunctionType) -> None:
        """Compile at the first call."""
        self.function, self.works, self.called = function, True, False

    def __call__(self, *args: Any) -> Any:
        """Return what the function does; where it cannot be compiled, that is said."""
        if self.works:
            # At the first call alone: each time, PyTorch's other warnings would come anew.
            quiet = nullcontext() if self.called else _without_advice()
            self.called = True
            try:
                with quiet:
                    return self._faster(*args)
            except _compilers_error() as error:  # before a line of it ran
                self.give_up(error)
        return self.function(*args)

    @cached_property
    def _faster(self) -> Callable[..., Any]:
        lines = self.function.__code__
        own = lines.replace(co_name=f"{lines.co_name}_{next(_number)}")
        compiled: Callable[..., Any] = torch.compile(
            FunctionType(own, self.function.__globals__), dynamic=False
        )
        return compiled

    def give_up(self, error: BaseException) -> None:
        """Run the function as it is from here on, and say why."""
        self.works = False
        say_why_not(error)


@cache
def compiled(function: Callable[..., Any], *kind: Hashable) -> Compiled:
    """Return a function of a module compiled for one kind of call, the same for all who ask."""
    assert isinstance(function, FunctionType)
    return Compiled(function)


@contextmanager
def _without_advice() -> Iterator[None]:
    """Keep from users what PyTorch would have them call for faster matrix products.

    Networks multiply as the setting ``precision`` says. What is left in fp32 is the crop, which
    follows PIL's pixels: tf32, as PyTorch advises it, would round them.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "TensorFloat32 tensor cores", UserWarning)
        yield


@cache
def say_once(text: str) -> None:
    """Log a line, unless this process did before."""
    log.warning("%s", text)


def say_why_not(error: BaseException) -> None:
    """Say what keeps a network from being compiled."""
    say_once(
        "torch.compile does not work here, so layers run as they are, which is slower "
        f"(--no-compile does not try): {_in_a_line(error)}"
    )


def _compilers_error() -> type[Exception]:
    from torch._dynamo.exc import TorchDynamoException  # seconds, and few runs need it

    return TorchDynamoException


def _in_a_line(error: BaseException) -> str:
    """Return an error's first cause in a line; the compiler's own run over many."""
    while (cause := error.__cause__ or getattr(error, "inner_exception", None)) is not None:
        error = cause
    first = next((line for line in str(error).splitlines() if line.strip()), "")
    # A command of the compiler's has thousands of characters.
    return f"{type(error).__name__}: {shorten(first, 200, placeholder=' …')}"
