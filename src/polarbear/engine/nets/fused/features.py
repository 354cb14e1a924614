"""The ResNets for 32×32 images in few, fused kernels: the same mathematics, three times the speed.

A general library reads every map of a small network several times: to convolve, to sum, to
normalise, to add, and the same again backwards. Here a layer is one or two kernels forwards and as
many backwards (``forward``, ``backward``, ``evaluation``), which round where PyTorch's autocast
rounds: maps and their gradients are bfloat16 in memory; sums, statistics, weights and their
gradients float32.
Sums over a batch are added up in the order in which the GPU comes to them, so the last bits differ
from run to run, as they do with cuDNN.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from polarbear.base.out_of_memory import ran_out
from polarbear.engine.nets.fused import agreement, whole_images
from polarbear.engine.nets.fused.backward import BackwardPass
from polarbear.engine.nets.fused.evaluation import evaluated_maps
from polarbear.engine.nets.fused.forward import ForwardPass
from polarbear.engine.nets.fused.launch import CONVOLVE, kernels
from polarbear.engine.nets.fused.layers import ends_of_stages, parameters
from polarbear.engine.nets.networks import CifarResNet, Residual, UncountedBatchNorm

log = logging.getLogger("polarbear")

PARTS = (CifarResNet, Residual, UncountedBatchNorm, nn.Sequential, nn.Conv2d, nn.ReLU, nn.Identity)
# Elements of the largest maps: offsets have 32 bits, and the last program's overhang.
REACH = 2**31 - 2**20


def suits(backbone: nn.Module, images: Tensor) -> bool:
    """Whether the fused kernels can do this: a ResNet for 32×32 images in bf16 on a GPU."""
    return (
        isinstance(backbone, CifarResNet)
        and images.is_cuda
        and torch.is_autocast_enabled("cuda")
        and torch.get_autocast_dtype("cuda") == torch.bfloat16
        and not torch.are_deterministic_algorithms_enabled()
        and gives_gradients(backbone, images)
        and takes(images)
        and is_as_built(backbone)
        and works(images.device, images.shape[2], images.shape[3])
    )


def gives_gradients(backbone: nn.Module, images: Tensor) -> bool:
    """Whether all gradients that may be asked for are there: the parameters', in training."""
    return not torch.is_grad_enabled() or (backbone.training and not images.requires_grad)


def takes(images: Tensor) -> bool:
    """Whether images have a shape for the kernels: both strides divide it, offsets reach it."""
    n, colours, height, width = images.shape
    places = n * height * width
    # The last maps have 1/16 of the places; a single one has no variance, which PyTorch refuses.
    return colours == 3 and height % 4 == width % 4 == 0 and 16 < places <= REACH // 32


def is_as_built(backbone: nn.Module) -> bool:
    """Whether a network is as ``cifar_resnet`` built it: no part changed, hooked or frozen."""
    modules = [*backbone.modules()]
    clips = [m.relu_after for m in modules if isinstance(m, Residual)]
    norms = {(m.momentum, m.eps) for m in modules if isinstance(m, nn.BatchNorm2d)}
    return (
        all(_is_known(m) and m.training == backbone.training for m in modules)
        and len(norms) == 1
        and None not in norms.pop()
        and clips == [True] * (len(clips) - 1) + [False]
        and all(p.dtype == torch.float32 for p in backbone.parameters())
    )


def _is_known(module: nn.Module) -> bool:
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    if type(module) not in PARTS or any(getattr(module, name) for name in hooks):
        return False
    if isinstance(module, nn.Conv2d):
        return module.bias is None and module.out_channels in CONVOLVE
    return not isinstance(module, Residual) or len(module.layers) == 3


