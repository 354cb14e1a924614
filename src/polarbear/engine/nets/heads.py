"""Heads: features (n, d) in, one logit for each seen class out.

A head is an ``nn.Module``, made as ``Head(features, classes, seed)`` for features of a width and
all the classes of a stream. ``grow(seen)``, at the start of a task, makes room for classes up to
``seen``; ``forward(features)`` returns logits (n, seen). ``sizes`` are the numbers of classes it
had before the last growth and got by it.

A checkpoint is restored in three steps: build the head as at the start, ``head.resize(*sizes)``
with the ``sizes`` it had, ``load_state_dict``.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from polarbear.base.dotted import find_dotted
from polarbear.base.errors import PolarbearError, unknown_name
from polarbear.engine.generator import generator_for


class LinearHead(nn.Module):
    """W x + b, of full size from the start; only the rows of seen classes are used.

    Weights are normal with deviation 1/√d, biases uniform in ±1/√d. Rows of classes to come get a
    gradient of exactly 0.

    >>> head = LinearHead(64, classes=115, seed=0)
    >>> head.grow(10)
    >>> head(torch.zeros(2, 64)).shape
    torch.Size([2, 10])
    """

    def __init__(self, features: int, classes: int, seed: int = 0) -> None:
        """Draw all rows; none is in use yet."""
        super().__init__()
        random, bound = generator_for(seed, "weights", 0), 1 / math.sqrt(features)
        self.weight = _parameter(random.normal(0, bound, (classes, features)))
        self.bias = _parameter(random.uniform(-bound, bound, classes))
        self.sizes = (0, 0)

    @property
    def seen(self) -> int:
        """Classes in use."""
        return sum(self.sizes)

    def grow(self, seen: int) -> None:
        """Use the rows of classes up to ``seen``; nothing happens if that is so already."""
        if _grows(self.seen, seen):
            self.resize(self.seen, seen - self.seen)

    def resize(self, old: int, new: int) -> None:
        """Use ``old`` + ``new`` rows, as a head with these ``sizes`` does."""
        if old + new > len(self.weight):
            raise PolarbearError(
                f"{old + new} classes do not fit a linear head of {len(self.weight)}: "
                "build it for all the classes of the stream"
            )
        self.sizes = (old, new)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits (n, seen) for features (n, d)."""
        return functional.linear(features, self.weight[: self.seen], self.bias[: self.seen])


class FreshHead(LinearHead):
    """A linear head whose rows are as drawn, with a bias of 0, when their class comes.

    Weight decay shrinks rows that get no gradient: after ten tasks of 170 epochs at a rate of 0.1
    and a decay of 0.0002, one that waits has a hundredth of its length. The literature's
    class-incremental methods draw rows when their classes come.
    """

    def __init__(self, features: int, classes: int, seed: int = 0) -> None:
        """Draw all rows, and remember how."""
        super().__init__(features, classes, seed)
        self.drawn = partial(LinearHead, features, classes, seed)

    def grow(self, seen: int) -> None:
        """Use the rows of classes up to ``seen``, the new ones as they were drawn."""
        new = slice(self.seen, seen)
        super().grow(seen)
        with torch.no_grad():
            self.weight[new] = self.drawn().weight[new].to(self.weight)
            self.bias[new] = 0


