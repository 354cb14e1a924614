"""What follows from the parents of classes: who lies above whom, and what a prediction is worth."""

import torch
from torch import Tensor


def closure(parents: Tensor) -> Tensor:
    """Return, for each class, 1 for itself and its ancestors: (c, c). No parent is −1.

    >>> closure(torch.tensor([-1, 0, -1])).tolist()
    [[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    found = torch.eye(len(parents), device=parents.device)
    for column, parent in enumerate(parents.tolist()):  # parents come before their children
        if parent >= 0:
            found[column] += found[parent]
    return found


def expected_gains(upwards: Tensor) -> Tensor:
    """Return the pw-JS of predicting one class and its ancestors where another's are true: (c, c).

    Rows are what is true, columns what is predicted.

    >>> expected_gains(closure(torch.tensor([-1, 0]))).tolist()
    [[1.0, 0.25], [0.5, 1.0]]
    """
    both = (upwards[:, None, :] * upwards).sum(dim=2)
    size = upwards.sum(dim=1)
    return both / (size[:, None] + size - both) * both / size
