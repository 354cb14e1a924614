"""iCaRL as it was published: iCaRL-CNN's loss, and the nearest mean of stored images predicts."""

import torch
from torch import Tensor
from torch.nn.functional import normalize

from polarbear.engine.contract.batch import Batch
from polarbear.methods.icarl_cnn import ICarlCNN
from polarbear.methods.lucir import mean_direction
from polarbear.methods.softmax import likeliest


class ICarlNME(ICarlCNN):
    """Binary cross-entropy with the teacher's word on old classes; nearest mean of exemplars.

    The loss is the sum over classes. After a task, a class's mean is that of the features of its
    stored images and their mirror images, each of length 1, and has length 1 itself. The class
    whose mean is nearest to an image's feature is predicted.
    """

    summary = "iCaRL as published: distils old classes; predicts by the nearest mean"
    means: Tensor

    def loss(self, batch: Batch) -> Tensor:
        """Return the binary cross-entropy, summed over classes, mean over images."""
        return super().loss(batch) * self.context.seen

    @torch.no_grad()
    def end_task(self) -> None:
        """Work out the means; memory has images of the task's classes by now."""
        self.model.eval()  # the next task's first step puts it back
        with self.context.autocast():
            means = [self.class_mean(column) for column in range(self.context.seen)]
        self.register_buffer("means", torch.stack(means))

    def class_mean(self, column: int) -> Tensor:
        """Return a class's mean, of length 1, or zeros where it has no images: (d,)."""
        images = self.context.stored_images(column)
        if not len(images):
            return torch.zeros_like(self.model.head.weight[0])  # type: ignore[index]
        return mean_direction(self.model, torch.cat([images, images.flip(3)])).float()

    def scores(self, images: Tensor) -> Tensor:
        """Return cosines, the higher the nearer: (n, seen)."""
        # In float64, which autocast leaves alone: cosines in bf16 are up to 0.004 off, and means
        # that come out equally near are decided for the oldest class.
        return normalize(self.model.features(images).double()) @ self.means.double().T

    def validation_scores(self, images: Tensor) -> Tensor:
        """Return the logits: until the task ends, its classes have no means."""
        logits: Tensor = self.model(images)
        return logits

    def decide(self, scores: Tensor) -> Tensor:
        """Return the nearest class alone: bool (n, seen)."""
        return likeliest(scores)
