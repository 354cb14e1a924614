"""Errors about memory as one line that says what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from polarbear.base.errors import PolarbearError

#: How PyTorch, CUDA's libraries, Python and the loader of shared libraries say it, in lower case.
TOLD = (
    *("out of memory", "allocate memory", "not enough memory", "bad_alloc", "alloc_failed"),
    *("failed to map segment", "can't start new thread"),
)


class OutOfMemoryError(PolarbearError):
    """Memory, of the machine or of a GPU, that does not suffice."""


def ran_out(error: BaseException) -> bool:
    """Whether an error says that there is no more memory."""
    if isinstance(error, (RuntimeError, OSError, ImportError)):
        return any(words in str(error).lower() for words in TOLD)
    return isinstance(error, MemoryError)


@contextmanager
def enough_memory(hint: str) -> Iterator[None]:
    """Turn an error about memory into one line that ends in a hint."""
    try:
        yield
    except Exception as error:
        if not ran_out(error):
            raise
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise OutOfMemoryError(f"out of memory ({first[:200]}): {hint}") from error


def smaller(folder: Path | None = None) -> str:
    """Say how a run needs less; with its folder, how it goes on."""
    parts = "try --accumulate 2, which takes each batch in two parts"
    other = "a smaller --batch-size or --network, or another --device"
    if folder is None:
        return f"{parts}, {other}"
    again = f"`polarbear resume {folder}` goes on where there is enough"
    return f"{parts}, with the same command, or in a new run {other}; {again}"
