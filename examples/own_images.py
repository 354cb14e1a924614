"""Images of one's own: smaller boxes, and light that changes from image to image."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from polarbear.learn import ImageTransform, Jitter, PadCrop, ResizedCrop

HALF = (0.5, 0.5, 0.5)
little = ImageTransform(mean=HALF, std=HALF, crop=PadCrop(pad=2))


def boxes(side: int = 12, smallest: float = 0.3) -> ImageTransform:
    """Return a preparation that brings random boxes to side × side."""
    return ImageTransform(HALF, HALF, ResizedCrop(side, scale=(smallest, 1.0)))


@dataclass(frozen=True)
class Light:
    """A crop that cuts nothing: it makes each image brighter or darker."""

    most: float = 0.3

    def draw(self, n: int, random: np.random.Generator) -> Jitter:
        """Draw a factor for each of n images, and which of them are mirrored."""
        factor = random.uniform(1 - self.most, 1 + self.most, (n, 1)).astype(np.float32)
        return Jitter(torch.from_numpy(factor), torch.from_numpy(random.random(n) < 0.5))

    def cut(self, images: Tensor, jitter: Jitter) -> Tensor:
        """Return pixels (n, h, w, 3), from 0 to 255, of uint8 images (n, h, w, 3)."""
        lit = (images * jitter.place[:, :, None, None]).clamp(max=255)
        return torch.where(jitter.flip[:, None, None, None], lit.flip(2), lit)

    def cut_for_evaluation(self, images: Tensor) -> Tensor:
        """Return the images as they are."""
        return images


def light(most: float = 0.3) -> ImageTransform:
    """Return a preparation that changes the light."""
    return ImageTransform(HALF, HALF, Light(most))
