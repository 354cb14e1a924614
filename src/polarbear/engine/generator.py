"""Random numbers by key: what is drawn depends on the seed and the place, never on history.

So a resumed run draws what the unbroken one did, and the device does not matter.
"""

import numpy as np

_PURPOSES = (
    *("weights", "shuffle", "augment", "memory", "reference", "look-up", "dropout"),
    *("reservoir", "held-out", "views", "reference views"),
)


def generator_for(seed: int, purpose: str, *place: int) -> np.random.Generator:
    """Return the generator for one purpose at one place (task, epoch, …).

    >>> generator_for(1, "shuffle", 0, 3).random() == generator_for(1, "shuffle", 0, 3).random()
    True
    """
    return np.random.default_rng([seed, _PURPOSES.index(purpose), *place])
