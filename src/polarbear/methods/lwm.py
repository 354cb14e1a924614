"""LwM: LwF that also keeps where the network looks for an old class."""

from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional

from polarbear.engine.contract.batch import Batch, TaskContext
from polarbear.engine.nets.heads import LinearHead
from polarbear.engine.nets.model import Model
from polarbear.methods.lwf import LwF


class LwM(LwF):
    """Learning without memorizing: LwF's loss, and distillation of maps of attention.

    With b the old class that is likeliest for an image, and Q and Q* the maps of b, by Grad-CAM, of
    the network and of the previous one, as vectors over all places::

        loss = LwF + attention · mean over images of Σ | Q / ‖Q‖ − Q* / ‖Q*‖ |
    """

    summary = "LwF that also distils where the network looks for the likeliest old class"

    @dataclass(frozen=True)
    class Options(LwF.Options):
        """Settings of LwM."""

        attention: float = field(default=1.0, metadata={"at_least": 0})
        """γ: weight of the distillation of attention."""

    options: Options

    def begin_task(self, context: TaskContext) -> None:
        """Refuse a network without maps before anything is learnt."""
        self.model.refuse_without_maps()

    def loss(self, batch: Batch) -> Tensor:
        """Return LwF's loss and how far the attention to old classes has moved."""
        if self.teacher is None:
            return super().loss(batch)
        with torch.no_grad():
            maps_before, before = maps_and_logits(self.teacher, batch.images)
        maps, logits = maps_and_logits(self.model, batch.images)
        likeliest = logits[:, : self.context.old].argmax(dim=1)
        then = attention(self.teacher, maps_before, likeliest)
        moved = (attention(self.model, maps, likeliest) - then).abs().sum(dim=1).mean()
        learnt = self.taught_and_kept(logits, batch.targets, before.float())
        return learnt + self.options.attention * moved


def maps_and_logits(model: Model, images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the last maps (n, d, rows, columns) of images, and the logits of their means."""
    maps = model.maps(images)[-1]
    return maps, model.head(maps.mean(dim=(2, 3)))


def attention(model: Model, maps: Tensor, classes: Tensor) -> Tensor:
    """Return Grad-CAM of a class for each image, at the length of 1: (n, places).

    Maps are averaged, then a linear head follows, so a logit's gradient by a map is the head's
    weight over the number of places, the same at each: no way back is needed to know it.
    """
    rows = cast(LinearHead, model.head).weight.index_select(0, classes)
    # A product and a sum, not a matrix product: autocast would round that to bf16.
    seen = (maps.float() * rows[:, :, None, None]).sum(dim=1).relu()
    return functional.normalize(seen.flatten(1))
