"""The error of an adapter whose library is not installed."""

from polarbear.errors import PolarbearError


class MissingLibraryError(PolarbearError, ImportError):
    """A library that an adapter is for is not installed."""


def missing(library: str, extra: str) -> MissingLibraryError:
    """Give the error that says what to install.

    >>> print(missing("TensorFlow", "tensorflow"))
    this adapter needs TensorFlow: pip install 'polarbear[tensorflow]'
    """
    return MissingLibraryError(f"this adapter needs {library}: pip install 'polarbear[{extra}]'")
