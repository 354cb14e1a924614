"""Networks of one's own: a small vision transformer, and how a network says what it wants."""

import torch
from torch import Tensor, nn


class TinyViT(nn.Module):
    """A vision transformer: (n, 3, side, side) → (n, width)."""

    def __init__(self, width: int, depth: int, side: int, patch: int) -> None:
        super().__init__()
        self.out_features = width  # or num_features, as timm calls it
        self.cut = nn.Conv2d(3, width, patch, patch)
        self.first = nn.Parameter(torch.randn(1, 1, width) / width**0.5)
        self.places = nn.Parameter(torch.randn(1, 1 + (side // patch) ** 2, width) / width**0.5)
        layer = nn.TransformerEncoderLayer(
            width, max(1, width // 32), 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.norm = nn.LayerNorm(width)

    def forward(self, images: Tensor) -> Tensor:
        return self.pooled(self.tokens(images))

    def tokens(self, images: Tensor) -> Tensor:
        patches = self.cut(images).flatten(2).transpose(1, 2)
        return torch.cat([self.first.expand(len(images), -1, -1), patches], dim=1) + self.places

    def pooled(self, tokens: Tensor) -> Tensor:
        return self.norm(self.layers(tokens))[:, 0]


def tiny_vit(width: int = 64, depth: int = 2, side: int = 48, patch: int = 8) -> nn.Module:
    """Return a network whose images are brought to side × side, with colours from -1 to 1."""
    network = TinyViT(width, depth, side, patch)
    half = (0.5, 0.5, 0.5)
    network.pretrained_cfg = {"input_size": (3, side, side), "mean": half, "std": half}
    return network


def frozen_vit(weights: str | None = None, **options: int) -> nn.Module:
    """Return one that is never trained, with weights from a file if there is one."""
    network = tiny_vit(**options)
    if weights is not None:
        network.load_state_dict(torch.load(weights, weights_only=True))
    network.frozen = True
    return network
