"""The error of an adapter whose library is not installed."""

from polarbear.base.errors import PolarbearError, install_line


class MissingLibraryError(PolarbearError, ImportError):
    """A library that an adapter is for is not installed."""


def missing(library: str, extra: str) -> MissingLibraryError:
    """Return the error that says what to install.

    >>> print(missing("TensorFlow", "tensorflow"))  # doctest: +ELLIPSIS
    this adapter needs TensorFlow: pip install ...[tensorflow]'
    """
    return MissingLibraryError(f"this adapter needs {library}: {install_line(extra)}")
