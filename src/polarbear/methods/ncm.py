"""NCM: the class whose mean feature lies nearest in direction, as SimpleCIL has it."""

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from polarbear.engine.nets.model import Model
from polarbear.methods.on_features import OnFeatures


class NCM(OnFeatures):
    """A class is the mean feature of the images that came with its label; scores are cosines."""

    summary = "keeps the mean feature of each class; the one nearest in direction is predicted"
    title = "NCM"
    means: Tensor

    def __init__(self, model: Model, options: Any = None) -> None:
        """Know no mean yet."""
        super().__init__(model, options)
        self.register_buffer("means", torch.empty(0, 0, dtype=torch.float64))

    def add(self, features: Tensor, targets: Tensor) -> None:
        """Add the means of the new classes."""
        new = targets[:, self.context.new]
        means = (new.T @ features) / new.sum(dim=0).clamp(min=1)[:, None]
        known = self.means.view(-1, features.shape[1])  # at first of no width
        self.register_buffer("means", torch.cat([known, means]))

    def class_scores(self, features: Tensor) -> Tensor:
        """Return cosines of features and means."""
        return normalize(features) @ normalize(self.means).T
