"""A network and the head that predicts classes."""

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from polarbear.base.errors import PolarbearError
from polarbear.engine.compiling import Compiled, compiled, say_once, say_why_not
from polarbear.engine.nets.fused import features as fused
from polarbear.engine.nets.networks import has_maps


@dataclass(frozen=True)
class Compilation:
    """Batches as large as one of ``batches`` go through ``torch.compile``, each size by itself.

    Others, such as an epoch's last, are not worth compiling for. ``network`` names what is
    compiled: models of one name share the code, since weights are its inputs.
    """

    network: str
    batches: frozenset[int]

    def suits(self, backbone: nn.Module, images: Tensor) -> bool:
        """Whether a batch is as large as those of training, and a network trains or teaches.

        Evaluation takes other batches; one that happens to be as large compiles nothing.
        """
        trains = backbone.training or torch.is_grad_enabled()
        return len(images) in self.batches and (trains or not _learns(backbone))

    def announce(self, images: int) -> None:
        """Say once of each size of batches what takes a while before the first of them."""
        say_once(
            f"{self.network} is compiled for batches of {images}: about a minute before the first, "
            "less where PyTorch's cache has it (--no-compile leaves it out)"
        )

    def features(self, backbone: nn.Module, images: Tensor) -> Tensor:
        """Return features (n, d) of images (n, 3, h, w)."""
        self.announce(len(images))
        features: Tensor = self._function(backbone, images)(backbone, images)
        return features

    def works(self, backbone: nn.Module, images: Tensor) -> bool:
        """Whether a copy of a network can be compiled and trained on images; if not, that is said.

        It may not for want of a C compiler, of Triton, or of a folder to write to, or since a
        network refuses to be copied. What is compiled here is not compiled again.
        """
        try:
            network = deepcopy(backbone).train()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a network of one's own may hold anything
            say_why_not(error)
            return False
        function = self._function(network, images)
        try:
            features = function(network, images)
            if _learns(network):
                features.float().sum().backward()
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # code that was compiled may still not run
            function.give_up(error)
        return function.works

    def _function(self, backbone: nn.Module, images: Tensor) -> Compiled:
        device = images.device.type
        rounds = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        how = (backbone.training, torch.is_grad_enabled(), _learns(backbone), rounds)
        return compiled(_call, self.network, images.shape, images.device, *how)


class Model(nn.Module):
    """``backbone`` gives features (n, d), ``head`` logits (n, seen); a logit over 0 is a yes."""

    def __init__(self, backbone: nn.Module, head: nn.Module) -> None:
        """Join the two."""
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.fused = False
        self.compilation: Compilation | None = None

    def features(self, images: Tensor) -> Tensor:
        """Return features (n, d) of images (n, 3, h, w).

        If asked for, networks that have fused kernels go through these, and others through
        ``torch.compile``.
        """
        if self.fused and fused.suits(self.backbone, images):
            return fused.features(self.backbone, images)
        if self.compilation is not None and self.compilation.suits(self.backbone, images):
            return self.compilation.features(self.backbone, images)
        return _call(self.backbone, images)

    def maps(self, images: Tensor) -> Sequence[Tensor]:
        """Return the maps (n, c, h, w) that each stage ends with, before its ReLU.

        The means of the last ones over all places are the features. Networks that have fused
        kernels go through these, others through their own layers: compiled code keeps no maps.
        """
        self.refuse_without_maps()
        if self.fused and fused.suits(self.backbone, images):
            return fused.maps(self.backbone, images)
        found: Sequence[Tensor] = self.backbone.maps(images)  # type: ignore[operator]
        return found

    def refuse_without_maps(self, remedy: str = "choose another network") -> None:
        """Raise an error where the network has no maps, for a method that needs them."""
        if not has_maps(self.backbone):
            raise PolarbearError(
                f"{type(self.backbone).__name__} has no maps(images), which returns the maps "
                "(n, c, h, w) that each of its stages ends with, the last of which its features "
                f"are the means of: define it, or {remedy}"
            )

    def forward(self, images: Tensor) -> Tensor:
        """Return logits (n, seen) of images (n, 3, h, w)."""
        logits: Tensor = self.head(self.features(images))
        return logits


@torch.no_grad()
def weights_are_finite(*modules: nn.Module) -> Tensor:
    """Return whether all parameters and running statistics are finite, as a number on their device.

    Other buffers may hold infinities on purpose, such as a mask of attention.

    >>> weights_are_finite(nn.Linear(2, 3)).item()
    True
    """
    weights: list[Tensor] = [weight for module in modules for weight in module.parameters()]
    for name, buffer in (named for module in modules for named in module.named_buffers()):
        if name.endswith(("running_mean", "running_var")):
            weights.append(buffer)
    real = [w for w in weights if w.numel() and (w.is_floating_point() or w.is_complex())]
    if not real:
        return torch.ones((), dtype=torch.bool, device=weights[0].device if weights else None)
    # The greatest of each is NaN if one is. A GPU finds them in a few kernels; to ask every weight
    # by itself would be 800 after each epoch of a ResNet-32, as many as a step has.
    return torch.stack(torch._foreach_norm(real, math.inf)).isfinite().all()


def _call(backbone: nn.Module, images: Tensor) -> Tensor:
    features: Tensor = backbone(images)
    return features


def _learns(backbone: nn.Module) -> bool:
    return any(parameter.requires_grad for parameter in backbone.parameters())
