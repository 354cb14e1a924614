"""pw-JS as a metric of TorchMetrics: it adds up over batches, devices and processes."""

from typing import Any

from polarbear.base.errors import PredictionError
from polarbear.base.missing import needing

with needing("TorchMetrics", "torchmetrics"):
    import torch
    from torch import Tensor
    from torchmetrics import Metric


class PwJaccard(Metric):
    """Mean precision-weighted Jaccard score of all images so far; NaN of none.

    Targets are (n, c) booleans or 0 and 1; predictions are the same, or scores: those over
    ``threshold`` are predicted (0 for logits, 0.5 for probabilities). However the images come in
    batches, the result is that of :func:`polarbear.metrics.pw_jaccard` on all of them.

    >>> metric = PwJaccard()
    >>> metric.update(torch.tensor([[-2.0, 1.0], [3.0, 1.0]]), torch.tensor([[1, 1], [1, 1]]))
    >>> round(float(metric.compute()), 3)
    0.75
    """

    higher_is_better = True
    is_differentiable = False
    full_state_update = False
    total: Tensor
    images: Tensor

    def __init__(self, threshold: float = 0.0, **more: Any) -> None:
        """Start from nothing; ``more`` goes to ``torchmetrics.Metric``."""
        super().__init__(**more)
        self.threshold = threshold
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("images", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        """Add a batch: (n, c) each."""
        if preds.ndim != 2 or preds.shape != target.shape:
            raise PredictionError(
                f"predictions are {tuple(preds.shape)} and targets {tuple(target.shape)}: "
                "both must be (images, classes), for the same images and classes"
            )
        predicted = preds > (self.threshold if preds.is_floating_point() else 0)
        true = target > 0
        both, union = (predicted & true).sum(dim=1).double(), (predicted | true).sum(dim=1).double()
        of_predicted = predicted.sum(dim=1).double()
        # Where nothing is predicted, both is 0: any divisor gives the score 0.
        scores = (both / union.clamp(min=1)) * (both / of_predicted.clamp(min=1))
        self.total += scores.sum().to(self.total)
        self.images += len(preds)

    def compute(self) -> Tensor:
        """Return the mean score."""
        return self.total / self.images
