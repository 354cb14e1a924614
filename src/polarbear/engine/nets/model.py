"""A network and the head that predicts classes."""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor, nn

from polarbear.engine.nets.fused import features as fused


class Model(nn.Module):
    """``backbone`` gives features (n, d), ``head`` logits (n, seen); a logit over 0 is a yes."""

    def __init__(self, backbone: nn.Module, head: nn.Module) -> None:
        """Join the two."""
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.fused = False
        self.compiled_batch: int | None = None

    def features(self, images: Tensor) -> Tensor:
        """Return features (n, d) of images (n, 3, h, w).

        If asked for, networks that have fused kernels go through these. Of the others, batches of
        ``compiled_batch`` images go through ``torch.compile``; other batches, such as an epoch's
        last, are not worth compiling for.
        """
        if self.fused and fused.suits(self.backbone, images):
            return fused.features(self.backbone, images)
        if len(images) == self.compiled_batch:
            return _compiled()(self.backbone, images)
        return _call(self.backbone, images)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (n, seen) of images (n, 3, h, w)."""
        logits: Tensor = self.head(self.features(images))
        return logits


def weights_are_finite(*modules: nn.Module) -> Tensor:
    """Return whether all parameters and running statistics are finite, as a number on their device.

    Other buffers may hold infinities on purpose, such as a mask of attention.
    """
    weights: list[Tensor] = [weight for module in modules for weight in module.parameters()]
    for name, buffer in (named for module in modules for named in module.named_buffers()):
        if name.endswith(("running_mean", "running_var")):
            weights.append(buffer)
    return torch.stack([w.isfinite().all() for w in weights]).all()


def _call(backbone: nn.Module, images: Tensor) -> Tensor:
    features: Tensor = backbone(images)
    return features


@cache
def _compiled() -> Callable[[nn.Module, Tensor], Tensor]:
    """One compiled function for every model: weights are its inputs, so runs share its code."""
    return torch.compile(_call, dynamic=False)
