"""The figures of ``iirc-shapes``, drawn by signed distances.

Each shape is one formula, each look another, so a new one is a few lines and an entry in a table.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce

import numpy as np

from polarbear.base.arrays import Floats


@dataclass(frozen=True, eq=False)
class Canvas:
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


# Shapes: signed distance from the edge in radii, negative inside.


def _box(x: Floats, y: Floats, width: float, height: float) -> Floats:
    return np.maximum(np.abs(x) - width, np.abs(y) - height)


def _disc(x: Floats, y: Floats, radius: float) -> Floats:
    return np.sqrt(x * x + y * y) - radius


def _union(*parts: Floats) -> Floats:
    return reduce(np.minimum, parts)


def _sides(x: Floats, y: Floats, count: int, inner: float) -> Floats:
    """Return the distance from each side of a polygon that stands on one: (count, n, 32, 32)."""
    angle: Floats = 2 * np.pi * np.arange(count)[:, None, None, None] / count
    return -np.sin(angle) * x - np.cos(angle) * y - inner


def _nth_largest(n: int, distances: Floats) -> Floats:
    nth: Floats = np.sort(distances, axis=0)[-n]
    return nth


def _circle(x: Floats, y: Floats) -> Floats:
    return _disc(x, y, 0.95)


def _heart(x: Floats, y: Floats) -> Floats:
    a, b = (y + 0.1 + x) * 0.5**0.5, (y + 0.1 - x) * 0.5**0.5
    return _union(_box(a, b, 0.58, 0.58), _disc(a, b - 0.58, 0.58), _disc(a - 0.58, b, 0.58))


def _arrow(x: Floats, y: Floats) -> Floats:
    head = np.maximum(np.abs(x) * 0.72 + (y - 1.0) * 0.69, -0.02 - y)
    return _union(head, _box(x, y + 0.3, 0.4, 0.68))


# Looks: how a shape's two colours share it, given the distance from its edge. A wave times its
# period over 2 π is about the signed distance from the edges of its bands.


def _shared(canvas: Canvas, shape: Floats, pattern: Floats) -> Layers:
    whole, part = canvas.cover(shape), canvas.cover(pattern)
    return whole * part, whole * (1 - part)


def _solid(canvas: Canvas, shape: Floats) -> Layers:
    whole = canvas.cover(shape)
    return whole, np.zeros_like(whole)


def _striped(canvas: Canvas, shape: Floats) -> Layers:
    bands = np.sin(2 * np.pi * canvas.s / 0.55)
    return _shared(canvas, shape, bands * (0.55 / (2 * np.pi)))


def _checked(canvas: Canvas, shape: Floats) -> Layers:
    cells = np.sin(2 * np.pi * canvas.s / 0.8) * np.sin(2 * np.pi * canvas.t / 0.8)
    return _shared(canvas, shape, cells * (0.8 / (2 * np.pi)))


def _dotted(canvas: Canvas, shape: Floats) -> Layers:
    bumps = np.cos(2 * np.pi * canvas.s / 0.6) + np.cos(2 * np.pi * canvas.t / 0.6)
    return _shared(canvas, shape, (bumps - 0.9) * (0.6 / (2 * np.pi)))


# Figures without a superclass.


def _moon(canvas: Canvas) -> Layers:
    whole, bite = _circle(canvas.x, canvas.y), _disc(canvas.x - 0.42, canvas.y - 0.1, 0.74)
    return _solid(canvas, np.maximum(whole, -bite))


def _cloud(canvas: Canvas) -> Layers:
    x, y = canvas.x, canvas.y + 0.25
    puffs = _union(_disc(x + 0.58, y - 0.08, 0.4), _disc(x + 0.1, y - 0.42, 0.54))
    puffs = _union(puffs, _disc(x - 0.58, y - 0.12, 0.42), _box(x, y + 0.1, 0.6, 0.2))
    return _solid(canvas, np.maximum(puffs, -y - 0.25))


def _spiral(canvas: Canvas) -> Layers:
    x, y = canvas.x, canvas.y
    out = np.sqrt(x * x + y * y + 1e-6)
    way = 2 * np.pi * out / 0.5
    arm = (np.sin(way) * x - np.cos(way) * y) / out * (0.5 / (2 * np.pi))
    return _solid(canvas, np.maximum(arm, out - 1.0))


def _zigzag(canvas: Canvas) -> Layers:
    bend = np.arcsin(np.sin(2 * np.pi * canvas.x / 0.8)) * (2 / np.pi)
    line = np.abs(canvas.y - 0.45 * bend) * 0.41 - 0.11
    return _solid(canvas, np.maximum(line, np.abs(canvas.x) - 1.0))


def _bear(canvas: Canvas) -> Layers:
    x, y = np.abs(canvas.x), canvas.y + 0.12
    head = _union(_disc(x, y, 0.82), _disc(x - 0.62, y - 0.68, 0.32))
    face = _union(_disc(x - 0.32, y - 0.2, 0.13), _disc(x * 0.8, y + 0.3, 0.22))
    return _shared(canvas, head, -face)


_SHAPES: dict[str, Callable[[Floats, Floats], Floats]] = {
    "circle": _circle,
    "square": lambda x, y: _box(x, y, 0.82, 0.82),
    "triangle": lambda x, y: _nth_largest(1, _sides(x, y + 0.22, 3, 0.54)),
    # Inside a five-pointed star at most one of the five lines along its sides is crossed.
    "star": lambda x, y: _nth_largest(2, _sides(x, y + 0.05, 5, 0.35)),
    "heart": _heart,
    "cross": lambda x, y: _union(_box(x, y, 0.36, 0.98), _box(x, y, 0.98, 0.36)),
    "arrow": _arrow,
}
_LOOKS: dict[str, Callable[[Canvas, Floats], Layers]] = {
    "solid": _solid,
    "striped": _striped,
    "dotted": _dotted,
    "checked": _checked,
    "hollow": lambda canvas, shape: _solid(canvas, np.maximum(shape, -shape - 0.2)),
    "halved": lambda canvas, shape: _shared(canvas, shape, canvas.x),
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


def _figure(shape: str, look: str) -> Callable[[Canvas], Layers]:
    return lambda canvas: _LOOKS[look](canvas, _SHAPES[shape](canvas.x, canvas.y))


FIGURES: dict[str, Callable[[Canvas], Layers]] = {
    f"{look}_{shape}": _figure(shape, look) for shape, looks in _LOOKS_OF.items() for look in looks
} | {"moon": _moon, "cloud": _cloud, "spiral": _spiral, "zigzag": _zigzag, "bear": _bear}
