"""Complaints about a method, gathered while it is tried out."""

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import getsourcefile
from pathlib import Path

from polarbear.base.findings import Finding, error
from polarbear.engine.contract.method import Method
from polarbear.launch.check.step import Complaint


class Notes:
    """Complaints, each once, with the places it was made at."""

    def __init__(self, method: type[Method]) -> None:
        """Begin with none."""
        self.method = method
        self.places: dict[Complaint, list[str]] = {}

    def add(self, complaint: Complaint, place: str) -> None:
        """Take a complaint."""
        self.places.setdefault(complaint, []).append(place)

    @contextmanager
    def at(self, place: str) -> Iterator[None]:
        """Turn what a method raises into a complaint."""
        try:
            yield
        except Exception as problem:
            hint = ""
            if "NoneType" in str(problem):
                hint = (
                    ". self.teacher is None in the first task, and always without "
                    "wants_teacher = True"
                )
            line = _line(self.method, problem)
            self.add(f"{type(problem).__name__}: {problem}{line}{hint}", place)

    def has(self, place: str) -> bool:
        """Whether there is a complaint of a place."""
        return any(place in places for places in self.places.values())

    def findings(self) -> tuple[Finding, ...]:
        """Return an error a complaint."""
        return tuple(
            error(f"{complaint} [{'; '.join(places)}]") for complaint, places in self.places.items()
        )


def _line(method: type[Method], problem: Exception) -> str:
    try:
        file = getsourcefile(method)
    except (TypeError, OSError):  # a class typed into an interpreter has no file
        file = None
    lines = [f.lineno for f in traceback.extract_tb(problem.__traceback__) if f.filename == file]
    return f" (line {lines[-1]} of {Path(file).name})" if lines and file else ""
