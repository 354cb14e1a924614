"""DER++: images in memory keep their labels, and the logits they had when they were stored."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from polarbear.engine.contract.batch import Batch
from polarbear.methods.softmax import BesideMethod, cross_entropy


class DERpp(BesideMethod):
    """Cross-entropy, α × the squared distance to stored logits, β × that of stored images.

    With x, y a batch of the task, x′ stored images with the logits z′ they had when they were
    stored, and x″, y″ other stored images::

        loss = CE(h(x), y) + α · mean (h(x′) − z′)² + β · CE(h(x″), y″)
    """

    summary = "replays from a reservoir, with the logits images had when they were stored"

    @dataclass(frozen=True)
    class Options(BesideMethod.Options):
        """Settings of DER++."""

        alpha: float = field(default=0.1, metadata={"at_least": 0})
        """Weight α of the distance to stored logits."""
        beta: float = field(default=0.5, metadata={"at_least": 0})
        """Weight β of stored labels."""
        beside: int = field(default=128, metadata={"at_least": 1})
        """Stored images of each of the two draws beside a step."""

    options: Options
    reference_batch_size = property(lambda self: 2 * self.options.beside)

    def store(self, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Return the logits to keep with images, and which classes they are of."""
        logits = self.model(images)
        return {"logits": logits, "known": torch.ones_like(logits)}

    def loss(self, batch: Batch) -> Tensor:
        """Return the cross-entropy over the seen classes."""
        return cross_entropy(self.model(batch.images), batch.targets)

    def replay_loss(self, reference: Batch) -> Tensor:
        """Return the distance to the logits of one half, and the cross-entropy of the other."""
        first, last, counted = _halves(reference)
        kept, known = (reference.stored[name][:first] for name in ("logits", "known"))
        number = self.world.sum(known.sum()).clamp(min=1)
        # Classes that came after an image was stored have no logits to keep.
        now = self.model(reference.images[:first])[:, : kept.shape[1]]
        apart = ((now - kept) ** 2 * known).sum() / number / self.world.portion / reference.weight
        recalled = cross_entropy(self.model(reference.images[-last:]), reference.targets[-last:])
        loss: Tensor = self.options.alpha * apart + self.options.beta * counted * recalled
        return loss


def _halves(reference: Batch) -> tuple[int, int, float]:
    """Return how many images of each half are at hand, and what counts the second one's mean.

    There may be another share of that half at hand than of all of them.
    """
    mine, in_all = len(reference.images), reference.in_all
    if in_all is None:
        half = max(1, mine // 2)
        return half, half, 1.0
    half, places = in_all // 2, reference.places
    first = sum(place < half for place in places)
    last = sum(place >= in_all - half for place in places)
    return first, last, (last / half) / (mine / in_all)
