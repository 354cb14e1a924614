"""From stored images to what a network sees: cropped, flipped and normalised, a batch at a time.

Images stay uint8 until here and are worked on where they lie, on a CPU or a GPU. What is random
is drawn on the host, for a whole epoch at once, so that a run sees the same images on any device.
Shapes depend on nothing but the batch's, so a CUDA graph can hold these steps.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from polarbear.base.errors import DataError, PolarbearError
from polarbear.base.findings import listed
from polarbear.data.colours import refuse_bad_colours
from polarbear.engine import compiling

_TRIES = 10  # boxes drawn before the whole image is taken, torchvision's number


@dataclass(frozen=True, eq=False)
class Jitter:
    """How each of n images is varied; ``jitter[a:b]`` is that of some of them.

    ``place`` is (n, 2) whole numbers, top and left in the padded image, or (n, 4) parts of the
    image's height and width, top, left, height, width; ``flip`` (n,) says which are mirrored. A
    crop of your own may put into ``place`` (n, …) whatever numbers its cut needs.
    """

    place: Tensor
    flip: Tensor

    def __len__(self) -> int:
        """Count the images."""
        return len(self.flip)

    def __getitem__(self, index: Any, /) -> "Jitter":
        """Return that of some images, by slice or index."""
        return Jitter(self.place[index], self.flip[index])

    def to(self, device: torch.device | str) -> "Jitter":
        """Return the same on a device."""
        return Jitter(self.place.to(device), self.flip.to(device))


class Crop(Protocol):
    """How images are cut out, by chance for training and always alike for evaluation.

    One of your own may do with the pixels what it likes, if the shape of what it returns depends on
    the shape of the images alone. All that is random comes from ``random`` in :meth:`draw`, on the
    host: :meth:`cut` runs on the device, and a CUDA graph repeats it with other jitters.
    """

    def draw(self, n: int, random: np.random.Generator) -> Jitter:
        """Draw for n images."""
        ...

    def cut(self, images: Tensor, jitter: Jitter) -> Tensor:
        """Return pixels (n, h', w', 3), uint8 or float from 0 to 255, of uint8 (n, h, w, 3)."""
        ...

    def cut_for_evaluation(self, images: Tensor) -> Tensor:
        """Return pixels (n, h', w', 3) of uint8 images (n, h, w, 3), without chance."""
        ...


@dataclass(frozen=True)
class PadCrop:
    """Pad with black, cut out the image's own size at a random place, mirror every other image."""

    pad: int = 4

    def draw(self, n: int, random: np.random.Generator) -> Jitter:
        """Draw for n images."""
        place = random.integers(0, 2 * self.pad, (n, 2), endpoint=True)
        return Jitter(torch.from_numpy(place), _draw_flips(n, random))

    def cut(self, images: Tensor, jitter: Jitter) -> Tensor:
        """Return pixels (n, h, w, 3) of images (n, h, w, 3)."""
        n, h, w, _ = images.shape
        padded = functional.pad(images, (0, 0, *[self.pad] * 4))
        index = self._sources(h, w, jitter)
        # index_select on whole pixels: four times as fast on a CPU as three index tensors.
        return padded.view(-1, 3).index_select(0, index.view(-1)).view(n, h, w, 3)

    def cut_for_evaluation(self, images: Tensor) -> Tensor:
        """Return the images as they are."""
        return images

    def _sources(self, h: int, w: int, jitter: Jitter) -> Tensor:
        """Return the padded pixel, counted over the whole batch, that each pixel comes from."""
        device = jitter.flip.device
        down, right = torch.arange(h, device=device), torch.arange(w, device=device)
        first = torch.arange(len(jitter), device=device) * (h + 2 * self.pad)
        rows = (first + jitter.place[:, 0])[:, None] + down
        columns = jitter.place[:, 1:] + torch.where(jitter.flip[:, None], w - 1 - right, right)
        return rows[:, :, None] * (w + 2 * self.pad) + columns[:, None, :]