class CosineHead(nn.Module):
    """σ · cos(x, w), with one learnable σ, no bias, and rows that come with the tasks.

    ``old`` (k, d) and ``new`` (m, d) are the rows of earlier classes and of this task's. They are
    parameters of their own, so that ``head.old.requires_grad_(False)`` keeps the old ones out of
    the optimiser. New rows are uniform in ±1/√d.

    >>> head = CosineHead(64, seed=0)
    >>> head.grow(10)
    >>> head.grow(15)
    >>> head.sizes, head(torch.zeros(2, 64)).shape
    ((10, 5), torch.Size([2, 15]))
    """

    def __init__(self, features: int, seed: int = 0) -> None:
        """Start without a class."""
        super().__init__()
        self.features, self.seed = features, seed
        self.sigma = nn.Parameter(torch.ones(()))
        self.old = nn.Parameter(torch.empty(0, features))
        self.new = nn.Parameter(torch.empty(0, features))

    @property
    def sizes(self) -> tuple[int, int]:
        """Rows of earlier classes and of this task's."""
        return len(self.old), len(self.new)

    @property
    def seen(self) -> int:
        """Classes in use."""
        return sum(self.sizes)

    def grow(self, seen: int) -> None:
        """Count all present rows as old and draw new ones, up to ``seen`` in all.

        The rows become new parameters, all trainable; make the optimiser afterwards. Nothing
        happens if ``seen`` rows are there already.
        """
        if not _grows(self.seen, seen):
            return
        rows = self._rows().detach()
        self.new = self._drawn(seen, seen - len(rows))
        self.old = nn.Parameter(rows)

    def resize(self, old: int, new: int) -> None:
        """Take the shape of a head with these ``sizes``, to load its weights into."""
        self.old, self.new = self._drawn(old, old), self._drawn(old + new, new)

    def reset_sigma(self) -> None:
        """Set σ to 1."""
        with torch.no_grad():
            self.sigma.fill_(1.0)

    def cosines(self, features: Tensor) -> Tensor:
        """Return the cosine of features (n, d) with each row: (n, seen)."""
        rows = functional.normalize(self._rows())
        return functional.linear(functional.normalize(features), rows)

    def forward(self, features: Tensor) -> Tensor:
        """Return logits (n, seen) for features (n, d)."""
        return self.sigma * self.cosines(features)

    def _rows(self) -> Tensor:
        return torch.cat([self.old, self.new])

    def _drawn(self, seen: int, count: int) -> nn.Parameter:
        bound = 1 / math.sqrt(self.features)
        random = generator_for(self.seed, "weights", seen)
        rows = _parameter(random.uniform(-bound, bound, (count, *self.old.shape[1:])))
        return nn.Parameter(rows.detach().to(self.sigma))


class ProxyHead(CosineHead):
    """A cosine head with ten rows per class, its proxies: those nearest to a feature count most.

    A class's cosine is the mean of its proxies' cosines, each weighed by their softmax: the local
    similarity classifier of PODNet. ``old`` is (k, 10, d), ``new`` (m, 10, d).

    >>> head = ProxyHead(64, seed=0)
    >>> head.grow(10)
    >>> head.sizes, head.new.shape, head(torch.zeros(2, 64)).shape
    ((0, 10), torch.Size([10, 10, 64]), torch.Size([2, 10]))
    """

    proxies = 10

    def __init__(self, features: int, seed: int = 0) -> None:
        """Start without a class."""
        super().__init__(features, seed)
        self.old = nn.Parameter(torch.empty(0, self.proxies, features))
        self.new = nn.Parameter(torch.empty(0, self.proxies, features))

    def cosines(self, features: Tensor) -> Tensor:
        """Return the weighed mean of the cosines of features (n, d) and proxies: (n, seen)."""
        proxies = functional.normalize(self._rows(), dim=2)
        near = functional.linear(functional.normalize(features), proxies.flatten(0, 1))
        near = near.reshape(len(features), *proxies.shape[:2])
        return (near.softmax(dim=2) * near).sum(dim=2)


HEADS: Mapping[str, Callable[[int, int, int], nn.Module]] = MappingProxyType(
    {
        "linear": LinearHead,
        "fresh": FreshHead,
        "cosine": lambda features, classes, seed: CosineHead(features, seed),
        "proxies": lambda features, classes, seed: ProxyHead(features, seed),
    }
)


def build_head(kind: str, features: int, classes: int, seed: int) -> nn.Module:
    """Build a head by name or dotted path, for features of a width and all classes of a stream.

    >>> type(build_head("cosine", 64, 115, seed=0)).__name__
    'CosineHead'
    """
    if ":" in kind:
        return _own_head(kind, features, classes, seed)
    if kind not in HEADS:
        raise unknown_name("head", kind, [*HEADS, "package.module:Class"])
    return HEADS[kind](features, classes, seed)


def _own_head(path: str, features: int, classes: int, seed: int) -> nn.Module:
    head = find_dotted(path, "Class")(features, classes, seed)
    missing = [name for name in ("sizes", "grow", "resize") if not hasattr(head, name)]
    if missing or not isinstance(head, nn.Module):
        lacks = f"has no {' and no '.join(missing)}" if missing else "is no nn.Module"
        raise PolarbearError(
            f"{path} {lacks}: a head is an nn.Module with sizes, grow(seen), resize(old, new) and "
            "forward(features)"
        )
    return head


def _grows(seen_now: int, seen: int) -> bool:
    if seen < seen_now:
        raise PolarbearError(f"a head of {seen_now} classes cannot shrink to {seen}")
    return seen > seen_now


def _parameter(values: np.ndarray[Any, np.dtype[np.float64]]) -> nn.Parameter:
    return nn.Parameter(torch.from_numpy(values.astype(np.float32)))
