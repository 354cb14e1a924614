"""The data set ``iirc-shapes``: drawn here, so that it needs no file and no network.

A superclass is a shape, a subclass one look of it ("striped circle"); a few figures stand alone.
Place, size, turn, colours, pattern and noise are drawn at random, the colours alike for every
class, so that only the form tells classes apart.

Random numbers come from raw bits by the key (seed, file, leaf): a class's images depend on
nothing else, and asking for more of them keeps the earlier ones. Every edge is soft, so that the
last bit of a sine, which differs between machines, does not turn a pixel.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from hashlib import sha256

import numpy as np

from polarbear.arrays import Floats, Ints, Pixels, frozen
from polarbear.data.source import Source, SplitName
from polarbear.errors import DataError, unknown_name

SIDE = 32

# One draw an image each, in this order: a change of order changes every image.
_CHOICES = (
    *("across", "up", "size", "turn", "back_hue", "ink_hue", "paint_hue"),
    *("night", "swap", "back_shade", "ink_shade", "paint_shade", "glow", "glow_way"),
    *("pattern_way", "pattern_across", "pattern_up"),
)


@dataclass(frozen=True, eq=False)
class _Canvas:
    """Where n figures go: coordinates x, y (n, 32, 32) in units of each figure's radius.

    The origin is the figure's middle and y grows upwards. ``s`` and ``t`` are the same turned and
    shifted at random, for patterns. ``radius`` (n, 1, 1) is in pixels.
    """

    x: Floats
    y: Floats
    s: Floats
    t: Floats
    radius: Floats

    def cover(self, distance: Floats) -> Floats:
        """Turn signed distance from an edge, negative inside, into how much of a pixel it fills."""
        return np.clip(0.5 - distance * self.radius, 0.0, 1.0)


# How much of each pixel the two colours of a figure fill: (n, 32, 32) each.
Layers = tuple[Floats, Floats]


def shapes(seed: int = 0, train_per_leaf: int = 100, test_per_leaf: int = 30) -> Source:
    """Draw the data set: 29 leaves, 32×32 colour; row i of a file shows leaf ``i % 29``.

    >>> source = shapes(train_per_leaf=2, test_per_leaf=1)
    >>> source.train[:].shape, source.leaves[source.train_leaf[1]]
    ((58, 32, 32, 3), 'striped_circle')
    """
    train, train_leaf = _draw_file("train", train_per_leaf, seed)
    test, test_leaf = _draw_file("test", test_per_leaf, seed)
    content = sha256()
    for array in (train, train_leaf, test, test_leaf):
        content.update(array.data)
    return Source(
        LEAVES, train, train_leaf, test, test_leaf, "iirc-shapes", f"sha256:{content.hexdigest()}"
    )


def draw_leaf(leaf: str, count: int, *, seed: int = 0, split: SplitName = "train") -> Pixels:
    """Draw the first images of one leaf: (count, 32, 32, 3).

    >>> draw_leaf("hollow_star", 3).shape
    (3, 32, 32, 3)
    """
    if leaf not in _FIGURES:
        raise unknown_name("leaf class", leaf, LEAVES)
    if split not in _SPLITS:
        raise unknown_name("file", split, _SPLITS)
    for name, value in (("seed", seed), ("images per leaf", count)):
        if value < 0:
            raise DataError(f"{name} must be a whole number from 0, not {value!r}")
    key = (seed, _SPLITS.index(split), LEAVES.index(leaf))
    chance = _chances(key, count, len(_CHOICES) + SIDE * SIDE * 3)
    choice = {name: chance[:, i, None, None] for i, name in enumerate(_CHOICES)}
    noise = chance[:, len(_CHOICES) :].reshape(count, SIDE, SIDE, 3)
    return _develop(_FIGURES[leaf](_canvas(choice)), choice, noise)


def _draw_file(split: SplitName, per_leaf: int, seed: int) -> tuple[Pixels, Ints]:
    images = np.empty((per_leaf, len(LEAVES), SIDE, SIDE, 3), np.uint8)
    for i, leaf in enumerate(LEAVES):
        images[:, i] = draw_leaf(leaf, per_leaf, seed=seed, split=split)
    labels = np.tile(np.arange(len(LEAVES), dtype=np.intp), per_leaf)
    return frozen(images.reshape(-1, SIDE, SIDE, 3)), frozen(labels)


def _chances(key: tuple[int, ...], rows: int, columns: int) -> Floats:
    """Give random numbers from 0 to 1: (rows, columns).

    NumPy promises the same raw bits for ever, but not the same floats from its Generator.
    """
    raw = np.random.PCG64(np.random.SeedSequence(key)).random_raw((rows, columns))
    return (raw >> np.uint64(11)) * 2.0**-53


def _canvas(choice: dict[str, Floats]) -> _Canvas:
    radius = 10.5 + 2.5 * choice["size"]
    room = (SIDE - 1) / 2 - radius
    row, column = np.indices((SIDE, SIDE)) - (SIDE - 1) / 2
    right = (column - room * (2 * choice["across"] - 1)) / radius
    up = (-row - room * (2 * choice["up"] - 1)) / radius
    x, y = _turned(right, up, 0.5 * (choice["turn"] - 0.5))
    s, t = _turned(x, y, 2 * np.pi * choice["pattern_way"])
    return _Canvas(x, y, s + choice["pattern_across"], t + choice["pattern_up"], radius)


def _turned(x: Floats, y: Floats, angle: Floats) -> tuple[Floats, Floats]:
    cos, sin = np.cos(angle), np.sin(angle)
    return cos * x + sin * y, cos * y - sin * x


def _develop(layers: Layers, choice: dict[str, Floats], noise: Floats) -> Pixels:
    """Put two colours on a softly lit ground and add noise: (n, 32, 32, 3)."""
    # The ground is dark or light; the figure's colours take the two other levels of brightness.
    night, swap = choice["night"] < 0.5, choice["swap"] < 0.5
    far, middle = np.where(night, 0.88, 0.14), 0.50
    ground = _colour(choice["back_hue"], np.where(night, 0.14, 0.88), choice["back_shade"])
    ink = _colour(choice["ink_hue"], np.where(swap, far, middle), choice["ink_shade"])
    paint = _colour(choice["paint_hue"], np.where(swap, middle, far), choice["paint_shade"])
    row, column = np.indices((SIDE, SIDE)) / (SIDE - 1) - 0.5
    slope, _ = _turned(column, row, 2 * np.pi * choice["glow_way"])
    image = ground + (0.2 * choice["glow"] * slope)[..., None]
    for cover, colour in zip(layers, (ink, paint), strict=True):
        image += cover[..., None] * (colour - ground)
    image += 0.08 * (noise - 0.5)
    return np.floor(255 * np.clip(image, 0, 1) + 0.5).astype(np.uint8)


def _colour(hue: Floats, level: Floats | float, shade: Floats) -> Floats:
    """Give colours of a hue at a brightness of level ± 0.06: (n, 1, 1, 3)."""
    level = (level + 0.12 * (shade - 0.5))[..., None]
    pure = 0.5 + 0.5 * np.cos(2 * np.pi * (hue[..., None] - np.arange(3) / 3))
    light = (pure * [0.30, 0.59, 0.11]).sum(axis=-1, keepdims=True)
    lifted = pure + (1 - pure) * (level - light) / (1 - light)
    return np.where(light < level, lifted, pure * level / light)


# Shapes: signed distance from the edge in radii, negative inside.


def _box(x: Floats, y: Floats, width: float, height: float) -> Floats:
    return np.maximum(np.abs(x) - width, np.abs(y) - height)


def _disc(x: Floats, y: Floats, radius: float) -> Floats:
    return np.sqrt(x * x + y * y) - radius


def _union(*parts: Floats) -> Floats:
    return reduce(np.minimum, parts)


def _sides(x: Floats, y: Floats, count: int, inner: float) -> Floats:
    """Give the distance from each side of a polygon that stands on one: (count, n, 32, 32)."""
    angle = 2 * np.pi * np.arange(count)[:, None, None, None] / count
    return -np.sin(angle) * x - np.cos(angle) * y - inner


def _circle(x: Floats, y: Floats) -> Floats:
    return _disc(x, y, 0.95)


def _square(x: Floats, y: Floats) -> Floats:
    return _box(x, y, 0.82, 0.82)


def _triangle(x: Floats, y: Floats) -> Floats:
    return _sides(x, y + 0.22, 3, 0.54).max(axis=0)


def _star(x: Floats, y: Floats) -> Floats:
    # Inside a five-pointed star at most one of the five lines through its points is crossed.
    return np.sort(_sides(x, y + 0.05, 5, 0.345), axis=0)[-2]


def _heart(x: Floats, y: Floats) -> Floats:
    a, b = (y + 0.1 + x) * 0.5**0.5, (y + 0.1 - x) * 0.5**0.5
    return _union(_box(a, b, 0.58, 0.58), _disc(a, b - 0.58, 0.58), _disc(a - 0.58, b, 0.58))


def _cross(x: Floats, y: Floats) -> Floats:
    return _union(_box(x, y, 0.36, 0.98), _box(x, y, 0.98, 0.36))


def _arrow(x: Floats, y: Floats) -> Floats:
    head = np.maximum(np.abs(x) * 0.75 + (y - 1.0) * 0.66, 0.05 - y)
    return _union(head, _box(x, y + 0.3, 0.36, 0.66))


# Looks: how a shape's two colours share it, given the distance from its edge.


def _waves(along: Floats, period: float) -> Floats:
    """Give bands of half a period, about the signed distance from their edges."""
    return np.sin(2 * np.pi * along / period) * (period / (2 * np.pi))


def _shared(canvas: _Canvas, shape: Floats, pattern: Floats) -> Layers:
    whole, part = canvas.cover(shape), canvas.cover(pattern)
    return whole * part, whole * (1 - part)


def _solid(canvas: _Canvas, shape: Floats) -> Layers:
    whole = canvas.cover(shape)
    return whole, np.zeros_like(whole)


def _hollow(canvas: _Canvas, shape: Floats) -> Layers:
    return _solid(canvas, np.maximum(shape, -shape - 0.24))


def _striped(canvas: _Canvas, shape: Floats) -> Layers:
    return _shared(canvas, shape, _waves(canvas.s, 0.55))


def _checked(canvas: _Canvas, shape: Floats) -> Layers:
    cells = np.sin(2 * np.pi * canvas.s / 0.8) * np.sin(2 * np.pi * canvas.t / 0.8)
    return _shared(canvas, shape, cells * (0.8 / (2 * np.pi)))


def _dotted(canvas: _Canvas, shape: Floats) -> Layers:
    bumps = np.cos(2 * np.pi * canvas.s / 0.6) + np.cos(2 * np.pi * canvas.t / 0.6)
    return _shared(canvas, shape, (bumps - 0.9) * (0.6 / (2 * np.pi)))


def _halved(canvas: _Canvas, shape: Floats) -> Layers:
    return _shared(canvas, shape, canvas.x)


# Figures without a superclass.


def _moon(canvas: _Canvas) -> Layers:
    whole, bite = _circle(canvas.x, canvas.y), _disc(canvas.x - 0.42, canvas.y - 0.1, 0.74)
    return _solid(canvas, np.maximum(whole, -bite))


def _cloud(canvas: _Canvas) -> Layers:
    x, y = canvas.x, canvas.y + 0.25
    puffs = _union(_disc(x + 0.58, y - 0.08, 0.4), _disc(x + 0.1, y - 0.42, 0.54))
    puffs = _union(puffs, _disc(x - 0.58, y - 0.12, 0.42), _box(x, y + 0.1, 0.6, 0.2))
    return _solid(canvas, np.maximum(puffs, -y - 0.25))


def _spiral(canvas: _Canvas) -> Layers:
    x, y = canvas.x, canvas.y
    out = np.sqrt(x * x + y * y + 1e-6)
    way = 2 * np.pi * out / 0.5
    arm = (np.sin(way) * x - np.cos(way) * y) / out * (0.5 / (2 * np.pi))
    return _solid(canvas, np.maximum(arm, out - 1.0))


def _zigzag(canvas: _Canvas) -> Layers:
    bend = np.arcsin(np.cos(2 * np.pi * canvas.x / 0.96)) * (2 / np.pi)
    line = np.abs(canvas.y - 0.42 * bend) * 0.5 - 0.14
    return _solid(canvas, np.maximum(line, np.abs(canvas.x) - 1.0))


def _bear(canvas: _Canvas) -> Layers:
    x, y = np.abs(canvas.x), canvas.y + 0.12
    head = _union(_disc(x, y, 0.82), _disc(x - 0.62, y - 0.68, 0.32))
    face = _union(_disc(x - 0.32, y - 0.2, 0.13), _disc(x * 0.8, y + 0.3, 0.22))
    ink, paint = _shared(canvas, head, -face)
    return ink, paint


_SHAPES: dict[str, Callable[[Floats, Floats], Floats]] = {
    "circle": _circle,
    "square": _square,
    "triangle": _triangle,
    "star": _star,
    "heart": _heart,
    "cross": _cross,
    "arrow": _arrow,
}
_LOOKS: dict[str, Callable[[_Canvas, Floats], Layers]] = {
    "solid": _solid,
    "striped": _striped,
    "dotted": _dotted,
    "checked": _checked,
    "hollow": _hollow,
    "halved": _halved,
}
_LOOKS_OF = {
    "circle": ("solid", "striped", "dotted", "halved"),
    "square": ("striped", "checked", "hollow", "halved"),
    "triangle": ("solid", "dotted", "checked", "hollow"),
    "star": ("solid", "striped", "hollow"),
    "heart": ("solid", "dotted", "halved"),
    "cross": ("striped", "checked", "hollow"),
    "arrow": ("dotted", "checked", "halved"),
}


def _figure(shape: str, look: str) -> Callable[[_Canvas], Layers]:
    return lambda canvas: _LOOKS[look](canvas, _SHAPES[shape](canvas.x, canvas.y))


_FIGURES: dict[str, Callable[[_Canvas], Layers]] = {
    f"{look}_{shape}": _figure(shape, look) for shape, looks in _LOOKS_OF.items() for look in looks
} | {"moon": _moon, "cloud": _cloud, "spiral": _spiral, "zigzag": _zigzag, "bear": _bear}

LEAVES = tuple(_FIGURES)
_SPLITS: tuple[SplitName, ...] = ("train", "test")
