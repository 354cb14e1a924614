"""EEIL: distillation task by task, then fine-tuning on as many images of every class."""

from dataclasses import dataclass, field

from torch import Tensor

from polarbear.engine.contract.batch import Batch
from polarbear.engine.contract.method import frozen_copy
from polarbear.engine.contract.phase import Phase
from polarbear.methods.by_task import ByTask
from polarbear.methods.softmax import cross_entropy


class EEIL(ByTask):
    """Cross-distilled loss, on all images and then on a balanced set.

    With s* the teacher's logits, and t each task that the teacher knows, with its classes alone::

        loss = CE(s, labels) + Σ_t CE(softmax(s_t / T), softmax(s*_t / T))

    The teacher is the previous network, and in the balanced phase the network as it was before the
    phase: that one knows the new classes, too.
    """

    summary = "distils task by task, then fine-tunes on as many images of every class"
    replay = "mixed"
    selection = "herding"
    wants_teacher = True

    @dataclass(frozen=True)
    class Options(ByTask.Options):
        """Settings of EEIL."""

        temperature: float = field(default=2.0, metadata={"at_least": 1e-3})
        """Temperature T of the distillation."""
        balanced_epochs: int = field(default=30, metadata={"at_least": 1})
        """Epochs of the balanced phase."""
        balanced_rate: float = field(default=0.01, metadata={"at_least": 1e-12})
        """Its learning rate, which falls at the parts ``rate_steps``."""

    options: Options

    def loss(self, batch: Batch) -> Tensor:
        """Return cross-entropy, and the distillation of each task that the teacher knows."""
        before = self.asked_before(batch.images)
        logits = self.model(batch.images)
        taught = cross_entropy(logits, batch.targets)
        if before is None:
            return taught
        return taught + self.distilled(logits, before, self.options.temperature)

    def phases(self) -> list[Phase]:
        """Return the balanced phase; the first task has none."""
        if self.context.task == 0:
            return []
        how = (self.options.balanced_epochs, self.options.balanced_rate)
        return [Phase("balanced", *how, schedule="steps", begin=self.teach_itself)]

    def teach_itself(self) -> None:
        """Take the network as it is now for a teacher, until the task ends."""
        self.teacher = frozen_copy(self.model)
