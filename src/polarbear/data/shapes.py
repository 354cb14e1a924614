"""The data set ``iirc-shapes``: drawn here, so that it needs no file and no network.

A superclass is a shape, a subclass one look of it ("striped circle"); a few figures stand alone.
Place, size, turn, colours, pattern and noise are drawn at random, the colours alike for every
class, so that only the form tells classes apart.

Random numbers come from raw bits by the key (seed, file, leaf): a class's images depend on
nothing else, and asking for more of them keeps the earlier ones. Every edge is soft, so that the
last bit of a sine, which differs between machines, does not turn a pixel.
"""

from hashlib import sha256

import numpy as np

from polarbear.base.arrays import Floats, Ints, Pixels, frozen
from polarbear.base.errors import refuse_below, unknown_name
from polarbear.benchmark.source import FileName, Source
from polarbear.data.shape_drawing import FIGURES, Canvas, Layers

SIDE = 32
LEAVES = tuple(FIGURES)

_SPLITS: tuple[FileName, ...] = ("train", "test")

# One draw an image each, in this order: a change of order changes every image.
_CHOICES = (
    *("across", "up", "size", "turn", "back_hue", "ink_hue", "paint_hue"),
    *("night", "swap", "back_shade", "ink_shade", "paint_shade", "glow", "glow_way"),
    *("pattern_way", "pattern_across", "pattern_up"),
)


def shapes(seed: int = 0, train_per_leaf: int = 100, test_per_leaf: int = 30) -> Source:
    """Draw the data set: 29 leaves, 32×32 colour; row i of a file shows leaf ``i % 29``.

    >>> source = shapes(train_per_leaf=2, test_per_leaf=1)
    >>> source.train[:].shape, source.leaves[source.train_leaf[1]]
    ((58, 32, 32, 3), 'striped_circle')
    """
    refuse_below(0, seed=seed, train_per_leaf=train_per_leaf, test_per_leaf=test_per_leaf)
    train = _draw_file("train", train_per_leaf, seed)
    test = _draw_file("test", test_per_leaf, seed)
    return Source(LEAVES, *train, *test, "iirc-shapes", _checksum(*train, *test))


def draw_leaf(leaf: str, count: int, *, seed: int = 0, split: FileName = "train") -> Pixels:
    """Draw the first images of one leaf: (count, 32, 32, 3).

    >>> draw_leaf("hollow_star", 3).shape
    (3, 32, 32, 3)
    """
    if leaf not in FIGURES:
        raise unknown_name("leaf class", leaf, LEAVES)
    if split not in _SPLITS:
        raise unknown_name("file", split, _SPLITS)
    refuse_below(0, seed=seed, count=count)
    key = (seed, _SPLITS.index(split), LEAVES.index(leaf))
    chance = _chances(key, count, len(_CHOICES) + SIDE * SIDE * 3)
    choice = {name: chance[:, i, None, None] for i, name in enumerate(_CHOICES)}
    noise = chance[:, len(_CHOICES) :].reshape(count, SIDE, SIDE, 3)
    return _develop(FIGURES[leaf](_canvas(choice)), choice, noise)


def _draw_file(split: FileName, per_leaf: int, seed: int) -> tuple[Pixels, Ints]:
    images = np.empty((per_leaf, len(LEAVES), SIDE, SIDE, 3), np.uint8)
    for i, leaf in enumerate(LEAVES):
        images[:, i] = draw_leaf(leaf, per_leaf, seed=seed, split=split)
    labels = np.tile(np.arange(len(LEAVES), dtype=np.intp), per_leaf)
    return frozen(images.reshape(-1, SIDE, SIDE, 3)), frozen(labels)


def _checksum(*arrays: Pixels | Ints) -> str:
    content = sha256()
    for array in arrays:
        # There are fewer than 256 leaves; bytes make the sum the same on every machine.
        content.update(array.astype(np.uint8, copy=False).tobytes())
    return f"sha256:{content.hexdigest()}"


def _chances(key: tuple[int, ...], rows: int, columns: int) -> Floats:
    """Return random numbers from 0 to 1: (rows, columns).

    NumPy promises the same raw bits for ever, but not the same floats from its Generator.
    """
    raw = np.random.PCG64(np.random.SeedSequence(key)).random_raw((rows, columns))
    return (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _canvas(choice: dict[str, Floats]) -> Canvas:
    radius = 10.5 + 2.5 * choice["size"]
    room = SIDE / 2 - 1.5 - radius
    row, column = np.indices((SIDE, SIDE)) - (SIDE - 1) / 2
    right = (column - room * (2 * choice["across"] - 1)) / radius
    up = (-row - room * (2 * choice["up"] - 1)) / radius
    x, y = _turned(right, up, 0.5 * (choice["turn"] - 0.5))
    s, t = _turned(x, y, 2 * np.pi * choice["pattern_way"])
    return Canvas(x, y, s + choice["pattern_across"], t + choice["pattern_up"], radius)


def _turned(x: Floats, y: Floats, angle: Floats) -> tuple[Floats, Floats]:
    cos, sin = np.cos(angle), np.sin(angle)
    return cos * x + sin * y, cos * y - sin * x


def _develop(layers: Layers, choice: dict[str, Floats], noise: Floats) -> Pixels:
    """Put two colours on a softly lit ground and add noise: (n, 32, 32, 3)."""
    # The ground is dark or light; the figure's colours take the two other levels of brightness.
    night, swap = choice["night"] < 0.5, choice["swap"] < 0.5
    far, middle = np.where(night, 0.88, 0.14), 0.5
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


def _colour(hue: Floats, level: Floats, shade: Floats) -> Floats:
    """Return colours of a hue at a brightness of level ± 0.06: (n, 1, 1, 3)."""
    level = (level + 0.12 * (shade - 0.5))[..., None]
    pure = 0.5 + 0.5 * np.cos(2 * np.pi * (hue[..., None] - np.arange(3) / 3))
    light = (pure * [0.30, 0.59, 0.11]).sum(axis=-1, keepdims=True)
    lifted = pure + (1 - pure) * (level - light) / (1 - light)
    colour: Floats = np.where(light < level, lifted, pure * level / light)
    return colour
