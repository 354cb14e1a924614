"""Settings of Kin."""

from dataclasses import dataclass, field

from polarbear.engine.contract.method import Method


@dataclass(frozen=True)
class KinOptions(Method.Options):
    """Settings of Kin."""

    first_sigma: float = field(default=16.0, metadata={"at_least": 0})
    """Scale of the cosine head at the start."""
    balance: bool = True
    """Raise the logits in the loss by the log of the classes' numbers of images."""
    distillation: float = field(default=2.0, metadata={"at_least": 0})
    """Weight of the distillation."""
    temperature: float = field(default=2.0, metadata={"at_least": 1e-3})
    """Temperature T of the distillation."""
    holes: bool = True
    """Leave what lies below a label out of the loss; without, it is negative."""
    parents: bool = True
    """Look for parents; without, every class stands alone."""
    threshold: float = field(default=0.8, metadata={"at_least": 0})
    """Part of its probability on its own validation images from which on a class is a parent."""
    mirror: bool = True
    """Predict by an image and its mirror image."""
    witnesses: bool = True
    """Ask the networks of birth at the test too, not the newest network alone."""
    caution: float = field(default=2.0, metadata={"at_least": 1e-3})
    """Temperature of the probabilities by which it is decided what to predict."""
    evidence: float = field(default=1.0, metadata={"at_least": 0})
    """How much it tells against an unknown child that known ones lie above their parent."""
    even: float = 1.5
    """How far above it they lie where that tells nothing."""
    unknown_children: bool = True
    """Reckon with children that have not come yet; without, a parent is never all."""
