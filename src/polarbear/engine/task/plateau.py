"""The learning rate falls when in-task validation stops getting better."""

import math
from dataclasses import dataclass, replace

from polarbear.settings.settings import Settings


@dataclass(frozen=True)
class Plateau:
    """Rate, best score so far and epochs since it; the rule of PyTorch's ReduceLROnPlateau.

    The rate falls after more than ``patience`` epochs in a row without a score over the best by
    more than the threshold.
    """

    rate: float
    best: float = -math.inf
    waited: int = 0

    def update(self, score: float, settings: Settings) -> "Plateau":
        """Return the state after an epoch with this validation score."""
        if score > self.best + settings.plateau_threshold:
            return replace(self, best=score, waited=0)
        if self.waited < settings.plateau_patience:
            return replace(self, waited=self.waited + 1)
        return replace(self, rate=self.rate * settings.plateau_factor, waited=0)
