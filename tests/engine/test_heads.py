"""Heads: what is scored, what gets a gradient, and what a checkpoint brings back."""

import math
from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from polarbear.base.errors import PolarbearError, UnknownNameError
from polarbear.engine.nets.heads import CosineHead, FreshHead, LinearHead, ProxyHead, build_head

KINDS = ["linear", "fresh", "cosine", "proxies"]
D = 6


def features(n: int = 5) -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).normal(size=(n, D)).astype(np.float32))


def grown(kind: str, *sizes: int, seed: int = 0) -> nn.Module:
    head = build_head(kind, D, 20, seed)
    for seen in sizes:
        head.grow(seen)
    return head


def cosine_head(*sizes: int, seed: int = 0) -> CosineHead:
    head = grown("cosine", *sizes, seed=seed)
    assert isinstance(head, CosineHead)
    return head


def slow_cosines(x: Tensor, rows: Tensor) -> list[list[float]]:
    def cosine(a: Tensor, b: Tensor) -> float:
        return sum((a * b).tolist()) / (sum((a * a).tolist()) * sum((b * b).tolist())) ** 0.5

    return [[cosine(a, b) for b in rows] for a in x]


# All heads.


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_scores_the_seen_classes(kind: str) -> None:
    head = build_head(kind, D, 20, 0)
    for seen, sizes in [(4, (0, 4)), (7, (4, 3)), (9, (7, 2))]:
        head.grow(seen)
        assert head(features()).shape == (5, seen)
        assert (head.sizes, head.seen) == (sizes, seen)


@pytest.mark.parametrize("kind", KINDS)
def test_growing_keeps_the_scores_of_earlier_classes(kind: str) -> None:
    head = grown(kind, 4, 7)
    before = head(features()).detach()
    head.grow(12)
    torch.testing.assert_close(head(features())[:, :7].detach(), before)


