"""A network and the head that names classes."""

from typing import Protocol

from torch import Tensor, nn


class Head(Protocol):
    """Turns features into one score for each seen class."""

    def grow(self, seen: int) -> None:
        """Make room for classes up to ``seen``."""
        ...

    def __call__(self, features: Tensor) -> Tensor:
        """Give scores (n, seen) for features (n, d)."""
        ...


class Model(nn.Module):
    """``backbone`` gives features (n, d), ``head`` scores (n, seen); a score over 0 is a yes."""

    def __init__(self, backbone: nn.Module, head: nn.Module) -> None:
        """Join the two."""
        super().__init__()
        self.backbone = backbone
        self.head = head

    def features(self, images: Tensor) -> Tensor:
        """Give features (n, d) of images (n, 3, h, w)."""
        out: Tensor = self.backbone(images)
        return out

    def forward(self, images: Tensor) -> Tensor:
        """Give scores (n, seen) of images (n, 3, h, w)."""
        scores: Tensor = self.head(self.features(images))
        return scores
