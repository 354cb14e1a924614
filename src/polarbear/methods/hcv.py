"""HCV: finds superclasses by what fires on a new class, and predicts nothing that contradicts."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from polarbear.engine.contract.batch import Batch, TaskContext
from polarbear.engine.contract.method import Method, bce
from polarbear.methods.births import looked_at
from polarbear.methods.icarl_cnn import ICarlCNN, distilled_targets
from polarbear.methods.tree import closure
from polarbear.score.metrics import pw_jaccard


class HCV(ICarlCNN):
    """iCaRL-CNN with hierarchy-consistency verification.

    *Finding.* A new class lies below the old class that the previous network says yes to most
    often on its images, if that is on more than ``threshold`` of them.

    *Learning.* An image of a class whose parent was found has its labels and their ancestors as
    targets, and no other; the teacher's word counts on all other images, as in iCaRL-CNN.

    *Predicting.* Each class with its ancestors is a consistent answer; of these, the one that
    differs in the fewest classes from what the logits say is predicted.
    """

    summary = "iCaRL-CNN that finds superclasses by what fires, and predicts consistent sets"

    @dataclass(frozen=True)
    class Options(Method.Options):
        """Settings of HCV."""

        threshold: float = field(default=0.6, metadata={"at_least": 0})
        """Part of a new class's images on which a parent must fire, at least."""

    options: Options
    parents: Tensor
    upwards: Tensor

    def begin_task(self, context: TaskContext) -> None:
        """Find the parents of the new classes, and so each class's ancestors."""
        old = getattr(self, "parents", torch.empty(0, dtype=torch.long))[: context.old]
        found = [self.find_parent(context, one) for one in range(context.old, context.seen)]
        self.register_buffer("parents", torch.cat([old, old.new_tensor(found)]))
        self.register_buffer("upwards", closure(self.parents))

    def find_parent(self, context: TaskContext, column: int) -> int:
        """Return the old class that fires most often on a new class's images; −1: too seldom."""
        if self.teacher is None or not len(images := context.class_images(column)):
            return -1
        with context.autocast():
            rates = (looked_at(self.teacher, images) > 0).float().mean(dim=0)
        return int(rates.argmax()) if rates.max() > self.options.threshold else -1

    def loss(self, batch: Batch) -> Tensor:
        """Return BCE with the found labels where a parent was found, else as iCaRL-CNN."""
        given = batch.targets.clone()
        given[:, : self.context.old] = 0  # memory's labels are the teacher's, as in iCaRL-CNN
        known = (given * (self.parents >= 0)).amax(dim=1, keepdim=True) > 0
        certain = (given @ self.upwards).clamp(max=1).to(batch.targets)
        targets = torch.where(known, certain, distilled_targets(self.teacher, batch))
        return bce(self.model(batch.images), targets)

    def measure(self, scores: Tensor, targets: Tensor) -> float:
        """Return the mean pw-JS of what the logits say, labels brought up to their ancestors."""
        said, due = scores >= 0, targets @ self.upwards > 0
        return float(pw_jaccard(said.cpu().numpy(), due.cpu().numpy()).mean())

    def decide(self, scores: Tensor) -> Tensor:
        """Return the consistent answer nearest to what the logits say: (n, seen)."""
        said, answers = (scores >= 0).float(), self.upwards.to(scores)
        apart = said.sum(dim=1, keepdim=True) + answers.sum(dim=1) - 2 * said @ answers.T
        # Of answers as near as each other, the one whose class is likeliest.
        return answers[(apart - torch.sigmoid(scores) / 2).argmin(dim=1)] > 0

    def inferred_parents(self) -> Tensor:
        """Return the parents that were found: (seen,)."""
        return self.parents
