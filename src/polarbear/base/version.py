"""The version of this copy."""

__version__ = "0.1.0"
