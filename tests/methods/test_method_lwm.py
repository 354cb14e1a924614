"""LwM: maps of attention against Grad-CAM by autograd, the loss as loops, networks without maps."""

import pytest
import torch
from torch import Tensor, nn

from engine_run import tiny, trainer_for
from polarbear.base.errors import PolarbearError
from polarbear.engine.contract.batch import Batch
from polarbear.engine.contract.method import Method
from polarbear.engine.nets.heads import LinearHead
from polarbear.engine.nets.model import Model
from polarbear.engine.nets.networks import build_backbone, feature_width
from polarbear.methods.lwf import LwF
from polarbear.methods.lwm import LwM, attention
from tiny_learner import at_task, batch_for

OLD = 7


def grad_cam(model: Model, maps: Tensor, classes: list[int]) -> list[Tensor]:
    """Grad-CAM as its paper has it, an image at a time: a gradient, its mean, a sum, a ReLU."""
    logits = model.head(maps.mean(dim=(2, 3)))
    found = []
    for i, column in enumerate(classes):
        (gradient,) = torch.autograd.grad(logits[i, column], maps, create_graph=True)
        seen = torch.zeros_like(maps[i, 0])
        for channel in range(maps.shape[1]):
            seen = seen + gradient[i, channel].mean() * maps[i, channel]
        found.append(seen.clamp(min=0))
    return found


def slow_distance(now: list[Tensor], then: list[Tensor]) -> Tensor:
    """The mean over images of Σ | Q / ‖Q‖ − Q* / ‖Q*‖ |, a place at a time."""
    total = torch.zeros(())
    for one, other in zip(now, then, strict=True):
        lengths = one.square().sum().sqrt(), other.square().sum().sqrt()
        for q, p in zip(one.flatten(), other.flatten(), strict=True):
            total = total + (q / lengths[0] - p / lengths[1]).abs()
    return total / len(now)


def learner_and_batch(**options: float) -> tuple[Method, Batch]:
    """A learner whose network has moved on from the previous one, so that they disagree."""
    learner = at_task(LwM, sizes=(4, 3, 2), options=LwM.Options(**options))
    with torch.no_grad():
        random = torch.Generator().manual_seed(3)
        for parameter in learner.model.parameters():
            parameter += 0.3 * torch.randn(parameter.shape, generator=random)
        learner.model.head.bias[OLD] += 5  # of a new class, which is likelier than any old one
    return learner, batch_for(learner, replayed=0)


def gradients(learner: Method, loss: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(learner.model.parameters())))


def test_the_loss_is_lwfs_and_the_distance_of_maps_by_autograd() -> None:
    learner, batch = learner_and_batch(distillation=3.0, temperature=4.0, attention=0.7)
    model, teacher = learner.model.train(), learner.teacher
    maps, before = model.backbone.layers(batch.images), teacher.backbone.layers(batch.images)
    before.requires_grad_()
    logits = model.head(maps.mean(dim=(2, 3)))
    assert (logits.argmax(dim=1) >= OLD).all()
    likeliest = logits[:, :OLD].argmax(dim=1).tolist()
    said_before = teacher.head(before.mean(dim=(2, 3))).argmax(dim=1).tolist()
    assert likeliest != said_before  # it is the network's own class that counts
    then = [one.detach() for one in grad_cam(teacher, before, likeliest)]
    moved = slow_distance(grad_cam(model, maps, likeliest), then)
    assert moved > 0.1
    plain = LwF(model, LwF.Options(distillation=3.0, temperature=4.0))
    plain.teacher, plain.context = teacher, learner.context
    expected = plain.loss(batch) + 0.7 * moved
    found = learner.loss(batch)
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    pairs = zip(gradients(learner, found), gradients(learner, expected), strict=True)
    for mine, slow in pairs:  # through both the maps and the head's weights
        torch.testing.assert_close(mine, slow, rtol=1e-4, atol=1e-6)


def test_without_attention_it_is_lwf() -> None:
    learner, batch = learner_and_batch(attention=0.0)
    plain = LwF(learner.model, LwF.Options())
    plain.teacher, plain.context = learner.teacher, learner.context
    assert learner.loss(batch).item() == pytest.approx(plain.loss(batch).item(), rel=1e-6)


@pytest.mark.parametrize("name", ["small", "resnet20", "resnet18"])
def test_grad_cam_has_a_closed_form_in_our_networks(name: str) -> None:
    backbone = build_backbone(name, 0).train()
    head = LinearHead(feature_width(backbone), 9)
    head.grow(9)
    model = Model(backbone, head)
    images = torch.randn((3, 3, 48, 48), generator=torch.Generator().manual_seed(1))
    maps = model.maps(images)[-1]
    assert maps.shape[2] * maps.shape[3] > 1
    classes = [4, 0, 8]
    found = attention(model, maps, torch.tensor(classes))
    for mine, slow in zip(found, grad_cam(model, maps, classes), strict=True):
        torch.testing.assert_close(mine, (slow / slow.norm()).flatten(), rtol=1e-4, atol=1e-5)
    assert found.norm(dim=1).tolist() == pytest.approx([1, 1, 1], rel=1e-5)


def test_a_map_without_attention_stays_finite() -> None:
    learner, _ = learner_and_batch()
    maps = torch.zeros((2, 6, 2, 2), requires_grad=True)
    rows = learner.model.head.weight
    nowhere = maps - rows[:2, :, None, None]  # the ReLU leaves nothing of it
    found = attention(learner.model, nowhere, torch.tensor([0, 1]))
    assert not found.any()
    for gradient in torch.autograd.grad(found.sum(), [maps, rows]):
        assert torch.isfinite(gradient).all()


class WithoutMaps(nn.Module):
    """A network that keeps its maps to itself."""

    out_features = 3

    def forward(self, images: Tensor) -> Tensor:
        return images.mean(dim=(2, 3))


def test_a_network_without_maps_is_refused_before_the_first_step() -> None:
    trainer, _ = trainer_for(tiny("lwm", network=f"{__name__}:WithoutMaps"))
    with pytest.raises(PolarbearError, match=r"WithoutMaps has no maps\(images\), which"):
        next(trainer.steps())
    assert trainer.progress.task == 0


def test_on_a_frozen_network_it_is_lwf() -> None:
    """Features are maps of one place there: nobody can look elsewhere."""
    heads = []
    for method in ("lwf", "lwm"):
        trainer, _ = trainer_for(tiny(method, network="small", frozen=True, epochs=1, tasks=2))
        for _ in trainer.steps():
            pass
        heads.append(trainer.learner.model.head.weight)
    assert torch.equal(*heads)
