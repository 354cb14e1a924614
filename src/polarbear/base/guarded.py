"""Files that somebody else may have written: one guarded reader for each format.

Whatever is wrong with a file or its content is one error of ours that names it. Nothing in a file
is executed, no pipe is waited for, and no more memory is taken than the file has bytes for.
"""

import csv
import json
import math
import os
import sys
import tomllib
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from stat import S_ISREG
from typing import IO, Any, BinaryIO
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile, ZipInfo

import numpy as np
from numpy.typing import NDArray

from polarbear.base.errors import DataError, PolarbearError

Refusal = type[PolarbearError]


@contextmanager
def naming(
    path: str | Path, what: str, error: Refusal = DataError, remedy: str = "Is it complete?"
) -> Iterator[None]:
    """Make whatever is raised while a file is read as ``what`` one ``error`` that names it."""
    try:
        yield
    except PolarbearError as refusal:
        if str(path) in str(refusal):
            raise
        raise type(refusal)(f"{path}: {refusal}") from refusal
    except Exception as damage:  # zipfile, NumPy, pyarrow and others raise almost anything
        wrong = _words(damage)
        raise error(f"{path} cannot be read as {what}: {wrong}. {remedy}".rstrip()) from damage


@contextmanager
def undamaged(
    where: str | Path, error: Refusal = PolarbearError, remedy: str = ""
) -> Iterator[None]:
    """Make whatever is raised while a run's own files are read one ``error`` that names them."""
    try:
        yield
    except OSError as failure:
        raise error(f"{where} cannot be read: {failure}") from failure
    except Exception as damage:  # there are as many kinds as ways to damage a file
        if isinstance(damage, error) and str(where) in str(damage):
            raise
        known = isinstance(damage, ValueError)
        told = str(damage) if known else f"{type(damage).__name__}: {damage}"
        raise error(f"{where} is damaged ({told}){remedy}") from damage


@contextmanager
def opened(
    path: str | Path, what: str, error: Refusal = DataError, remedy: str = "Is it complete?"
) -> Iterator[BinaryIO]:
    """Open a file to be read as ``what``."""
    with naming(path, what, error, remedy), _open(Path(path), str(path), error) as file:
        yield file


def read_bytes(path: str | Path, where: str = "", error: Refusal = DataError) -> bytes:
    """Return a file's content; ``where`` names it in messages."""
    where = where or str(path)
    with _open(Path(path), where, error) as file:
        try:
            return file.read()
        except (OSError, MemoryError) as damage:
            raise error(f"{where} cannot be read: {_words(damage)}") from damage


def read_json(
    path: str | Path, what: str = "JSON", error: Refusal = DataError, remedy: str = ""
) -> dict[str, Any]:
    """Return the object that a JSON file holds."""
    with opened(path, what, error, remedy) as file:
        content = parse_json(file.read())
        if not isinstance(content, dict):
            raise ValueError(f"it holds no object {{…}} but {type(content).__name__}")
        return content


def parse_json(text: str | bytes) -> Any:
    """Return what a JSON text says; whatever is wrong with it is a ValueError.

    >>> parse_json(b'{"r": [0.5, null]}')
    {'r': [0.5, None]}
    """
    try:
        text = text.decode() if isinstance(text, bytes) else text
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except RecursionError as error:
        raise ValueError(_words(error)) from error


def read_toml(path: str | Path, error: Refusal = DataError) -> dict[str, Any]:
    """Return what a TOML file says."""
    with opened(path, "TOML", error, "") as file:
        return tomllib.loads(file.read().decode())


def read_csv(
    path: str | Path, columns: Collection[str], note: str, error: Refusal = DataError
) -> list[dict[str, str]]:
    """Return the lines of a CSV file by the names that its first line gives the columns.

    Empty lines are left out, and fields are stripped. Where the first line lacks one of
    ``columns``, the message has a ``note`` on them.
    """
    with opened(path, "CSV", error, "") as file:
        # utf-8-sig: spreadsheets put a byte order mark first.
        text = TextIOWrapper(file, encoding="utf-8-sig", newline="")
        rows = [[field.strip() for field in line] for line in csv.reader(text) if line]
        names = rows[0] if rows else []
        if missing := [name for name in columns if name not in names]:
            raise error(
                f"the first line must name the columns {','.join(columns)} ({note}); it is "
                f"{','.join(names)!r}, without {', '.join(missing)}"
            )
        for number, row in enumerate(rows[1:], 2):
            if len(row) != len(names):
                raise error(
                    f"entry {number}, line {','.join(row)!r} has {len(row)} columns, the first "
                    f"line {len(names)}: put a path or a name with a comma in quotes"
                )
        return [dict(zip(names, row, strict=True)) for row in rows[1:]]


