"""A table and its three forms: Markdown, LaTeX (booktabs) and CSV."""

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import Template

from polarbear.base.names import one_line

#: Characters that mean something in LaTeX, and how to write them.
LATEX: Mapping[str, str] = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: "\\" + sign for sign in "&%$#_{}"},
    "±": r"$\pm$",
    "÷": r"$\div$",
    "≥": r"$\geq$",
    "–": "--",
    # Without a font's help, these print as other signs.
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
}

#: How grey is written in Markdown and in LaTeX.
GREY, LATEX_GREY = '<span style="color:gray">{}</span>', r"\textcolor{{gray}}{{{}}}"
#: Lines that a table on one page may have.
PAGE_OF_LINES = 50
#: A floating table that is at most as wide as the text.
ON_A_PAGE = r"""% needs the packages booktabs, graphicx and xcolor
\begin{table}
\centering
$caption
$label
\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%
\begin{tabular}{$columns}
\toprule
$head
\midrule
$lines
\bottomrule
\end{tabular}}
\end{table}
"""
#: A table that goes on over pages, its head on each; small, as it cannot be scaled.
OVER_PAGES = r"""% needs the packages booktabs, longtable and xcolor
\begingroup\scriptsize\setlength{\tabcolsep}{3pt}
\begin{longtable}{$columns}
$caption $label \\
\toprule
$head
\midrule
\endfirsthead
\toprule
$head
\midrule
\endhead
\bottomrule
\endfoot
$lines
\end{longtable}
\endgroup
"""


@dataclass(frozen=True)
class Cell:
    """What stands in a table, whether it is one of the best, and whether it says little: grey."""

    text: str
    bold: bool = False
    dim: bool = False


@dataclass(frozen=True)
class Table:
    """A table with a name, which is that of its files; ``records`` is what its CSV holds."""

    name: str
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    records: tuple[tuple[object, ...], ...] = field(default=(), repr=False)

    def markdown(self) -> str:
        """Return the table as Markdown, with the caption above it."""
        lines = [self.head, ("---",) + ("---:",) * (len(self.head) - 1)]
        lines += [tuple(_marked(cell, "**{}**", GREY) for cell in row) for row in self.rows]
        lines = [tuple(one_line(text).replace("|", r"\|") for text in line) for line in lines]
        body = "\n".join("| " + " | ".join(line) + " |" for line in lines)
        return f"{one_line(self.caption)}\n\n{body}\n"

    def latex(self) -> str:
        """Return the table as LaTeX, made to fit: a wide one shrinks, a long one breaks."""
        lines = [
            _latex_line(
                _marked(replace(c, text=latex_text(c.text)), r"\textbf{{{}}}", LATEX_GREY)
                for c in row
            )
            for row in self.rows
        ]
        head = _latex_line(map(latex_text, self.head))
        columns = "l" + "r" * (len(self.head) - 1)
        caption, label = rf"\caption{{{latex_text(self.caption)}}}", rf"\label{{tab:{self.name}}}"
        form = OVER_PAGES if len(lines) > PAGE_OF_LINES else ON_A_PAGE
        return Template(form).substitute(
            columns=columns, caption=caption, label=label, head=head, lines="\n".join(lines)
        )

    def csv(self) -> str:
        """Return the table's numbers in full, one a line where there are several in a cell."""
        out = io.StringIO()
        cells = [self.head, *(tuple(cell.text for cell in row) for row in self.rows)]
        lines = ([_no_formula(cell) for cell in line] for line in self.records or cells)
        csv.writer(out, lineterminator="\n").writerows(lines)
        return out.getvalue()


def latex_text(text: str) -> str:
    r"""Write text so that LaTeX prints it as it is.

    >>> latex_text("50 % of r_jk")
    '50 \\% of r\\_jk'
    """
    return re.sub(".", lambda sign: LATEX.get(sign[0], sign[0]), one_line(text))


def save_table(table: Table, folder: Path) -> list[Path]:
    """Write a table in its three forms; give the files."""
    folder.mkdir(parents=True, exist_ok=True)
    forms = {"md": table.markdown(), "tex": table.latex(), "csv": table.csv()}
    files = [folder / f"{table.name}.{form}" for form in forms]
    for file, text in zip(files, forms.values(), strict=True):
        file.write_text(text, encoding="utf-8", newline="\n")
    return files


def _marked(cell: Cell, bold: str, grey: str) -> str:
    return (bold if cell.bold else grey if cell.dim else "{}").format(cell.text)


def _latex_line(cells: Iterable[str]) -> str:
    """Return a row; after the one before it, a bracket or an asterisk would be an argument."""
    line = " & ".join(cells)
    return ("{}" if line.lstrip().startswith(("[", "*")) else "") + line + r" \\"


def _no_formula(cell: object) -> object:
    """Return a cell of a CSV file; text that a spreadsheet would work out is marked as text."""
    if not isinstance(cell, str):
        return cell
    text = one_line(cell)
    return f"'{text}" if text.lstrip().startswith(("=", "+", "-", "@")) else text