@dataclass(frozen=True)
class BrightPadCrop(PadCrop):
    """As PadCrop, then every image is made brighter or darker by a factor 1 ± ``brightness``.

    The factor is drawn evenly, as torchvision's ColorJitter draws it; pixels end at 255.
    """

    brightness: float = 63 / 255

    def draw(self, n: int, random: np.random.Generator) -> Jitter:
        """Draw for n images: top, left and the factor."""
        plain = super().draw(n, random)
        factor = random.uniform(1 - self.brightness, 1 + self.brightness, (n, 1))
        place = torch.cat([plain.place.to(torch.float32), torch.from_numpy(factor).float()], dim=1)
        return Jitter(place, plain.flip)

    def cut(self, images: Tensor, jitter: Jitter) -> Tensor:
        """Return pixels (n, h, w, 3), float, of images (n, h, w, 3)."""
        plain = super().cut(images, Jitter(jitter.place[:, :2].long(), jitter.flip))
        return (plain * jitter.place[:, 2, None, None, None]).clamp(max=255)


@dataclass(frozen=True)
class ResizedCrop:
    """Cut out a random box, bring it to ``side`` × ``side``, mirror every other image.

    A box takes ``scale`` of the area with width : height in ``ratio``, both drawn as torchvision
    draws them, but placed at parts of a pixel. It is resized as PIL's bilinear resize does it,
    antialiased where the box shrinks: beside PIL on the same box of real images every pixel is
    within 1 of 255, which is PIL's rounding. torchvision cuts first and resizes then, so that a
    pixel at the rim knows no neighbour outside of the box: on 100 real images 0.4 % of the values
    differ by more than 1, by 36 at most, all of them there. For evaluation the centre is cut out.
    """

    side: int = 224
    scale: tuple[float, float] = (0.08, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)

    def draw(self, n: int, random: np.random.Generator) -> Jitter:
        """Draw for n images."""
        size = self._draw_sizes(n, random)
        corner = random.random((n, 2)) * (1 - size)
        place = np.concatenate([corner, size], axis=1).astype(np.float32)
        return Jitter(torch.from_numpy(place), _draw_flips(n, random))

    def cut(self, images: Tensor, jitter: Jitter) -> Tensor:
        """Return pixels (n, side, side, 3) of images (n, h, w, 3)."""
        n, h, w, _ = images.shape
        down, across = self._weights(jitter, h, w)
        rows = torch.bmm(down, images.reshape(n, h, w * 3).to(torch.float32))
        return torch.einsum("nvw,nhwc->nhvc", across, rows.view(n, self.side, w, 3))

    def cut_for_evaluation(self, images: Tensor) -> Tensor:
        """Return the centre (n, side, side, 3) of images (n, h, w, 3)."""
        h, w = images.shape[1:3]
        if min(h, w) < self.side:
            raise DataError(
                f"images of {h}×{w} are smaller than the {self.side}×{self.side} to cut out: "
                "store them larger, or give a preparation with a smaller side"
            )
        top, left = (h - self.side) // 2, (w - self.side) // 2
        return images[:, top : top + self.side, left : left + self.side]

    def _draw_sizes(self, n: int, random: np.random.Generator) -> NDArray[np.float64]:
        """Draw heights and widths (n, 2), again where they do not fit into the image."""
        sizes = np.full((n, 2), np.inf)
        low, high = map(math.log, self.ratio)
        for _ in range(_TRIES):
            beyond = np.flatnonzero((sizes > 1).any(axis=1))
            area = random.uniform(*self.scale, len(beyond))
            ratio = np.exp(random.uniform(low, high, len(beyond)))
            sizes[beyond] = np.sqrt(np.stack([area / ratio, area * ratio], axis=1))
        sizes[(sizes > 1).any(axis=1)] = 1.0
        return sizes

    def _weights(self, jitter: Jitter, h: int, w: int) -> tuple[Tensor, Tensor]:
        """Return what of each row, and of each column, of an image goes into each of the crop's.

        (n, side, h) and (n, side, w).
        """
        top, left, height, width = jitter.place.unbind(1)
        across = _triangles(left * w, width * w, w, self.side)
        mirrored = torch.where(jitter.flip[:, None, None], across.flip(1), across)
        return _triangles(top * h, height * h, h, self.side), mirrored


