"""The error of an adapter whose library is not installed."""

from collections.abc import Iterator
from contextlib import contextmanager

from polarbear.base.errors import PolarbearError, install_line


class MissingLibraryError(PolarbearError, ImportError):
    """A library that an adapter is for is not installed."""


@contextmanager
def needing(library: str, extra: str) -> Iterator[None]:
    """Make an import that fails an error that says what to install.

    >>> with needing("TensorFlow", "tensorflow"):  # doctest: +ELLIPSIS
    ...     import a_module_that_is_not_there
    Traceback (most recent call last):
    polarbear.base.missing.MissingLibraryError: this adapter needs TensorFlow: pip install ...
    """
    try:
        yield
    except ImportError as error:
        raise MissingLibraryError(f"this adapter needs {library}: {install_line(extra)}") from error
