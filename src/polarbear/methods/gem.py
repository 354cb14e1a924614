"""GEM: a step that raises the loss of no earlier task, as far as memory tells."""

from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from polarbear.engine.contract.batch import Batch, TaskContext
from polarbear.methods.agem import AGEM
from polarbear.methods.by_task import task_spans
from polarbear.methods.vectors import add_gradients, flat

STEADY = 1e-9  # added to the diagonal, as a part of its mean: tasks may have the same gradient


class GEM(AGEM):
    """Binary cross-entropy over the task's classes, its gradient moved as little as need be.

    With g the task's gradient and r_k that of BCE over the classes of an earlier task k, on its
    images among random ones of memory: the nearest vector to g that opposes no r_k is
    g + Σ v_k r_k, where v ≥ 0 minimises ½ |Σ v_k r_k|² + Σ v_k g·r_k. With a margin, v ≥ margin.
    """

    summary = "projects the gradient so that no earlier task's loss on stored images grows"

    @dataclass(frozen=True)
    class Options(AGEM.Options):
        """Settings of GEM."""

        margin: float = field(default=0.5, metadata={"at_least": 0})
        """γ: the least of each v where a step is changed, so that old losses rather fall."""

    options: Options

    def begin_task(self, context: TaskContext) -> None:
        """Note which columns came with which task."""
        *self.earlier, _ = task_spans(self, "starts", context)

    def backward(self, batch: Batch, reference: Batch | None) -> Tensor:
        """Add the projected gradient to the parameters' and give the task's loss."""
        if reference is None:
            return super().backward(batch, None)
        parameters = [p for p in self.model.parameters() if p.requires_grad]

        def gradient(loss: Tensor) -> Tensor:
            found = torch.autograd.grad(loss, parameters, retain_graph=True, materialize_grads=True)
            return flat(found)

        mine = [reference.targets[:, k].amax(dim=1) for k in self.earlier]
        counts = self.world.sum(torch.stack(mine).sum(dim=1)).clamp(min=1)
        loss = self.loss(batch)
        own, logits = gradient(loss), self.model(reference.images)
        each = zip(self.earlier, mine, counts, strict=True)
        kept = [gradient(self.kept(logits, reference, *one)) for one in each]
        own, old = self.world.means([own, torch.stack(kept)])
        found = torch.split(nearest(own, old, self.options.margin), [p.numel() for p in parameters])
        shaped = [part.view_as(one) for part, one in zip(found, parameters, strict=True)]
        add_gradients(parameters, shaped)
        return loss.detach()

    def kept(
        self, logits: Tensor, memory: Batch, columns: slice, mine: Tensor, count: Tensor
    ) -> Tensor:
        """Return BCE over an earlier task's classes on its own images among those of memory.

        ``mine`` (n,) are 1 or 0, not an index, so that shapes stay the same; ``count`` is of all.
        """
        logits, targets = logits[:, columns], memory.targets[:, columns]
        losses = binary_cross_entropy_with_logits(logits, targets, reduction="none").mean(dim=1)
        return (losses * mine).sum() / count / self.world.portion


def nearest(own: Tensor, old: Tensor, margin: float) -> Tensor:
    """Return g (p,), or the nearest to it that opposes no row of ``old`` (tasks, p)."""
    rows = old.double()  # autocast would round the products to bf16
    dots, square = rows @ own.double(), rows @ rows.T
    steady = STEADY * square.diagonal().mean() + torch.finfo(torch.float64).tiny
    square = square + steady * torch.eye(len(square), dtype=square.dtype, device=square.device)
    weights = margin + least(square, dots + margin * square.sum(dim=1))
    moved = own + (rows.T @ weights).to(own)
    return torch.where((dots < 0).any(), moved, own)


def least(square: Tensor, linear: Tensor) -> Tensor:
    """Return the u ≥ 0 (k,) that minimises ½ u·Au + b·u, for a positive definite A (k, k).

    Principal pivoting, exact once no b is negative. The choice of each pivot stays on the device:
    first the most negative b, with which no more than k were ever needed; then the first one, which
    never cycles. Steps that are not needed change nothing.
    """
    k = len(square)
    table, basic = torch.cat([square, linear[:, None]], dim=1), torch.zeros_like(linear)
    places = torch.arange(k + 1, device=square.device)
    for pivot in range(2 * k):
        b = table[:, -1]
        one = (b if pivot < k else -(b < 0).to(b)).argmin()
        at, ahead = places[:k] == one, places == one
        row, column = (table * at[:, None]).sum(dim=0), (table * ahead).sum(dim=1)
        centre = (row * ahead).sum()
        turned = table - column[:, None] * row / centre
        turned = torch.where(ahead, column[:, None] / centre, turned)
        turned = torch.where(at[:, None], torch.where(ahead, 1 / centre, -row / centre), turned)
        wanted = (b < 0).any()
        table = torch.where(wanted, turned, table)
        basic = torch.where(wanted & at, 1 - basic, basic)
    return torch.where(basic > 0, table[:, -1], 0).clamp(min=0)
