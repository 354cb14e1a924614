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
    ridge a task's solution has is chosen by the squared error on in-task validation images; where
    there are none, by that on a fifth of the task's images, of a solution without these.
    """

    summary = "a ridge regression on random features, of sums that every task adds to"
    title = "RanPAC"

    @dataclass(frozen=True)
    class Options(OnFeatures.Options):
        """Settings of RanPAC."""

        width: int = field(default=2000, metadata={"at_least": 0})
        """Random features; 0 takes the network's own."""
        ridge: float = field(default=0.0, metadata={"at_least": 0})
        """How much ridge, at least; 0 chooses it anew after every task."""

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
        """Add a task's images to the sums, and solve with the ridge that suits others best."""
        if not self.context.old:
            self.draw(features.shape[1])
        self.labelled = grown(self.labelled, self.context.seen)
        others, ridge = self.gathered("valid"), self.options.ridge
        later = torch.zeros(len(features), dtype=torch.bool, device=features.device)
        if not ridge and not len(others[0]):
            later[torch.randperm(len(later), generator=self.random())[: len(later) // 5]] = True
            others = features[later], targets[later]
        self.count(features[~later], targets[~later])
        ridge = ridge or self.best_ridge(*others)
        self.count(features[later], targets[later])
        enough = (self.solved(ridge * 10.0**more) for more in range(20))
        self.register_buffer("weights", next(found for found in enough if found is not None))

    def count(self, features: Tensor, targets: Tensor) -> None:
        """Add images to the sums."""
        hidden = self.hidden(features)
        self.gram = self.gram + hidden.T @ hidden
        self.labelled = self.labelled + targets.T @ hidden

    def solved(self, ridge: float) -> Tensor | None:
        """Return the weights (width, seen), None where the ridge is too little to solve with."""
        square = self.gram.clone()
        square.diagonal().add_(ridge)
        factor, failed = torch.linalg.cholesky_ex(square)
        return None if failed else torch.cholesky_solve(self.labelled.T, factor)

    def best_ridge(self, features: Tensor, targets: Tensor) -> float:
        """Return the ridge with the lowest squared error on images; 1 where there are none."""
        if not len(features):
            return 1.0
        hidden, errors = self.hidden(features), {}
        for ridge in (10.0**power for power in range(-8, 9)):
            if (weights := self.solved(ridge)) is not None:
                errors[ridge] = float(((hidden @ weights - targets) ** 2).mean())
        return min(errors, key=errors.__getitem__)

    def draw(self, width: int) -> None:
        """Draw the projection by the run's seed, and begin the sums."""
        size = (width, self.options.width)
        drawn = torch.randn(size, generator=self.random(), dtype=torch.float64)
        self.projection = drawn.to(self.gram.device)
        hidden = self.options.width or width
        self.gram = self.gram.new_zeros(hidden, hidden)
        self.labelled = self.labelled.new_zeros(0, hidden)

    def random(self) -> torch.Generator:
        """Return what draws by the run's seed."""
        return torch.Generator().manual_seed(self.context.settings.seed)

    def class_scores(self, features: Tensor) -> Tensor:
        """Return the regression's values, near 1 where a label is likely."""
        return self.hidden(features) @ self.weights
