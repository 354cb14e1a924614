"""Batch norm over the images of all processes: as if one had them all.

PyTorch's SyncBatchNorm does it on GPUs alone and needs other modules in the network. This changes
what ``functional.batch_norm`` does in training, so that any network's batch norm is summed, and
nothing of the network itself.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from polarbear.engine.world import World


def summed_batch_norm(world: World) -> AbstractContextManager[object]:
    """Return the context in which batch norm counts the images of all processes of a step."""
    return _Summing(world) if world.divided else nullcontext()


class _Summing(TorchFunctionMode):
    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is functional.batch_norm:
            return _batch_norm(self.world, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _batch_norm(
    world: World,
    input: Tensor,  # noqa: A002
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Return normalised maps (n, c, …), as the function of PyTorch does whose arguments these are.

    In training the running statistics are moved.
    """
    running = (running_mean, running_var)
    if not training:
        return functional.batch_norm(input, *running, weight, bias, False, momentum, eps)
    maps: Tensor
    maps, mean, variance, count = _Normalised.apply(input, eps, world)  # type: ignore[no-untyped-call]
    with torch.no_grad():
        if running_mean is not None:
            running_mean.lerp_(mean.to(running_mean.dtype), momentum)
        if running_var is not None:
            unbiased = variance * count / (count - 1)
            running_var.lerp_(unbiased.to(running_var.dtype), momentum)
    shape = (1, -1, *[1] * (input.ndim - 2))
    maps = maps if weight is None else maps * weight.view(shape)
    maps = maps if bias is None else maps + bias.view(shape)
    return maps.to(input.dtype)


class _Normalised(torch.autograd.Function):
    """Maps (n, c, …) less their mean, divided by their deviation, over all processes."""

    @staticmethod
    def forward(
        ctx: Any, maps: Tensor, eps: float, world: World
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        over = [d for d in range(maps.ndim) if d != 1]
        exact = maps.to(torch.promote_types(maps.dtype, torch.float32))
        count = maps.numel() // maps.shape[1]
        variance, mean = torch.var_mean(exact, over, correction=0)
        # Sums of squares lose digits where means are large: not in float64.
        far = mean.double()
        sums = torch.stack([far, variance.double() + far**2]) * count
        total = world.reduce(torch.cat([sums.flatten(), sums.new_full((1,), count)]))
        everywhere = total[-1]
        far, squares = (total[:-1] / everywhere).view(2, -1)
        spread = squares - far**2
        shape = (1, -1, *[1] * (maps.ndim - 2))
        scale = (spread + eps).rsqrt().to(exact.dtype).view(shape)
        out = (exact - far.to(exact.dtype).view(shape)) * scale
        ctx.save_for_backward(out, scale, everywhere)
        ctx.world, ctx.portion, ctx.over, ctx.shape = world, world.portion, over, shape
        ctx.mark_non_differentiable(far, spread, everywhere)
        return out, far, spread, everywhere

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor, None, None]:
        out, scale, everywhere = ctx.saved_tensors
        own = torch.stack([gradient.sum(ctx.over), (gradient * out).sum(ctx.over)])
        # As in World.sum: a gradient here is 1 / portion of what it is of all processes' loss.
        sums = ctx.world.reduce(own * ctx.portion) / (ctx.portion * everywhere.to(own.dtype))
        mean, along = (one.view(ctx.shape) for one in sums)
        return (gradient - mean - out * along) * scale, None, None