def _triangles(start: Tensor, length: Tensor, pixels: int, side: int) -> Tensor:
    """Return how ``side`` pixels are mixed from an image's: (n, side, pixels), each row sums to 1.

    They lie evenly from ``start`` (n,) over ``length`` (n,). A pixel counts by its distance, up to
    one pixel of the image or, where these are finer, of the result.
    """
    device, scale = start.device, length[:, None] / side
    centre = start[:, None] + (torch.arange(side, device=device) + 0.5) * scale
    apart = (torch.arange(pixels, device=device) + 0.5 - centre[:, :, None]).abs()
    weights = (1 - apart / scale.clamp(min=1)[:, :, None]).clamp(min=0)
    return weights / weights.sum(dim=2, keepdim=True)


@dataclass(frozen=True)
class ResizedTo:
    """Another crop, whose pixels are then brought to ``side`` × ``side``, antialiased."""

    crop: Crop
    side: int
    mode: Literal["bilinear", "bicubic"] = "bilinear"

    def draw(self, n: int, random: np.random.Generator) -> Jitter:
        """Draw for n images, as the other crop does."""
        return self.crop.draw(n, random)

    def cut(self, images: Tensor, jitter: Jitter) -> Tensor:
        """Return pixels (n, side, side, 3) of images (n, h, w, 3)."""
        return self._resized(self.crop.cut(images, jitter))

    def cut_for_evaluation(self, images: Tensor) -> Tensor:
        """Return pixels (n, side, side, 3) of images (n, h, w, 3), without chance."""
        return self._resized(self.crop.cut_for_evaluation(images))

    def _resized(self, pixels: Tensor) -> Tensor:
        if pixels.shape[1:3] == (self.side, self.side):
            return pixels
        maps = pixels.permute(0, 3, 1, 2).to(torch.float32)
        size = (self.side, self.side)
        found = functional.interpolate(maps, size, mode=self.mode, antialias=True)
        return found.clamp(0, 255).permute(0, 2, 3, 1)  # a bicubic curve leaves the range


@dataclass(frozen=True)
class ImageTransform:
    """How a data set's images are varied for training and normalised always.

    ``mean`` and ``std`` are those of red, green and blue, on a scale from 0 to 1. ``crop`` is a
    :class:`PadCrop`, a :class:`ResizedCrop` or one of your own (:class:`Crop`).
    """

    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    crop: Crop = PadCrop()

    def __post_init__(self) -> None:
        """Refuse what no image could be prepared by."""
        refuse_bad_colours(self.mean, self.std)
        wanted = ("draw", "cut", "cut_for_evaluation")
        if absent := [name for name in wanted if not callable(getattr(self.crop, name, None))]:
            raise PolarbearError(
                f"the crop {self.crop!r} has no {listed(absent, write=str)}: a crop has "
                "draw(n, random), cut(images, jitter) and cut_for_evaluation(images)"
            )


CIFAR = ImageTransform((0.5071, 0.4866, 0.4409), (0.2009, 0.1984, 0.2023))
# As PyCIL and much of the class-incremental literature prepare CIFAR-100.
CIFAR_BRIGHT = ImageTransform((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761), BrightPadCrop())
IMAGENET = ImageTransform((0.485, 0.456, 0.406), (0.229, 0.224, 0.225), ResizedCrop())
SHAPES = ImageTransform((0.5, 0.5, 0.5), (0.36, 0.36, 0.36))
TRANSFORMS: Mapping[str, ImageTransform] = MappingProxyType(
    {"cifar": CIFAR, "cifar-bright": CIFAR_BRIGHT, "imagenet": IMAGENET, "plain": SHAPES}
)
#: Crops whose lines are known here: those of one's own may do anything, and are not compiled.
OURS = (PadCrop, BrightPadCrop, ResizedCrop)


