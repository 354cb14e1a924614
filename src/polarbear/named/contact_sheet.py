"""Sample images of every leaf on one sheet.

Needs Pillow, as the extra ``images`` has it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from polarbear.benchmark.stream import Stream
from polarbear.data.decode import need_pillow

if TYPE_CHECKING:
    from PIL.Image import Image

SAMPLES, TILE, GAP = 3, 64, 4
COLUMNS, CAPTION, MARGIN = 4, 18, 12
CELL = (SAMPLES * (TILE + GAP) + MARGIN, TILE + CAPTION + MARGIN)
MOST_LEAVES = 60
INK = "#1f2933"


def contact_sheet(stream: Stream) -> "Image":
    """Return a sheet with the first training images of each leaf, 60 leaves at most."""
    need_pillow()
    from PIL import Image

    leaves = shown_leaves(stream)
    lines = -(-len(leaves) // COLUMNS)
    width = MARGIN + min(COLUMNS, len(leaves)) * CELL[0]
    sheet = Image.new("RGB", (width, MARGIN + lines * CELL[1]), "white")
    for i, leaf in enumerate(leaves):
        place = (MARGIN + i % COLUMNS * CELL[0], MARGIN + i // COLUMNS * CELL[1])
        _draw_leaf(sheet, stream, leaf, place)
    return sheet


def shown_leaves(stream: Stream) -> Sequence[str]:
    """Return the leaves that have training images; of very many, some from all over the list."""
    there = np.bincount(stream.train_leaf[stream.train_leaf >= 0], minlength=len(stream.hierarchy))
    leaves = [name for name, n in zip(stream.hierarchy.names, there, strict=True) if n]
    chosen = np.linspace(0, len(leaves) - 1, min(len(leaves), MOST_LEAVES)).astype(int)
    return [leaves[i] for i in chosen]


def _draw_leaf(sheet: "Image", stream: Stream, leaf: str, place: tuple[int, int]) -> None:
    from PIL import ImageDraw, ImageFont

    hierarchy, (left, top) = stream.hierarchy, place
    rows = np.flatnonzero(stream.train_leaf == hierarchy.index(leaf))[:SAMPLES]
    for i, row in enumerate(rows):
        sheet.paste(_tile(stream, int(row)), (left + i * (TILE + GAP), top))
    caption = " › ".join(hierarchy.title(name) for name in hierarchy.labels_of(leaf))
    font = ImageFont.load_default(size=11)
    longest = CELL[0] - MARGIN
    while font.getlength(caption) > longest:
        caption = caption[:-2] + "…"
    ImageDraw.Draw(sheet).text((left, top + TILE + 2), caption, INK, font)


def _tile(stream: Stream, row: int) -> "Image":
    from PIL import Image, ImageOps

    image = Image.fromarray(np.asarray(stream.images("train")[row]))
    # Small pictures keep their pixels; large ones are averaged down.
    how = Image.Resampling.NEAREST if max(image.size) < TILE else Image.Resampling.LANCZOS
    return ImageOps.fit(image, (TILE, TILE), how)
