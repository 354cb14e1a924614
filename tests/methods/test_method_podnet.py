"""PODNet: its loss as loops, proxies, k-means, frozen and tuned rows, and networks without maps."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

from engine_run import finish, shapes_stream, tiny, trainer_for
from polarbear.base.errors import PolarbearError
from polarbear.benchmark.schedule import Schedule
from polarbear.engine.contract.batch import Batch
from polarbear.engine.contract.method import Method
from polarbear.engine.nets.heads import ProxyHead
from polarbear.launch.runner import run
from polarbear.methods.podnet import PODNet, centres, pooled
from polarbear.methods.softmax import log_odds
from tiny_learner import (
    TinyBackbone,
    at_task,
    batch_for,
    class_images,
    random_images,
    slow_cosine,
    step,
)

pytestmark = pytest.mark.usefixtures("one_thread")

Rows = Sequence[Sequence[float]]


def slow_pooled(maps: Any) -> list[float]:
    """Squares of one image's maps [c][h][w], summed along w and along h, at length 1."""
    rows = [sum(x * x for x in row) for channel in maps for row in channel]
    columns = [
        sum(row[w] * row[w] for row in channel) for channel in maps for w in range(len(channel[0]))
    ]
    length = math.sqrt(sum(x * x for x in rows + columns))
    return [x / length for x in rows + columns]


def slow_distance(maps: Sequence[Tensor], then: Sequence[Tensor]) -> float:
    total = 0.0
    for now, before in zip(maps, then, strict=True):
        for a, b in zip(now.tolist(), before.tolist(), strict=True):
            pairs = zip(slow_pooled(a), slow_pooled(b), strict=True)
            total += math.sqrt(sum((x - y) ** 2 for x, y in pairs)) / len(now)
    return total / len(maps)


def slow_logits(features: Tensor, head: ProxyHead) -> Rows:
    """η times the mean cosine of a class's proxies, each weighed by the softmax of the cosines."""
    found = []
    classes = torch.cat([head.old, head.new]).tolist()
    for feature in features.tolist():
        row = []
        for proxies in classes:
            near = [slow_cosine(feature, proxy) for proxy in proxies]
            weights = [math.exp(one) for one in near]
            mean = sum(w * n for w, n in zip(weights, near, strict=True)) / sum(weights)
            row.append(head.sigma.item() * mean)
        found.append(row)
    return found


def slow_taught(logits: Rows, targets: Tensor, margin: float | None = None) -> float:
    """For each label: the others and, for itself, the highest; or the paper's with a margin."""
    total = 0.0
    for row, labels in zip(logits, targets.tolist(), strict=True):
        others = sum(math.exp(z) for z, label in zip(row, labels, strict=True) if not label)
        own = [z for z, label in zip(row, labels, strict=True) if label]
        if margin is None:
            losses = [math.log(others + math.exp(max(row))) - z for z in own]
        else:
            losses = [max(0.0, -math.log(math.exp(z - margin) / others)) for z in own]
        total += sum(losses) / len(losses)
    return total / len(targets)


def seen_by(learner: Method, images: Tensor) -> tuple[Any, Any]:
    """Return what both networks see: maps, and the features that are means of the last."""
    learner.model.train()
    with torch.no_grad():
        maps, then = learner.model.maps(images), learner.teacher.maps(images)
        return (maps, maps[-1].mean(dim=(2, 3))), (then, then[-1].mean(dim=(2, 3)))


# The loss.


