"""Whether fused kernels give on this very GPU what PyTorch's layers give.

A compiler, a driver or a kind of GPU that nobody tried must not train a run with wrong numbers. The
comparison is far coarser than the tests', but it sees a kernel that leaves something out.
"""

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from polarbear.base.errors import PolarbearError
from polarbear.engine.nets.fused.backward import BackwardPass
from polarbear.engine.nets.fused.evaluation import evaluated_maps
from polarbear.engine.nets.fused.forward import ForwardPass
from polarbear.engine.nets.fused.layers import layers_in, parameters
from polarbear.engine.nets.networks import build_backbone

IMAGES = 35  # the last block of threads is not full, whether blocks have two images or four
# Shifts of batch norm so far from 0 that few ReLUs turn with rounding: with none, bf16 alone moves
# half of the gradients by 0.3 and more.
STEADY = 2.5
# How far off numbers may be, as a part of PyTorch's in fp32; behind each, PyTorch's own bf16 at
# most (ResNet-20, 3 to 131 images, four draws on a CPU).
LIMITS = {
    "features of an image": 0.02,  # 0.0024
    "statistics of a layer": 0.02,  # 0.0055
    "features of an image in evaluation": 0.02,  # 0.0064
    "gradient of a filter": 0.4,  # 0.10
    "gradients of a batch norm": 0.5,  # 0.29
}


@dataclass(frozen=True)
class Numbers:
    """What a network gives in training, and then its features in evaluation."""

    features: Tensor
    gradients: list[Tensor]
    statistics: list[Tensor]
    evaluated: Tensor

    def named(self) -> dict[str, list[Tensor]]:
        """Return what is compared, under the names of ``LIMITS``."""
        filters, scales, shifts = (self.gradients[i::3] for i in range(3))
        return {
            "features of an image": [*self.features],
            "statistics of a layer": self.statistics,
            "features of an image in evaluation": [*self.evaluated],
            "gradient of a filter": filters,
            "gradients of a batch norm": [*map(torch.cat, zip(scales, shifts, strict=True))],
        }


def require(
    device: torch.device,
    height: int,
    width: int,
    *,
    whole: bool,
    dtype: torch.dtype = torch.bfloat16,
) -> None:
    """Raise if a small network's numbers are far from PyTorch's, on made-up images."""
    random = torch.Generator().manual_seed(0)
    images = torch.randn(IMAGES, 3, height, width, generator=random)
    # Networks are asked within autocast, and perhaps without gradients: here they are not.
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast(device.type, enabled=False),
    ):
        net = _steady_network().to(device)
        images = images.to(device=device, memory_format=torch.channels_last)
        goal = torch.randn(IMAGES, 64, generator=random).to(device)
        expected = _of_pytorch(copy.deepcopy(net), images, goal).named()
        found = _of_kernels(net, images, goal, whole, dtype).named()
    for name, limit in LIMITS.items():
        pairs = zip(found[name], expected[name], strict=True)
        apart = torch.stack([_apart(ours, theirs) for ours, theirs in pairs]).max()
        if not apart <= limit:  # nor where it is no number
            raise PolarbearError(f"{name}: off by {apart:.2g} of PyTorch's, {limit} is allowed")


def _steady_network() -> nn.Module:
    net = build_backbone("resnet20", 0).train()
    for layer in layers_in(net):
        channels = torch.arange(layer.outputs)
        nn.init.constant_(layer.norm.bias, STEADY)
        layer.norm.bias.data[channels // 2 % 2 == 1] = -STEADY
    return net


def _of_pytorch(net: nn.Module, images: Tensor, goal: Tensor) -> Numbers:
    features = net(images)
    gradients = [*torch.autograd.grad((features * goal).sum(), parameters(net))]
    with torch.no_grad():
        return Numbers(features.detach(), gradients, _statistics(net), net.eval()(images))


def _of_kernels(
    net: nn.Module, images: Tensor, goal: Tensor, whole: bool, dtype: torch.dtype
) -> Numbers:
    with torch.no_grad(), torch.cuda.device_of(images):  # type: ignore[no-untyped-call]
        forward = ForwardPass(net, images, dtype, whole=whole)
        features = forward.features()
        gradients = BackwardPass(forward).of_features(goal.to(features.dtype))
        *_, last = evaluated_maps(net.eval(), images, dtype, whole=whole)
    return Numbers(features, gradients, _statistics(net), last.float().mean(dim=(1, 2)))


def _statistics(net: nn.Module) -> list[Tensor]:
    return [b.clone() for b in net.buffers() if b.is_floating_point()]


def _apart(found: Tensor, expected: Tensor) -> Tensor:
    apart: Tensor = (found.float() - expected).norm() / expected.norm()
    return apart
