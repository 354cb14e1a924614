"""What a format is, and what its reader gives."""

import hashlib
import io
import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


class TookOthersError(AssertionError):
    """A damaged file took along what is whole."""


@dataclass(frozen=True)
class Reading:
    """What a reader gave, as plain values, and what it said of what it left out."""

    content: object
    said: tuple[str, ...] = ()


@dataclass(frozen=True)
class Format:
    """A file that is mutated, and the reader that gets it.

    ``make`` writes all that the reader needs below a folder, ``file`` is the one to mutate,
    ``kind`` how. A reader that finds other content than before may be right, as most formats have
    no checksum, unless ``exact``; ``valid`` refuses what can never be right. Of a file among
    others, ``among``, nothing but the file itself may be missed. A message may also call it what
    ``called`` says.
    """

    name: str
    kind: str
    make: Callable[[Path], None]
    file: str
    read: Callable[[Path], Reading]
    exact: bool = False
    among: bool = False
    may_import: bool = False
    unnamed: bool = False
    called: tuple[str, ...] = ()
    valid: Callable[[Any], bool] = lambda content: True
    weight: int = 10


def digest(array: Any) -> tuple[str, tuple[int, ...], str]:
    array = np.ascontiguousarray(array)
    return str(array.dtype), array.shape, hashlib.sha256(array.tobytes()).hexdigest()


@contextmanager
def listening() -> Iterator[list[str]]:
    """Collect what the library logs."""
    said: list[str] = []

    class Ear(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            said.append(record.getMessage())

    log, ear = logging.getLogger("polarbear"), Ear(logging.WARNING)
    log.addHandler(ear)
    before, log.propagate = log.propagate, False
    try:
        yield said
    finally:
        log.removeHandler(ear)
        log.propagate = before


@contextmanager
def printing() -> Iterator[io.TextIOWrapper]:
    """Collect what a command prints, as UTF-8 like a terminal; nothing may command the terminal."""
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    before = sys.stdout, sys.stderr
    sys.stdout = sys.stderr = out
    try:
        yield out
    finally:
        sys.stdout, sys.stderr = before
    if b"\x1b" in printed(out):
        raise AssertionError("an escape sequence is printed")


def printed(out: io.TextIOWrapper) -> bytes:
    assert isinstance(out.buffer, io.BytesIO)
    return out.buffer.getvalue()
