"""What a method gives for images, and what is made of it: asked for in one place, and looked at."""

import math
from typing import Any

import torch
from torch import Tensor

from polarbear.base.errors import PolarbearError
from polarbear.engine.contract.method import Method
from polarbear.score.decide import (
    NEEDS_PARENTS,
    OWN_RULE,
    USUAL,
    decision,
    no_parents,
    rules_in_words,
)


def decision_name(asked: str | None, method: type[Method]) -> str:
    """Return the rule a run predicts by: None asks for the method's own, or else the usual one."""
    own = method.decide is not Method.decide
    if asked is None:
        return OWN_RULE if own else USUAL
    if asked in NEEDS_PARENTS and method.inferred_parents is Method.inferred_parents:
        raise PolarbearError(no_parents(asked))
    if asked != OWN_RULE:
        return decision(asked).name
    if not own:
        raise PolarbearError(
            f"{method.__name__} has no decision rule of its own: define decide(self, scores), or "
            f"choose {rules_in_words()}"
        )
    return OWN_RULE


def has_measure(method: Method) -> bool:
    """Whether a method measures its validation scores itself."""
    return type(method).measure is not Method.measure


def raw_scores(method: Method, images: Tensor, seen: int, *, validation: bool = False) -> Tensor:
    """Return a method's scores for images, float (n, seen); anything else is refused."""
    own = type(method).validation_scores is not Method.validation_scores
    name = "validation_scores" if validation and own else "scores"
    found = _of_shape((len(images), seen), getattr(method, name)(images), name, method)
    if not found.is_floating_point():
        raise PolarbearError(
            f"{_named(method, name)} gives {found.dtype}: scores are floating-point numbers; "
            "to say which classes are predicted, define decide(self, scores) as well"
        )
    return found.float()


@torch.no_grad()
def decided(method: Method, scores: Tensor) -> Tensor:
    """Return what a method predicts by its own rule, bool (n, seen); anything else is refused."""
    found = _of_shape(tuple(scores.shape), method.decide(scores), "decide", method)
    if found.dtype != torch.bool:
        raise PolarbearError(
            f"{_named(method, 'decide')} gives {found.dtype}, not bool: compare, as in scores > 0"
        )
    return found


@torch.no_grad()
def measured(method: Method, scores: Tensor, targets: Tensor) -> float:
    """Return a method's own measure of an epoch, a finite number; anything else is refused."""
    found: Any = method.measure(scores, targets)
    try:
        value = float(found)
    except (TypeError, ValueError, RuntimeError):
        shape = f"of {tuple(found.shape)}" if isinstance(found, Tensor) else repr(found)
        raise PolarbearError(
            f"{_named(method, 'measure')} gives a {type(found).__name__} {shape}: it must give "
            "one number, the higher the better"
        ) from None
    if not math.isfinite(value):
        raise PolarbearError(f"{_named(method, 'measure')} gives {value}, which is no measure")
    return value


def _of_shape(shape: tuple[int, ...], found: Any, name: str, method: Method) -> Tensor:
    if isinstance(found, Tensor) and tuple(found.shape) == shape:
        return found
    got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
    raise PolarbearError(
        f"{_named(method, name)} gives {got}, not a tensor of {shape}: a row for each image, "
        "a column for each seen class"
    )


def _named(method: Method, name: str) -> str:
    return f"{type(method).__name__}.{name}"