@pytest.mark.parametrize("sizes", [(4, 3), (4, 3, 2)])
@pytest.mark.parametrize("weights", [(3.0, 1.0), (0.5, 2.0), (0.0, 2.0)])
def test_the_whole_loss_is_its_equation(
    sizes: tuple[int, ...], weights: tuple[float, float]
) -> None:
    spatial, flat = weights
    learner = at_task(
        PODNet,
        sizes,
        options=PODNet.Options(spatial=spatial, flat=flat),
        between=lambda one: one.model.head.sigma.data.fill_(4.0),
    )
    batch = batch_for(learner)
    (maps, features), (maps_then, then) = seen_by(learner, batch.images)
    assert len(maps) == 2
    taught = slow_taught(slow_logits(features, learner.model.head), batch.targets)
    apart = slow_distance(maps, maps_then)
    pairs = zip(features.tolist(), then.tolist(), strict=True)
    drift = sum(1 - slow_cosine(a, b) for a, b in pairs) / len(features)
    factor = math.sqrt(sum(sizes) / sizes[-1])
    assert min(apart, drift) > 0
    expected = taught + factor * (spatial * apart + flat * drift)
    assert learner.loss(batch).item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("hinge", [False, True])
def test_the_first_task_is_taught_alone(hinge: bool) -> None:
    learner = at_task(PODNet, (4,), options=PODNet.Options(hinge=hinge))
    head = cast(ProxyHead, learner.model.head)
    head.sigma.data.fill_(2.0)
    batch = batch_for(learner)
    batch.targets[0, :2] = 1  # two labels: neither is among the other's rivals
    learner.model.train()
    with torch.no_grad():
        logits = slow_logits(learner.model.features(batch.images), head)
    expected = slow_taught(logits, batch.targets, 0.6 * 2 if hinge else None)
    assert learner.loss(batch).item() == pytest.approx(expected, rel=1e-5)
    assert learner.phases() == []
    assert head.new.requires_grad


def test_where_the_label_is_likeliest_it_is_cross_entropy() -> None:
    learner = at_task(PODNet, (4,))
    head = cast(ProxyHead, learner.model.head)
    head.sigma.data.fill_(9.0)
    features = head.new.detach().mean(dim=1)
    assert head(features).argmax(dim=1).tolist() == [0, 1, 2, 3]
    expected = nn.functional.cross_entropy(head(features), torch.arange(4))
    found = cast(PODNet, learner).taught(features, torch.eye(4))
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_hinge_asks_nothing_of_labels_far_enough_above() -> None:
    learner = cast(PODNet, at_task(PODNet, (4,), options=PODNet.Options(hinge=True)))
    head = cast(ProxyHead, learner.model.head)
    head.new.data.copy_(torch.eye(4, 6)[:, None].expand_as(head.new))
    head.sigma.data.fill_(20.0)
    loss = learner.taught(torch.eye(4, 6), torch.eye(4))
    loss.backward()
    assert loss.item() == 0
    assert not head.new.grad.any()
    assert learner.taught(torch.eye(4, 6), torch.eye(4).roll(1, 0)).item() > 0


def test_the_papers_hinge_lets_a_learnt_scale_fall() -> None:
    """Where cosines are alike, its margin alone moves η, and a lower one is always better."""
    gradients = {}
    for hinge in (False, True):
        learner = cast(PODNet, at_task(PODNet, (4,), options=PODNet.Options(hinge=hinge)))
        head = cast(ProxyHead, learner.model.head)
        head.new.data.fill_(1.0)
        learner.taught(random_images(8, 0).flatten(1)[:, :6], torch.eye(4).repeat(2, 1)).backward()
        gradients[hinge] = head.sigma.grad.item()
    assert gradients == {False: pytest.approx(0, abs=1e-6), True: pytest.approx(0.6, abs=1e-6)}


def test_maps_alike_but_for_their_size_are_no_distance_apart() -> None:
    maps = torch.rand(2, 3, 4, 5) - 0.5
    torch.testing.assert_close(pooled(3 * maps), pooled(maps))
    assert pooled(maps).shape == (2, 3 * 4 + 3 * 5)
    assert pooled(maps).norm(dim=1).tolist() == pytest.approx([1.0, 1.0])


