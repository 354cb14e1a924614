"""Draw the classes of iirc-shapes on one sheet.

A superclass a row with its subclasses beside it; on the right the classes without a superclass.
Needs Pillow: pip install '.[images]' in the checkout. Run: python examples/draw_shapes.py sheet.png
"""

import sys
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont

import polarbear

SAMPLES, TILE, GAP = 2, 64, 4
WIDTH, HEIGHT = SAMPLES * (TILE + GAP) + 14, TILE + 24
MARGIN, TITLE, ALONE = 16, 96, 24
INK, FAINT, LINE = "#1f2933", "#616e7c", "#cbd2d9"


def write(sheet: Image.Image, place: tuple[float, float], text: str, size: int, how: str) -> None:
    font = ImageFont.load_default(size=size)
    ImageDraw.Draw(sheet).text(place, text, INK if size > 13 else FAINT, font, anchor=how)


def draw_class(sheet: Image.Image, leaf: str, left: int, top: int) -> None:
    for i, pixels in enumerate(polarbear.draw_leaf(leaf, SAMPLES)):
        # Steps of 8 levels make the file a third smaller; the eye does not see them.
        tile = Image.fromarray(pixels // 8 * 8 + 4).resize((TILE, TILE), Image.Resampling.NEAREST)
        sheet.paste(tile, (left + i * (TILE + GAP), top))
    middle = left + (SAMPLES * (TILE + GAP) - GAP) / 2
    write(sheet, (middle, top + TILE + 3), leaf.replace("_", " "), 13, "ma")


def draw_sheet(hierarchy: polarbear.Hierarchy) -> Image.Image:
    below = {name: hierarchy.children(name) for name in hierarchy.superclasses}
    alone = [name for name in hierarchy.leaves if hierarchy.parent(name) is None]
    border = MARGIN + TITLE + max(map(len, below.values())) * WIDTH
    height = 2 * MARGIN + len(below) * HEIGHT - 6
    sheet = Image.new("RGB", (border + ALONE + WIDTH, height), "white")
    for row, (title, leaves) in enumerate(below.items()):
        top = MARGIN + row * HEIGHT
        write(sheet, (MARGIN, top + TILE / 2), title, 20, "lm")
        for column, leaf in enumerate(leaves):
            draw_class(sheet, leaf, MARGIN + TITLE + column * WIDTH, top)
    ImageDraw.Draw(sheet).line((border, MARGIN, border, height - MARGIN), LINE)
    lowered = (len(below) - len(alone)) * HEIGHT // 2
    write(sheet, (border + ALONE, MARGIN + lowered / 2 + 8), "no superclass", 20, "lm")
    for row, leaf in enumerate(alone):
        draw_class(sheet, leaf, border + ALONE, MARGIN + lowered + row * HEIGHT)
    return sheet


if __name__ == "__main__":
    path = Path(sys.argv[1] if len(sys.argv) > 1 else "iirc-shapes.png")
    sheet = draw_sheet(polarbear.load("iirc-shapes").hierarchy)
    sheet.save(path, optimize=True)
    print(f"wrote {path}")
