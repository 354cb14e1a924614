"""Nearest means: an image is of the class whose stored images look most like it, as in iCaRL."""

import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from polarbear.learn import Batch, Method, bce


class NearestMeans(Method):
    """BCE with replay; the class whose mean feature is nearest is predicted."""

    summary = "replays herded images; predicts the class with the nearest mean of stored ones"
    title = "nearest means"
    replay, keep = "mixed", "last"
    selection = "herding"

    def loss(self, batch: Batch) -> Tensor:
        return bce(self.model(batch.images), batch.targets)

    @torch.no_grad()
    def end_task(self) -> None:
        self.model.eval()  # the next task's first step puts it back
        means = []
        for column in range(self.context.seen):  # memory has the new classes' images by now
            images = self.context.stored_images(column)
            means.append(normalize(self.model.features(images)).mean(dim=0).nan_to_num())
        self.register_buffer("means", normalize(torch.stack(means)))

    def scores(self, images: Tensor) -> Tensor:
        """Return cosines: the higher, the nearer."""
        return normalize(self.model.features(images)) @ self.means.T

    def validation_scores(self, images: Tensor) -> Tensor:
        return self.model(images)  # until the task ends its classes have no means

    def decide(self, scores: Tensor) -> Tensor:
        return one_hot(scores.argmax(dim=1), scores.shape[1]).bool()