def augment(
    images: Tensor, jitter: Jitter, transform: ImageTransform, *, compiled: bool = False
) -> Tensor:
    """Return varied, normalised images (n, 3, h', w') of uint8 images (n, h, w, 3).

    The result is float32, channels last in memory. Padding is black before normalisation.
    ``compiled`` makes two or three kernels of some fifteen, for each shape anew.
    """
    if _are_features(images):
        return images
    _refuse_bad_images(images)
    if len(jitter) != len(images):
        raise DataError(f"{len(images)} images but a jitter for {len(jitter)}: give one each")
    given = (images, jitter, transform.crop, _linear(transform, images.device))
    if compiled and type(transform.crop) in OURS:
        kind = (type(transform.crop), images.shape, images.device)
        varied: Tensor = compiling.compiled(_vary, *kind)(*given)
        return varied
    return _vary(*given)


def augment_views(
    images: Tensor,
    jitters: Sequence[Jitter],
    transform: ImageTransform,
    *,
    compiled: bool = False,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Return the first view of uint8 images (n, h, w, 3), and the others, one for each jitter."""
    first, *others = (augment(images, one, transform, compiled=compiled) for one in jitters)
    return first, tuple(others)


def _vary(images: Tensor, jitter: Jitter, crop: Crop, linear: Tensor) -> Tensor:
    return _normalised(crop.cut(images, jitter), linear)


def for_evaluation(images: Tensor, transform: ImageTransform) -> Tensor:
    """Return normalised images (n, 3, h', w') of uint8 images (n, h, w, 3), as for evaluation.

    >>> for_evaluation(torch.full((1, 32, 32, 3), 255, dtype=torch.uint8), SHAPES).unique()
    tensor([1.3889])
    """
    if _are_features(images):
        return images
    _refuse_bad_images(images)
    linear = _linear(transform, images.device)
    return _normalised(transform.crop.cut_for_evaluation(images), linear)


def _normalised(pixels: Tensor, linear: Tensor) -> Tensor:
    n, h, w, _ = pixels.shape
    constants = linear.repeat(1, w)
    # Colours repeated along a row: four times as fast on a CPU as broadcasting over threes.
    rows = pixels.reshape(n, h, w * 3) * constants[0]
    return rows.add_(constants[1]).view(n, h, w, 3).permute(0, 3, 1, 2)


def _linear(transform: ImageTransform, device: torch.device) -> Tensor:
    return _scale_and_shift(tuple(transform.mean), tuple(transform.std), device)


@cache
def _scale_and_shift(
    means: tuple[float, ...], stds: tuple[float, ...], device: torch.device
) -> Tensor:
    """Return 1 / (255 std) and -mean / std: (2, 3).

    Kept, because a CUDA graph may not copy from the host, and reads the same address for ever.
    """
    mean, std = np.array(means), np.array(stds)
    # A tensor made in inference mode could not be used in training later.
    with torch.inference_mode(False):
        return torch.tensor(
            np.stack([1 / (255 * std), -mean / std]), dtype=torch.float32, device=device
        )


def _draw_flips(n: int, random: np.random.Generator) -> Tensor:
    return torch.from_numpy(random.random(n) < 0.5)


def _are_features(images: Tensor) -> bool:
    """Whether a frozen network's features (n, d, 1, 1) stand in the images' place: left alone."""
    return images.is_floating_point() and images.shape[2:] == (1, 1)


def _refuse_bad_images(images: Tensor) -> None:
    if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[-1] != 3:
        raise DataError(
            f"images must be uint8 (n, h, w, 3), not {images.dtype} {tuple(images.shape)}"
        )
