"""RanPAC: a ridge regression on random features (McDonnell et al., 2023)."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from polarbear.engine.nets.model import Model
from polarbear.methods.on_features import OnFeatures, grown


class RanPAC(OnFeatures):
    """Ridge regression of the labels on h = relu(f W), with a W that is drawn once.

    What is kept, G = Σ h hᵀ and C = Σ h yᵀ, does not depend on the order of the images. How much
    ridge a task's solution has is chosen by the squared error on in-task validation images.
    """

    summary = "a ridge regression on random features, of sums that every task adds to"
    title = "RanPAC"

    @dataclass(frozen=True)
    class Options(OnFeatures.Options):
        """Settings of RanPAC."""

        width: int = field(default=2000, metadata={"at_least": 0})
        """Random features; 0 takes the network's own."""
        ridge: float = field(default=1.0, metadata={"at_least": 1e-12})
        """How much ridge, where there are no validation images to choose it by."""

    projection: Tensor
    gram: Tensor
    labelled: Tensor
    weights: Tensor

    def __init__(self, model: Model, options: Any = None) -> None:
        """Know no class yet."""
        super().__init__(model, options)
        for name in ("projection", "gram", "labelled"):
            self.register_buffer(name, torch.zeros(0, 0, dtype=torch.float64))

    def hidden(self, features: Tensor) -> Tensor:
        """Return random features (n, width)."""
        return (features @ self.projection).relu() if self.options.width else features

    def add(self, features: Tensor, targets: Tensor) -> None:
        """Add a task's images to the sums, and solve with the ridge that validation likes best."""
        if not self.context.old:
            self.draw(features.shape[1])
        hidden = self.hidden(features)
        self.gram = self.gram + hidden.T @ hidden
        self.labelled = grown(self.labelled, self.context.seen) + targets.T @ hidden
        values, axes = torch.linalg.eigh(self.gram)
        turned = axes.T @ self.labelled.T

        def solved(ridge: float) -> Tensor:
            found: Tensor = axes @ (turned / (values.clamp(min=0) + ridge)[:, None])
            return found

        features, targets = self.gathered("valid")
        ridge = self.options.ridge
        if len(features):
            hidden = self.hidden(features)
            tried = [10.0**power for power in range(-8, 9)]
            errors = [float(((hidden @ solved(one) - targets) ** 2).mean()) for one in tried]
            ridge = tried[errors.index(min(errors))]
        self.register_buffer("weights", solved(ridge))

    def draw(self, width: int) -> None:
        """Draw the projection by the run's seed, and begin the sums."""
        random = torch.Generator().manual_seed(self.context.settings.seed)
        drawn = torch.randn(width, self.options.width, generator=random, dtype=torch.float64)
        self.projection = drawn.to(self.gram.device)
        hidden = self.options.width or width
        self.gram = self.gram.new_zeros(hidden, hidden)
        self.labelled = self.labelled.new_zeros(0, hidden)

    def class_scores(self, features: Tensor) -> Tensor:
        """Return the regression's values, near 1 where a label is likely."""
        return self.hidden(features) @ self.weights
