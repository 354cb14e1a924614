"""SI: weights are held by how much their way has lowered the loss."""

from dataclasses import dataclass, field

from polarbear.methods.anchored import Following


class SI(Following):
    """Synaptic intelligence: a weight matters by its share of the loss's fall, its path integral.

    When a task ends, Ω grows by max(0, ω) / ((θ − θ*)² + damping).
    """

    summary = "holds each weight by its share in lowering earlier losses; keeps no image"

    @dataclass(frozen=True)
    class Options(Following.Options):
        """Settings of SI."""

        strength: float = field(default=0.2, metadata={"at_least": 0})
        """2c: how firmly weights are held, beside the loss."""
        damping: float = field(default=0.1, metadata={"at_least": 1e-8})
        """ξ: keeps weights that hardly moved from mattering without limit."""

    options: Options

    def end_task(self) -> None:
        """Find out how much each weight's way was worth."""
        self.follow()
        moved = (self.before - self.anchor) ** 2 + self.options.damping
        self.consolidate(1.0, self.path.clamp(min=0) / moved)
