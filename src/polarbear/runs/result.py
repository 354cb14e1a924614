"""What a run found, to look at in a terminal or a notebook and to build on."""

from dataclasses import dataclass
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from polarbear.base.missing import MissingLibraryError
from polarbear.named.registry import find, short_name
from polarbear.runs.folder import RunFolder
from polarbear.score.catalogue import shown_scores
from polarbear.score.table import ScoreTable
from polarbear.settings.settings import Settings

if TYPE_CHECKING:
    import pandas


def usual_folder(settings: Settings) -> Path:
    """Return where a run is kept unless told otherwise.

    >>> usual_folder(Settings("my_method:MyMethod", "iirc-shapes", order=3)).as_posix()
    'runs/iirc-shapes/my_method.MyMethod/order-3-seed-100'
    """
    method = settings.method.replace(":", ".").replace("<locals>.", "")
    parent = Path("runs") / short_name(find(settings.benchmark)) / method
    return parent / f"order-{settings.order}-seed-{settings.seed}"


@dataclass(frozen=True)
class Result:
    """A run in its folder, finished or stopped; it shows its scores on test images."""

    folder: RunFolder

    @property
    def finished(self) -> bool:
        """Whether the run came to its end; one that was stopped can be resumed."""
        return self.folder.finished

    @cached_property
    def table(self) -> ScoreTable:
        """The scores on test images, NaN for tasks that the run did not come to."""
        return self.folder.table()

    def to_pandas(self) -> "pandas.DataFrame":
        """Return all scores, a line per task that has any and a column per score."""
        try:
            import pandas
        except ImportError as error:
            raise MissingLibraryError("to_pandas needs pandas: pip install pandas") from error
        scores = {name: values[self._done] for name, values in self.table.scores.items()}
        return pandas.DataFrame(scores, index=pandas.Index(self._done, name="after task"))

    def __repr__(self) -> str:
        """Return a line per task, and where the run is."""
        head, *lines = self._lines()
        widths = [max(map(len, column)) for column in zip(head, *lines, strict=True)]
        rows = (
            "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
            for line in (head, *lines)
        )
        return "\n".join((self._about(), *rows))

    def _repr_html_(self) -> str:
        """Return the same as a table for notebooks."""
        head, *lines = (
            "".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in line)
            for kind, line in zip(("th", *["td"] * len(self._done)), self._lines(), strict=True)
        )
        rows = "".join(f"<tr>{line}</tr>" for line in lines)
        caption = f"<p>{escape(self._about())}</p>"
        return f"{caption}<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"

    @property
    def _done(self) -> list[int]:
        return [int(after) for after in np.flatnonzero(~np.isnan(self.table.r))]

    def _about(self) -> str:
        asked = self.folder.manifest()["settings"]
        state = "finished" if self.finished else "stopped, learn.resume resumes it"
        what = f"{asked['method']} on {asked['benchmark']}, order {asked['order']}"
        return f"{what}: {state}; in {self.folder.path}"

    def _lines(self) -> list[list[str]]:
        shown = {name: words.column for name, _, words in shown_scores() if words.column}
        lines = [["after task", *shown.values()]]
        for after in self._done:
            numbers = (self.table.at(name, after) for name in shown)
            lines.append(
                [str(after), *("–" if np.isnan(value) else f"{value:.3f}" for value in numbers)]
            )
        return lines
