"""What Kin takes an image for, by the newest network and by the networks of birth."""

from collections.abc import Sequence

import torch
from torch import Tensor

from polarbear.methods.kin_options import KinOptions
from polarbear.methods.softmax import NEVER


def kin_scores(
    newest: Tensor,
    then: Sequence[tuple[Tensor, slice]],
    parents: Tensor,
    upwards: Tensor,
    below: Tensor,
    options: KinOptions,
) -> Tensor:
    """Return the scores of what images may be, a parent's being its unknown child: (n, c).

    ``newest`` (n, c) are the newest network's logits. ``then`` are those of the networks of birth,
    each with the columns of the classes that were born there; none where they are not asked.
    """
    kin, is_parent = upwards + below > 0, below.sum(dim=1) > 0
    root = torch.where(parents >= 0, parents, torch.arange(len(kin), device=kin.device))
    sure, above = log_shares(newest, kin), newest - newest[:, root]
    if then:
        shares = [log_shares(z, kin[: own.stop, : own.stop])[:, own] for z, own in then]
        sure = sure + torch.cat(shares, dim=1)
        above = above + torch.cat([z[:, own] - z[:, root[own]] for z, own in then], dim=1)
        above = above / 2
    found = sure + sure[:, root]
    if not options.unknown_children:
        return found.masked_fill(is_parent, NEVER) / options.caution
    known = in_full(above.exp(), below.T).clamp(min=1e-9).log()
    number = below.sum(dim=1).clamp(min=1).log()
    less = options.evidence * (known - options.even) + number
    return found / options.caution - torch.where(is_parent, less, 0.0)


def log_shares(logits: Tensor, kin: Tensor) -> Tensor:
    """Return log(e^s / (e^s + Σ e^n)) of each class, n being all that is no kin of it: (n, c).

    ``kin`` (c, c) has every class itself, its ancestors and what lies below it.
    """
    power = (logits - logits.amax(dim=1, keepdim=True)).exp().clamp(min=1e-30)
    return -torch.log1p(in_full(power, (~kin.T).float()) / power)


def in_full(left: Tensor, right: Tensor) -> Tensor:
    """Return a matrix product in fp32: sums of powers bear no bf16, to which autocast rounds."""
    with torch.autocast(left.device.type, enabled=False):
        return left @ right
