"""The images a pretrained network wants, where it says so: their size and their colours."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import nn

from polarbear.base.errors import PolarbearError
from polarbear.engine.images.transform import ImageTransform, ResizedTo


def as_wanted(network: nn.Module, usual: ImageTransform) -> ImageTransform:
    """Return a preparation with the size, mean and deviation that a network says it wants.

    It says so as timm's networks do, in a dict ``pretrained_cfg`` (or ``default_cfg``) with any of
    ``input_size`` (3, side, side), ``mean``, ``std`` and ``interpolation``. How images are varied
    stays as ``usual``; they are brought to the size afterwards.
    """
    told = _told(network)
    mean, std = (tuple(told.get(key) or getattr(usual, key)) for key in ("mean", "std"))
    found = replace(usual, mean=mean, std=std)
    side = _side(network, told)
    if side is None:
        return found
    smooth = told.get("interpolation") == "bicubic"
    return replace(found, crop=ResizedTo(found.crop, side, "bicubic" if smooth else "bilinear"))


def _told(network: nn.Module) -> Mapping[str, Any]:
    for name in ("pretrained_cfg", "default_cfg"):
        if isinstance(found := getattr(network, name, None), Mapping):
            return found
    return {}


def _side(network: nn.Module, told: Mapping[str, Any]) -> int | None:
    # A timm network made with an img_size of its own still tells the one of its weights.
    made_for = getattr(getattr(network, "patch_embed", None), "img_size", None)
    size = made_for or tuple(told.get("input_size") or ())[1:]
    if not size:
        return None
    if len(set(size)) > 1:
        raise PolarbearError(
            f"{type(network).__name__} wants images of {'×'.join(map(str, size))}, and all here "
            "are square: give a preparation of your own (--preparation package.module:function)"
        )
    return int(size[0])