def test_no_distance_has_a_gradient_that_is_no_number() -> None:
    learner = at_task(PODNet)
    learner.model.eval()  # as the teacher, whose weights it still has
    batch = batch_for(learner)
    learner.loss(batch).backward()
    maps, then = (one.maps(batch.images) for one in (learner.model, learner.teacher))
    assert all(torch.equal(a, b) for a, b in zip(maps, then, strict=True))
    for name, parameter in learner.model.named_parameters():
        assert name == "head.old" or parameter.grad.isfinite().all(), name


# Proxies.


def test_new_proxies_are_k_means_of_features_as_long_as_old_ones() -> None:
    learner = at_task(PODNet, (4, 3, 2))
    head = cast(ProxyHead, learner.model.head)
    lengths = [math.sqrt(sum(x * x for x in row)) for row in head.old.flatten(0, 1).tolist()]
    mean_length = sum(lengths) / len(lengths)
    for proxies, column in zip(head.new.tolist(), (7, 8), strict=True):
        units = []
        for image in class_images(column, 1000):
            feature = learner.teacher.features(image[None])[0].tolist()
            size = math.sqrt(sum(x * x for x in feature))
            units.append([x / size for x in feature])
        for proxy, expected in zip(proxies, slow_k_means(units, 10), strict=True):
            assert proxy == pytest.approx([x * mean_length for x in expected], abs=1e-5)


def slow_k_means(points: list[list[float]], count: int, rounds: int = 20) -> list[list[float]]:
    last = len(points) - 1
    found = [points[int(i * last / (count - 1))] for i in range(count)]
    for _ in range(rounds):
        groups: list[list[list[float]]] = [[] for _ in found]
        for point in points:
            far = [sum((a - b) ** 2 for a, b in zip(point, one, strict=True)) for one in found]
            groups[far.index(min(far))].append(point)
        found = [
            [sum(x) / len(group) for x in zip(*group, strict=True)] if group else one
            for group, one in zip(groups, found, strict=True)
        ]
    return found


def test_k_means_finds_groups_and_takes_fewer_points_than_proxies() -> None:
    corners = torch.tensor([[0.0, 0.0], [9.0, 0.0], [0.0, 9.0]])
    points = (corners[:, None] + torch.tensor([[-1.0, 0.0], [1.0, 0.0]])).flatten(0, 1)
    assert sorted(centres(points, 3).tolist()) == [[0.0, 0.0], [0.0, 9.0], [9.0, 0.0]]
    few = centres(corners[:2], 5)
    assert few.shape == (5, 2)
    assert {tuple(row) for row in few.tolist()} == {(0.0, 0.0), (9.0, 0.0)}


def test_a_class_without_images_keeps_random_proxies() -> None:
    learner = at_task(
        PODNet, (4, 3), look_up=lambda column, limit: class_images(column, 0 if column == 5 else 9)
    )
    head = cast(ProxyHead, learner.model.head)
    assert head.new.isfinite().all()
    assert len(head.new[1].unique(dim=0)) == head.proxies


def test_the_main_phase_leaves_old_proxies_and_tuning_trains_all_but_nothing_else(
    tmp_path: Path,
) -> None:
    seen: dict[tuple[int, int], list[dict[str, Tensor]]] = {}

    def note(trainer: Any, progress: Any) -> None:
        state = trainer.learner.model.state_dict()
        kept = {name: tensor.clone() for name, tensor in state.items()}
        if progress.begun:
            seen.setdefault((progress.task, progress.phase), []).append(kept)

    settings = tiny("podnet", tasks=2, options={"tuning_epochs": 2}, memory_per_class=10)
    assert run(settings, tmp_path / "run", stream=shapes_stream(), on_step=note)
    assert set(seen) >= {(0, 0), (1, 0), (1, 1)}

    def moved(phase: int) -> set[str]:
        first, last = seen[1, phase][0], seen[1, phase][-1]
        changed = {name for name in first if not torch.equal(first[name], last[name])}
        return {name for name in changed if "running" not in name and "tracked" not in name}

    everything = {name for name, _ in at_run(settings).named_parameters()}
    assert moved(0) == everything - {"head.old"}
    assert moved(1) == {"head.old", "head.new"}


