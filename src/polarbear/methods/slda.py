"""SLDA: streaming linear discriminant analysis (Hayes and Kanan, 2020)."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from polarbear.engine.nets.model import Model
from polarbear.methods.on_features import OnFeatures, grown


class SLDA(OnFeatures):
    """Gaussians with a mean for each class and one covariance for all, learnt in one pass.

    With Λ the inverse of (1 − ε) Σ + ε I, a class's score is its discriminant, μᵀ Λ f − μᵀ Λ μ / 2.
    Sums are kept, so that neither the order of images nor how they are cut into tasks matters.
    """

    summary = "keeps a mean feature per class and one covariance; a linear discriminant predicts"
    title = "SLDA"

    @dataclass(frozen=True)
    class Options(OnFeatures.Options):
        """Settings of SLDA."""

        shrinkage: float = field(default=1e-4, metadata={"at_least": 0})
        """ε, the part of the unit matrix in the covariance."""

    counts: Tensor
    sums: Tensor
    products: Tensor
    weights: Tensor
    biases: Tensor

    def __init__(self, model: Model, options: Any = None) -> None:
        """Know no class yet."""
        super().__init__(model, options)
        for name, rows in (("counts", (0,)), ("sums", (0, 0)), ("products", (0, 0))):
            self.register_buffer(name, torch.zeros(rows, dtype=torch.float64))

    def add(self, features: Tensor, targets: Tensor) -> None:
        """Add a task's images, each once for every label it has, and solve anew."""
        seen, width = self.context.seen, features.shape[1]
        if not self.context.old:
            self.sums = features.new_zeros(0, width)
            self.products = features.new_zeros(width, width)
        self.counts = grown(self.counts, seen) + targets.sum(dim=0)
        self.sums = grown(self.sums, seen) + targets.T @ features
        self.products = self.products + (features * targets.sum(dim=1, keepdim=True)).T @ features
        means, epsilon = self.sums / self.counts.clamp(min=1)[:, None], self.options.shrinkage
        covariance = (self.products - self.sums.T @ means) / self.counts.sum().clamp(min=1)
        unit = torch.eye(width, dtype=features.dtype, device=features.device)
        weights = torch.linalg.solve((1 - epsilon) * covariance + epsilon * unit, means.T).T
        self.register_buffer("weights", weights)
        self.register_buffer("biases", -(means * weights).sum(dim=1) / 2)

    def class_scores(self, features: Tensor) -> Tensor:
        """Return the discriminants."""
        return features @ self.weights.T + self.biases
