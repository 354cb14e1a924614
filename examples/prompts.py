"""Prompts: a pretrained transformer stays, and learns a few tokens more per task, as in L2P."""

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from polarbear.learn import Batch, Method, TaskContext, bce


class Prompts(Method):
    """A pool of prompts, each with a key; those whose keys are nearest to an image are put first.

    Works with networks of own_networks.py: it needs their layers.
    """

    summary = "trains a pool of prompts and a head; the pretrained transformer stays"
    title, keep = "prompts", "last"

    @dataclass(frozen=True)
    class Options(Method.Options):
        pool: int = field(default=10, metadata={"at_least": 1})  # prompts in all
        chosen: int = field(default=3, metadata={"at_least": 1})  # of them, per image
        length: int = field(default=4, metadata={"at_least": 1})  # tokens of a prompt
        pull: float = 0.5  # weight of the keys' loss

    def __init__(self, model, options=None):
        super().__init__(model, options)
        pool, length, width = self.options.pool, self.options.length, model.backbone.out_features
        random = torch.Generator().manual_seed(0)
        self.keys = nn.Parameter(torch.randn(pool, width, generator=random))
        self.prompts = nn.Parameter(torch.randn(pool, length, width, generator=random) / width**0.5)

    def begin_task(self, context: TaskContext) -> None:
        self.model.backbone.requires_grad_(False)

    def parameter_groups(self) -> list[dict]:
        return [{"params": [*self.model.head.parameters(), self.keys, self.prompts]}]

    def loss(self, batch: Batch) -> Tensor:
        near, logits = self.prompted(batch.images)
        new = self.context.new  # on old classes, the labels of a task say nothing: as in L2P
        taught = bce(logits[:, new], batch.targets[:, new])
        return taught + self.options.pull * (1 - near).mean()

    def scores(self, images: Tensor) -> Tensor:
        return self.prompted(images)[1]

    def prompted(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return cosines of an image and its keys (n, chosen), and logits (n, seen)."""
        network = self.model.backbone
        with torch.no_grad():
            asked = normalize(network(images))  # what the network says of it without a prompt
        near, which = (asked @ normalize(self.keys).T).topk(self.options.chosen, dim=1)
        tokens, prompts = network.tokens(images), self.prompts[which].flatten(1, 2)
        features = network.pooled(torch.cat([tokens[:, :1], prompts, tokens[:, 1:]], dim=1))
        return near, self.model.head(features)
