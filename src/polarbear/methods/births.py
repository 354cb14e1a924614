"""Networks as they were when classes had just been learnt, and what they say of images."""

from collections.abc import Iterable, Iterator, Sequence
from typing import cast

import torch
from torch import Tensor

from polarbear.base.errors import PolarbearError
from polarbear.engine.contract.batch import Batch
from polarbear.engine.nets.heads import CosineHead
from polarbear.engine.nets.model import Model

AT_ONCE = 2048  # images a frozen network looks at in one pass


def births(networks: Iterable[Model]) -> Iterator[tuple[Model, slice]]:
    """Yields each network with the columns that it has and the one before it has not."""
    begin = 0
    for network in networks:
        end = cast(CosineHead, network.head).seen
        if end > begin:
            yield network, slice(begin, end)
        begin = end


def mean_probabilities(networks: Iterable[tuple[Model, slice]], images: Sequence[Tensor]) -> Tensor:
    """Return how probable networks find the columns of each, on every group of images.

    Means over a group's images, 0 for a group without: (groups, columns).
    """
    sizes, means = [len(part) for part in images], []
    for network, own in networks:
        found = looked_at(network, torch.cat(list(images))).softmax(dim=1)[:, own]
        means.append(torch.stack([part.mean(dim=0) for part in torch.split(found, sizes)]))
    return torch.cat(means, dim=1).nan_to_num(0.0)


@torch.no_grad()
def own_probabilities(network: Model, batches: Iterable[Batch]) -> Tensor:
    """Return how probable a network finds each class on images that carry it: (classes it knows,).

    Means over the images; 1 for a class without.
    """
    head = cast(CosineHead, network.head)
    sums, counts = torch.zeros(2, head.seen, device=next(network.parameters()).device)
    for batch in batches:
        sums += (looked_at(network, batch.images).softmax(dim=1) * batch.targets).sum(dim=0)
        counts += batch.targets.sum(dim=0)
    return torch.where(counts > 0, sums / counts, 1.0)


def sure_of_old(sure: Tensor, old: int) -> Tensor:
    """Return how sure networks of birth are of the old classes, none so unsure as to divide by."""
    if len(sure) < old:
        raise PolarbearError(
            "this run was begun by an earlier Kin, which did not keep how sure networks are of "
            "their own classes: begin a new one"
        )
    return sure[:old].clamp(min=1e-3)


@torch.no_grad()
def looked_at(network: Model, images: Tensor) -> Tensor:
    """Return a frozen network's logits on images, however many: (n, classes it knew)."""
    return torch.cat([network(part).float() for part in torch.split(images, AT_ONCE)])