@cache
def works(device: torch.device, height: int, width: int) -> bool:
    """Whether the kernels compile and run here, tried once; if not, this is said.

    They may not for want of a C compiler, of a folder to write to, or of a new enough Triton.
    """
    try:
        # Older GPUs have no matrix units for bf16; to compile for them takes minutes.
        if kernels() is None or not _has_bf16(device):
            return False
        with _waiting_is_allowed(device):
            _try_out(device, height, width)
    except Exception as error:
        if ran_out(error):
            raise  # another time there may be room
        log.warning(
            "the fused kernels do not work here, so PyTorch's layers are used, which are slower "
            "(--no-fused does not try): %s: %s",
            type(error).__name__,
            error,
        )
        return False
    return True


@contextmanager
def _waiting_is_allowed(device: torch.device) -> Iterator[None]:
    """Let numbers be compared on the host, also amid a step that must not wait for the device."""
    before = torch.cuda.get_sync_debug_mode() if device.type == "cuda" else 0
    if not before:  # waiting is allowed, and to say so again would make PyTorch warn
        yield
        return
    torch.cuda.set_sync_debug_mode("default")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def _has_bf16(device: torch.device) -> bool:
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= (8, 0)


def _try_out(device: torch.device, height: int, width: int) -> None:
    """Look whether the kernels that a run will use give PyTorch's numbers."""
    if not whole_images.work(device, height, width):
        agreement.require(device, height, width, whole=False)


def features(backbone: nn.Module, images: Tensor, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    """Return the features (n, 64) of images (n, 3, h, w), as ``backbone(images)`` would."""
    whole = _by_whole_images(images, dtype)
    # Triton launches on the current GPU, wherever the tensors lie.
    with torch.cuda.device_of(images):  # type: ignore[no-untyped-call]
        if torch.is_grad_enabled():
            result: Tensor = _Features.apply(  # type: ignore[no-untyped-call]
                backbone, images, dtype, whole, False, *parameters(backbone)
            )
            return result
        if backbone.training:
            return ForwardPass(backbone, images, dtype, whole=whole, keep=False).features()
        return evaluated_maps(backbone, images, dtype, whole=whole)[-1].mean(dim=(1, 2))


def maps(
    backbone: nn.Module, images: Tensor, dtype: torch.dtype = torch.bfloat16
) -> tuple[Tensor, ...]:
    """Return the maps (n, c, h, w) that stages end with, as ``backbone.maps(images)`` would."""
    whole = _by_whole_images(images, dtype)
    with torch.cuda.device_of(images):  # type: ignore[no-untyped-call]
        found: tuple[Tensor, ...]
        if torch.is_grad_enabled():
            found = _Features.apply(  # type: ignore[no-untyped-call]
                backbone, images, dtype, whole, True, *parameters(backbone)
            )
        elif backbone.training:
            found = ForwardPass(backbone, images, dtype, whole=whole, keep=False, maps=True).maps()
        else:
            ends = ends_of_stages(backbone)
            found = evaluated_maps(backbone, images, dtype, whole=whole, ends=ends)
    return tuple(one.permute(0, 3, 1, 2) for one in found)


def _by_whole_images(images: Tensor, dtype: torch.dtype) -> bool:
    return dtype == torch.bfloat16 and whole_images.work(images.device, *images.shape[2:])


class _Features(torch.autograd.Function):
    """Features, or maps, of images, and their way back."""

    @staticmethod
    def forward(
        ctx: Any,
        backbone: nn.Module,
        images: Tensor,
        dtype: torch.dtype,
        whole: bool,
        maps: bool,
        *parameters: Tensor,
    ) -> Tensor | tuple[Tensor, ...]:
        if images.is_inference():  # nobody would notice if they changed before the way back
            images = images.clone()
        passed = ctx.forward_pass = ForwardPass(backbone, images, dtype, whole=whole, maps=maps)
        ctx.maps = maps
        ctx.save_for_backward(images, *parameters)  # the way back may read the images again
        return passed.maps() if maps else passed.features()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        # Refuses what PyTorch's layers refuse: a freed graph, parameters or images changed since.
        _ = ctx.saved_tensors
        back = BackwardPass(ctx.forward_pass)
        found = back.of_maps(gradients) if ctx.maps else back.of_features(*gradients)
        return (None, None, None, None, None, *found)
