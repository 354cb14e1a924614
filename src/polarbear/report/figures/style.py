"""How every figure looks: sizes for print and talks, files that are the same for the same runs."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from polarbear.base.errors import PolarbearError, install_line, unknown_name
from polarbear.report.options import SIZES
from polarbear.report.palette import Look

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RIGHT, WRONG, MISSING = "#0072B2", "#D55E00", "#777777"

FORMATS = ("pdf", "svg", "png")
DOTS_PER_INCH = 200
#: Pixels that a picture in a figure has at least, so that no viewer blurs or drops its cells.
CRISP = 512
LARGEST = 9000

#: Points of our letters in print; the smallest, "small", has five sixths of them: 7.
TYPE = 8.5
SMALL = TYPE * 5 / 6
#: What has a length in points, and grows with the size that figures are for.
POINTS: Mapping[str, float] = {
    "font.size": TYPE,
    "lines.linewidth": 1.4,
    "lines.markersize": 3.6,
    "patch.linewidth": 0.7,
    "axes.linewidth": 0.7,
    "axes.labelpad": 3.0,
    "axes.titlepad": 4.0,
    "grid.linewidth": 0.5,
    **{f"{axis}tick.major.width": 0.7 for axis in "xy"},
    **{f"{axis}tick.major.{part}": 3.0 for axis in "xy" for part in ("size", "pad")},
}
STYLE: Mapping[str, Any] = {
    "axes.titlesize": "medium",
    "axes.labelsize": "medium",
    **{f"{axis}tick.labelsize": "small" for axis in "xy"},
    "legend.fontsize": "small",
    "legend.title_fontsize": "small",
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    # A class may be called $\\frac{$, and no letter may be smaller than the smallest.
    "text.parse_math": False,
    # Letters stay letters: small files, text that can be searched and edited.
    "pdf.fonttype": 42,
    "svg.fonttype": "none",
    # The same runs give the same bytes.
    "svg.hashsalt": "polarbear",
}


@dataclass(frozen=True, eq=False)
class Drawing:
    """A figure with its name, which is that of its files, and a caption."""

    name: str
    caption: str
    figure: "Figure" = field(repr=False)


def stamped(drawing: Drawing, words: str) -> Drawing:
    """Return a drawing with words across it, too faint to hide anything."""
    across = drawing.figure.get_figwidth() * 72  # points
    drawing.figure.text(
        0.5, 0.5, words, ha="center", va="center", rotation=20, color=MISSING, alpha=0.25,
        fontsize=max(SMALL, across / len(words)), in_layout=False,
    )  # fmt: skip
    return drawing


def line_style(look: Look) -> dict[str, Any]:
    """Return a curve's colour, marker and dashes as Matplotlib takes them."""
    dashes: dict[str, Any] = {"linestyle": (0, (3.5, 1.5))} if look.dashed else {}
    return {"color": look.colour, "marker": look.marker, **dashes}


@contextmanager
def styled(size: str = "page") -> Iterator[None]:
    """Draw in our style, for a size, and leave the reader's own settings as they were."""
    larger = SIZES[size].scale
    settings = dict(STYLE) | {name: larger * length for name, length in POINTS.items()}
    with _matplotlib().rc_context(settings), warnings.catch_warnings():
        # What the font lacks is a box in PDF and PNG; SVG and the page leave it to the viewer.
        warnings.filterwarnings("ignore", "Glyph .* missing from")
        yield


def points(length: float) -> float:
    """Return a length, in points of print, in those of the size that is drawn for."""
    return length * float(_matplotlib().rcParams["font.size"]) / TYPE


def new_figure(width: float, height: float, *, placed: bool = False) -> "Figure":
    """Return an empty figure, in inches of print, that belongs to nobody's session.

    What is in it finds its place by itself; ``placed`` leaves that to the caller.
    """
    _matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    across, down = points(width), points(height)
    figure = Figure(figsize=(across, down), layout=None if placed else "constrained")
    FigureCanvasAgg(figure)
    return figure


def show_pixels(axes: "Axes", pixels: np.ndarray, crisp: int = CRISP, **how: Any) -> None:
    """Show an array of colours, a cell each, (h, w, 3 or 4), whatever the format's resolution.

    Vector formats would sample it at 72 points an inch: fewer than a matrix of 115 labels has.
    Cells are made of many equal pixels instead, which are then embedded as they are.
    """
    high, wide = pixels.shape[:2]
    times = -(-crisp // max(high, wide))
    large = pixels.repeat(times, axis=0).repeat(times, axis=1)
    cells = (-0.5, wide - 0.5, high - 0.5, -0.5)
    axes.imshow(large, **{"extent": cells, "interpolation": "none", **how})


def new_panels(
    width: float, count: int, columns: int, rest: float, each: float
) -> "tuple[Figure, np.ndarray]":
    """Return panels with the same axes over a width, in at most so many columns.

    A row of them is ``each`` inches high, all around them ``rest``.
    """
    columns = min(columns, count)
    rows = -(-count // columns)
    figure = new_figure(width, rest + each * rows)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for axes in grid.flat[count:]:
        axes.set_visible(False)
    return figure, grid


def save(drawing: Drawing, folder: Path, formats: Sequence[str], size: str = "page") -> list[Path]:
    """Write a figure, drawn for a size, in each format; give the files."""
    for one in formats:
        if one not in FORMATS:
            raise unknown_name("format", one, FORMATS)
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{drawing.name}.{one}" for one in formats]
    with styled(size):
        # All is placed once: it takes as long as drawing, and is the same in every format.
        if drawing.figure.get_layout_engine() is not None:
            drawing.figure.draw_without_rendering()
            drawing.figure.set_layout_engine("none")
        for file, one in zip(files, formats, strict=True):
            _write(drawing.figure, file, one)
    return files


def _write(figure: "Figure", file: Path, form: str) -> None:
    """Write one file by its own canvas: savefig would place everything once more.

    No dates go into the files, so that the same runs give the same bytes.
    """
    from matplotlib.backends import backend_agg, backend_pdf, backend_svg

    sharp = min(DOTS_PER_INCH, LARGEST / max(figure.get_size_inches()))
    figure.set_dpi(sharp if form == "png" else 72)
    canvas: Any
    if form == "pdf":
        canvas = backend_pdf.FigureCanvasPdf(figure)
        canvas.print_pdf(file, metadata={"CreationDate": None})
    elif form == "svg":
        canvas = backend_svg.FigureCanvasSVG(figure)
        canvas.print_svg(file, metadata={"Date": None})
    else:
        canvas = backend_agg.FigureCanvasAgg(figure)
        canvas.print_png(file)


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise PolarbearError(f"figures need: {install_line('report')}") from error
    return matplotlib