@pytest.mark.parametrize("kind", KINDS)
def test_growing_to_the_present_size_changes_nothing(kind: str) -> None:
    head = grown(kind, 4, 7)
    parameters = list(head.parameters())
    head.grow(7)
    assert head.sizes == (4, 3)
    assert all(a is b for a, b in zip(parameters, head.parameters(), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_cannot_shrink(kind: str) -> None:
    with pytest.raises(PolarbearError, match="a head of 7 classes cannot shrink to 4"):
        grown(kind, 7).grow(4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_head_is_the_same_head(kind: str) -> None:
    head = grown(kind, 4, 7)
    with torch.no_grad():
        for p in head.parameters():
            p.add_(1)
    by_sizes, by_growing = grown(kind, seed=9), grown(kind, head.sizes[0], head.seen, seed=9)
    by_sizes.resize(*head.sizes)
    for restored in (by_sizes, by_growing):
        restored.load_state_dict(head.state_dict())
        assert restored.sizes == head.sizes
        assert torch.equal(restored(features()), head(features()))


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_restored_in_its_first_task_is_the_same_head(kind: str) -> None:
    head, restored = grown(kind, 4), grown(kind, seed=9)
    restored.resize(*head.sizes)
    restored.load_state_dict(head.state_dict())
    assert torch.equal(restored(features()), head(features()))


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_head_grows_as_the_unbroken_one(kind: str) -> None:
    head, restored = grown(kind, 4, 7), grown(kind)
    restored.resize(4, 3)
    restored.load_state_dict(head.state_dict())
    head.grow(12)
    restored.grow(12)
    assert torch.equal(restored(features()), head(features()))


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_does_not_follow_its_original(kind: str) -> None:
    head = grown(kind, 4, 7)
    copy = deepcopy(head).requires_grad_(False)
    before = copy(features())
    head.grow(12)
    with torch.no_grad():
        next(head.parameters()).zero_()
    assert torch.equal(copy(features()), before)
    assert all(p.requires_grad for p in head.parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_weights_come_from_the_seed_alone(kind: str) -> None:
    before = torch.get_rng_state()
    first, again, other = (grown(kind, 4, 7, seed=s)(features()) for s in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("kind", KINDS)
def test_a_head_can_learn_under_sgd_with_decay(kind: str) -> None:
    head = grown(kind, 4)
    optimiser = torch.optim.SGD(head.parameters(), lr=0.5, momentum=0.9, weight_decay=1e-5)
    targets = (torch.arange(5)[:, None] % 4 == torch.arange(4)).float()
    losses = []
    for _ in range(30):
        optimiser.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(head(features()), targets)
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.6 * losses[0]


def test_an_unknown_head_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UnknownNameError, match="unknown head 'cosin': did you mean 'cosine'"):
        build_head("cosin", D, 20, 0)


# The linear head.


def test_linear_scores_are_w_x_plus_b() -> None:
    head = LinearHead(D, 20)
    head.grow(7)
    expected = features() @ head.weight[:7].T + head.bias[:7]
    torch.testing.assert_close(head(features()), expected)


def test_unseen_rows_get_a_gradient_of_exactly_zero() -> None:
    head = LinearHead(D, 20)
    head.grow(7)
    head(features()).square().sum().backward()
    assert head.weight.grad is not None
    assert head.bias.grad is not None
    assert (head.weight.grad[7:] == 0).all()
    assert (head.bias.grad[7:] == 0).all()
    assert (head.weight.grad[:7] != 0).all()


def test_linear_weights_start_normal_with_gain_1() -> None:
    head = LinearHead(64, 2000)
    weight = head.weight.detach() * 8
    assert weight.std().item() == pytest.approx(1, rel=0.01)
    assert weight.pow(4).mean().item() == pytest.approx(3, rel=0.05)
    assert head.bias.abs().max().item() <= 1 / 8


def test_classes_beyond_a_linear_head_are_refused() -> None:
    with pytest.raises(PolarbearError, match="21 classes do not fit a linear head of 20"):
        grown("linear", 21)


def test_rows_that_decayed_are_as_drawn_when_their_class_comes() -> None:
    head, drawn = FreshHead(D, 20, seed=3), LinearHead(D, 20, seed=3).weight
    head.grow(4)
    with torch.no_grad():
        head.weight *= 0.5
        head.bias += 1
    head.grow(7)
    torch.testing.assert_close(head.weight[:4], drawn[:4] / 2)
    assert torch.equal(head.weight[4:7], drawn[4:7])
    assert head.bias[4:7].tolist() == [0.0] * 3
    assert (head.bias[:4] == 1).all()


# The cosine head.


def test_cosines_are_those_of_a_slow_twin() -> None:
    head = cosine_head(4, 7)
    rows = torch.cat([head.old, head.new]).detach()
    found = head.cosines(features())
    np.testing.assert_allclose(found.tolist(), slow_cosines(features(), rows), atol=1e-6)


def test_scores_are_sigma_times_the_cosines() -> None:
    head = cosine_head(4, 7)
    assert torch.equal(head(features()), head.cosines(features()))
    with torch.no_grad():
        head.sigma.fill_(3)
    torch.testing.assert_close(head(features()), 3 * head.cosines(features()))
    head.reset_sigma()
    assert head.sigma.item() == 1
    assert head.sigma.requires_grad


def test_growing_carries_sigma_over() -> None:
    head = cosine_head(4)
    sigma = head.sigma
    with torch.no_grad():
        sigma.fill_(3)
    head.grow(7)
    assert head.sigma is sigma
    assert head.sigma.item() == 3


def test_there_is_no_bias_and_nothing_but_rows_and_sigma() -> None:
    shapes = {name: tuple(p.shape) for name, p in cosine_head(4, 7).named_parameters()}
    assert shapes == {"sigma": (), "old": (4, D), "new": (3, D)}


def test_growing_makes_all_rows_old_and_draws_fresh_ones() -> None:
    head = cosine_head(4, 7)
    rows = torch.cat([head.old, head.new]).detach()
    head.grow(12)
    assert torch.equal(head.old.detach(), rows)
    assert head.new.shape == (5, D)


def test_new_rows_are_uniform_and_do_not_depend_on_the_past() -> None:
    head = CosineHead(64)
    head.grow(1000)
    rows = 8 * head.new.detach()
    assert 0.999 < rows.max() <= 1
    assert -1 <= rows.min() < -0.999
    assert rows.std().item() == pytest.approx(1 / 3**0.5, rel=0.01)
    straight, detour = cosine_head(4, 7), cosine_head(2, 4, 7)
    assert torch.equal(straight.new, detour.new)


def test_frozen_old_rows_stay_while_the_rest_learns() -> None:
    head = cosine_head(4, 7)
    head.old.requires_grad_(False)
    before = {name: p.detach().clone() for name, p in head.named_parameters()}
    learning = [p for p in head.parameters() if p.requires_grad]
    optimiser = torch.optim.SGD(learning, lr=1, momentum=0.9, weight_decay=0.1)
    for _ in range(3):
        optimiser.zero_grad()
        head(features()).sum().backward()
        optimiser.step()
    same = {name: torch.equal(p.detach(), before[name]) for name, p in head.named_parameters()}
    assert same == {"sigma": False, "old": True, "new": False}
    head.grow(9)
    assert head.old.requires_grad


@pytest.mark.parametrize("kind", [CosineHead, ProxyHead])
def test_new_rows_are_made_where_the_old_ones_are(kind: type[CosineHead]) -> None:
    head = kind(D).to("meta")
    head.grow(4)
    head.grow(7)
    assert {p.device.type for p in head.parameters()} == {"meta"}
    double = kind(D).double()
    double.grow(4)
    assert double.new.dtype == torch.float64


# The head of proxies.


def proxy_head(*sizes: int) -> ProxyHead:
    head = grown("proxies", *sizes)
    assert isinstance(head, ProxyHead)
    return head


def test_a_class_has_the_mean_of_its_proxies_cosines_weighed_by_their_softmax() -> None:
    head = proxy_head(2, 5)
    with torch.no_grad():
        head.sigma.fill_(3)
    found = head(features()).tolist()
    classes = [*head.old, *head.new]
    for column, proxies in enumerate(classes):
        assert proxies.shape == (10, D)
        for image, near in enumerate(slow_cosines(features(), proxies)):
            weights = [math.exp(one) for one in near]
            mean = sum(w * n for w, n in zip(weights, near, strict=True)) / sum(weights)
            assert found[image][column] == pytest.approx(3 * mean, abs=1e-5)


def test_the_proxies_of_a_class_begin_apart_and_come_with_the_tasks() -> None:
    head = proxy_head(4, 7)
    shapes = {name: tuple(p.shape) for name, p in head.named_parameters()}
    assert shapes == {"sigma": (), "old": (4, 10, D), "new": (3, 10, D)}
    assert len(torch.cat([head.old, head.new]).flatten(0, 1).unique(dim=0)) == 70
    rows = torch.cat([head.old, head.new]).detach()
    head.grow(9)
    assert torch.equal(head.old.detach(), rows)


def test_alike_proxies_are_one_row_of_a_cosine_head() -> None:
    head, plain = proxy_head(4), cosine_head(4)
    with torch.no_grad():
        head.new.copy_(plain.new[:, None].expand_as(head.new))
    torch.testing.assert_close(head(features()), plain(features()))