def read_npz(
    path: str | Path,
    names: Collection[str],
    *,
    what: str = ".npz",
    error: Refusal = DataError,
    remedy: str = "Is it complete?",
    most: int | None = None,
) -> dict[str, NDArray[Any]]:
    """Return those of the named arrays that a ``.npz`` file holds.

    An array above ``most`` bytes is refused. Bytes that changed since they were written are
    noticed: a ``.npz`` file has checksums.
    """
    with opened(path, what, error, remedy) as file, ZipFile(file) as archive:
        members = _members(archive)
        return {name: _member(archive, members[name], most) for name in names if name in members}


def npz_names(
    path: str | Path, *, what: str = ".npz", error: Refusal = DataError, remedy: str = ""
) -> list[str]:
    """Return the names of the arrays in a ``.npz`` file."""
    with opened(path, what, error, remedy) as file, ZipFile(file) as archive:
        return list(_members(archive))


def read_npy(
    path: str | Path, *, error: Refusal = DataError, remedy: str = "Is it complete?"
) -> NDArray[Any]:
    """Return the array of a ``.npy`` file."""
    with opened(path, ".npy", error, remedy) as file:
        size = os.fstat(file.fileno()).st_size
        return _array("it", Path(path).open, size)


def _open(path: Path, where: str, error: Refusal) -> BinaryIO:
    try:
        # Whoever opens a pipe waits for its writer, perhaps for ever.
        if not S_ISREG(path.stat().st_mode):
            raise error(f"{where} cannot be read: it is no file but a folder, a pipe or a device")
        return path.open("rb")
    except (FileNotFoundError, NotADirectoryError) as missing:
        raise error(f"there is no file {where}") from missing
    except PolarbearError:
        raise
    except (OSError, ValueError) as failure:  # ValueError: a zero byte in the name
        raise error(f"{where} cannot be read: {_words(failure)}") from failure


def _words(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deep"
    if isinstance(error, MemoryError):
        return "it asks for more memory than there is"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error) or type(error).__name__


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"it has the number {text}, which is not finite")
    return number


def _members(archive: ZipFile) -> dict[str, ZipInfo]:
    return {member.filename.removesuffix(".npy"): member for member in archive.infolist()}


def _member(archive: ZipFile, member: ZipInfo, most: int | None) -> NDArray[Any]:
    # NumPy writes no other; bzip2 and lzma would make gigabytes of a few bytes.
    if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):
        raise ValueError(f"{member.filename} is compressed in a way NumPy does not use")
    if most is not None and member.file_size > most:
        raise ValueError(
            f"{member.filename} has {member.file_size:,} bytes; due are {most:,} at most"
        )
    return _array(member.filename, lambda _: archive.open(member), member.file_size)


def _array(name: str, open_: Callable[[str], IO[bytes]], size: int) -> NDArray[Any]:
    """Read an array, unless its header promises other than the bytes that are there."""
    with open_("rb") as file:
        # Version 1 alone: it is what NumPy writes, and its header has 64 kB at most.
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError(f"{name} is of a version of NumPy's format that is not read")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        promised, there = math.prod(shape) * dtype.itemsize, size - file.tell()
    if dtype.hasobject:
        raise ValueError(f"{name} has Python objects in it, which are not loaded")
    if min(shape, default=0) < 0 or promised != there:
        raise ValueError(f"{name} has {there:,} bytes for shape {shape} of {dtype}")
    with open_("rb") as file:
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    # NumPy takes any four bytes for a letter; Python crashes on those that are none.
    letters = np.frombuffer(array.tobytes(), f"{dtype.byteorder}u4") if dtype.kind == "U" else ()
    if np.max(letters, initial=0) > sys.maxunicode:
        raise ValueError(f"{name} has texts with letters that are none")
    return array