def at_run(settings: Any) -> nn.Module:
    model: nn.Module = trainer_for(settings, shapes_stream())[0].learner.model
    return model


def test_tuning_is_the_first_term_with_gradients_for_proxies_alone() -> None:
    learner = cast(PODNet, at_task(PODNet, (4, 3)))
    head, batch = cast(ProxyHead, learner.model.head), batch_for(learner)
    (phase,) = learner.phases()
    assert (phase.on, phase.epochs, phase.learning_rate, phase.schedule) == (
        *("balanced", 20, 0.05),
        "constant",
    )
    learner.model.train()
    with torch.no_grad():
        logits = slow_logits(learner.model.features(batch.images), head)
    head.old.requires_grad_(True)  # as the engine does for what a phase trains
    loss = learner.tuning_loss(batch)
    assert loss.item() == pytest.approx(slow_taught(logits, batch.targets), rel=1e-5)
    loss.backward()
    assert head.old.grad.any()
    assert head.new.grad.any()
    assert all(p.grad is None for p in learner.model.backbone.parameters())


def test_the_likeliest_class_is_predicted() -> None:
    learner = at_task(PODNet, (4, 3))
    learner.model.eval()
    images = random_images(8, 3)
    with torch.no_grad():
        scores, logits = learner.scores(images), learner.model(images)
    torch.testing.assert_close(scores, log_odds(logits))
    predicted = learner.decide(scores)
    assert predicted.sum(dim=1).tolist() == [1] * 8
    assert predicted.int().argmax(dim=1).tolist() == logits.argmax(dim=1).tolist()


def test_a_task_without_images_passes() -> None:
    # With one image a leaf, a superclass's share is none.
    stream = replace(
        shapes_stream(1, 1), schedule=Schedule.of([["spiral", "cloud"], ["circle"], ["moon"]])
    )
    trainer, notes = trainer_for(tiny("podnet", options={"tuning_epochs": 1}), stream)
    finish(trainer)
    assert len(notes.lines) == 6


# Networks without maps.


class WithoutMaps(nn.Module):
    """A network that gives features alone."""

    out_features = 3

    def forward(self, images: Tensor) -> Tensor:
        return images.mean(dim=(2, 3))


def test_a_network_without_maps_is_refused_before_it_is_trained() -> None:
    settings = tiny("podnet", network=f"{__name__}:WithoutMaps")
    with pytest.raises(
        PolarbearError, match=r"WithoutMaps has no maps\(images\), .* --options\.spatial 0"
    ):
        trainer_for(settings, shapes_stream())


def test_without_maps_features_alone_are_distilled(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(self: TinyBackbone, images: Tensor) -> None:
        raise AssertionError("nobody asked for maps")

    monkeypatch.setattr(TinyBackbone, "maps", never)
    learner = at_task(PODNet, options=PODNet.Options(spatial=0.0))
    step(learner, batch_for(learner))
    with pytest.raises(AssertionError, match="nobody asked"):
        step(at_task(PODNet), cast(Batch, batch_for(learner)))


def test_a_frozen_network_has_nothing_to_distil() -> None:
    settings = tiny("podnet", network="small", frozen=True, epochs=1, tasks=2)
    trainer, _ = trainer_for(settings, shapes_stream())
    finish(trainer)
    (maps,) = trainer.learner.model.maps(features := torch.randn(2, 128, 1, 1))
    assert torch.equal(maps, features)


@pytest.mark.parametrize("wrong", [{"spatial": -1.0}, {"tuning_epochs": 0}, {"flat": math.nan}])
def test_values_no_run_can_have_are_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(PolarbearError, match=f"{name} must be at least"):
        PODNet.Options(**wrong)
