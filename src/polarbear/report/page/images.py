"""A few dozen test images of a page, in one picture."""

import logging
from base64 import b64encode
from collections import defaultdict
from io import BytesIO
from typing import Any

import numpy as np

from polarbear.base.arrays import Ints, Pixels
from polarbear.base.errors import PolarbearError, install_line
from polarbear.benchmark.stream import Stream

log = logging.getLogger("polarbear")

COUNT = 60
COLUMNS = 10
#: Sides in pixels: larger images are made this small; up to the other, every pixel is kept.
LARGEST, EXACT = 96, 64


def pick_rows(stream: Stream, count: int = COUNT) -> Ints:
    """Return rows of test images, spread over superclasses and leaves, always the same: (count,).

    Three leaves of each superclass come first, then classes without one, then the rest.
    """
    view, tree = stream.test(len(stream) - 1), stream.hierarchy
    families: dict[int, list[int]] = defaultdict(list)
    for leaf in dict.fromkeys(view.leaf.tolist()):
        top = np.flatnonzero(tree.closure[leaf] & (tree.parent_array < 0))[0]
        families[int(top)].append(leaf)
    rank = {leaf: place for leaves in families.values() for place, leaf in enumerate(leaves)}
    turn: dict[int, int] = defaultdict(int)
    keys = []
    for row, leaf in zip(view.rows.tolist(), view.leaf.tolist(), strict=True):
        keys.append((turn[leaf], rank[leaf] // 3, leaf in families, rank[leaf], row))
        turn[leaf] += 1
    return np.array([key[-1] for key in sorted(keys)[:count]], dtype=np.intp)


def picture_data(stream: Stream, rows: Ints) -> dict[str, Any]:
    """Return the images side by side as a data address, or ``{"missing": why}``."""
    try:
        from PIL import Image
    except ImportError:
        return {"missing": f"pictures need Pillow: {install_line('report')}"}
    try:
        # Only one image at a time is here in full.
        images = stream.images("test")
        size = min(LARGEST, *np.asarray(images[int(rows[0])]).shape[:2])
        tiles = [_tile(np.asarray(images[row]), size) for row in rows.tolist()]
    except (PolarbearError, OSError, MemoryError) as error:
        log.warning("the page has no pictures: %s", error)
        return {"missing": str(error)}
    side, lines = len(tiles[0]), -(-len(tiles) // COLUMNS)
    sheet = Image.new("RGB", (COLUMNS * side, lines * side))
    for i, tile in enumerate(tiles):
        sheet.paste(Image.fromarray(tile), (i % COLUMNS * side, i // COLUMNS * side))
    kind = "png" if side <= EXACT else "jpeg"
    file = BytesIO()
    sheet.save(file, kind, quality=85, optimize=True)
    address = f"data:image/{kind};base64,{b64encode(file.getvalue()).decode()}"
    return {"sheet": address, "columns": COLUMNS, "lines": lines}


def _tile(image: Pixels, side: int) -> Pixels:
    """Return an image's middle square, so many pixels wide."""
    from PIL import Image

    whole = min(image.shape[:2])
    top, left = (image.shape[0] - whole) // 2, (image.shape[1] - whole) // 2
    square = image[top : top + whole, left : left + whole]
    return (
        square.copy() if whole == side else np.asarray(Image.fromarray(square).resize((side, side)))
    )
