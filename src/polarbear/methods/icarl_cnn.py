"""iCaRL-CNN: the previous network says what the old classes' targets are."""

import torch
from torch import Tensor

from polarbear.engine.contract.batch import Batch
from polarbear.engine.contract.method import Method, bce, teacher_targets
from polarbear.engine.nets.model import Model


class ICarlCNN(Method):
    """Binary cross-entropy over the seen classes; old ones are learnt from the frozen teacher.

    Targets of new classes are the labels, targets of old classes the sigmoid of the previous
    network's logits on the same augmented image, on task and memory images alike: the stored old
    labels are not used. Classes are predicted by their logits, not by the nearest mean.
    """

    summary = "distils old classes from the previous network; herded memory"
    keep = "last"
    inclusive = True
    replay = "mixed"
    selection = "herding"
    wants_teacher = True

    def loss(self, batch: Batch) -> Tensor:
        """Return BCE with the teacher's probabilities as targets of old classes."""
        return bce(self.model(batch.images), distilled_targets(self.teacher, batch))


def distilled_targets(teacher: Model | None, batch: Batch) -> Tensor:
    """Return the labels (n, seen), with a teacher's probabilities for the classes it knows."""
    if teacher is None:
        return batch.targets
    old = teacher_targets(teacher, batch.images).to(batch.targets)
    return torch.cat([old, batch.targets[:, old.shape[1] :]], dim=1)
