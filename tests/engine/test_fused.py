"""The fused kernels against PyTorch's own layers: exact on a CPU, where they are interpreted."""

import copy
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from polarbear.base.errors import PolarbearError
from polarbear.engine.nets.fused import agreement, backward, evaluation, forward
from polarbear.engine.nets.fused import features as fused
from polarbear.engine.nets.fused.launch import Gradients, Passed
from polarbear.engine.nets.heads import LinearHead
from polarbear.engine.nets.model import Model
from polarbear.engine.nets.networks import build_backbone, cifar_resnet

ON_GPU = torch.cuda.is_available()
pytestmark = pytest.mark.skipif(
    find_spec("triton") is None,
    reason="needs Triton, which comes with PyTorch's builds for GPUs",
)
interpreted = pytest.mark.skipif(ON_GPU, reason="interpreted where there is no GPU")
DEVICE = "cuda" if ON_GPU else "cpu"
SIDE = 16


def network(blocks: int = 1) -> nn.Module:
    torch.manual_seed(0)
    net = cifar_resnet(blocks)
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, 0, 0.3)
            nn.init.uniform_(module.running_var, 0.5, 2)
    return net.to(device=DEVICE, memory_format=torch.channels_last)


def images(count: int, height: int = SIDE, width: int = SIDE) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(count, 3, height, width, device=DEVICE)


def apart(found: Tensor, expected: Tensor) -> float:
    """How far off, as a part of the expected values' size."""
    return float((found.detach().float() - expected.detach()).norm() / expected.detach().norm())


def train_both(batch: Tensor, dtype: torch.dtype) -> tuple[nn.Module, nn.Module, float]:
    """Return two equal networks after a backward pass, PyTorch's and ours, and their distance."""
    plain = network().train()
    ours = copy.deepcopy(plain)
    goal = torch.randn(len(batch), 64, device=DEVICE)
    expected = plain(batch)
    (expected * goal).sum().backward()
    found = fused.features(ours, batch, dtype)
    (found.float() * goal).sum().backward()
    return plain, ours, apart(found, expected)


@interpreted
@pytest.mark.parametrize("shape", [(2, 16, 16), (3, 16, 16), (5, 4, 12)])
def test_features_gradients_and_statistics_are_pytorchs(shape: tuple[int, int, int]) -> None:
    plain, ours, distance = train_both(images(*shape), torch.float32)
    assert distance < 1e-5
    for (name, p), q in zip(plain.named_parameters(), ours.parameters(), strict=True):
        assert p.grad is not None, name
        assert q.grad is not None, name
        assert apart(q.grad, p.grad) < 1e-4, name
        assert q.grad.stride() == q.stride(), f"{name}: its optimiser would have to copy"
    for (name, p), q in zip(plain.named_buffers(), ours.buffers(), strict=True):
        assert not p.is_floating_point() or apart(q, p) < 1e-5, name


@interpreted
def test_a_second_backward_pass_adds_up() -> None:
    net, batch = network().train(), images(2)
    fused.features(net, batch, torch.float32).sum().backward()
    once = [p.grad.clone() for p in net.parameters() if p.grad is not None]
    fused.features(net, batch, torch.float32).sum().backward()
    for p, first in zip(net.parameters(), once, strict=True):
        torch.testing.assert_close(p.grad, 2 * first, rtol=1e-3, atol=1e-4)


@interpreted
def test_a_graph_can_be_gone_back_twice_if_it_is_kept() -> None:
    net = network().train()
    loss = fused.features(net, images(2, 4, 8), torch.float32).sum()
    loss.backward(retain_graph=True)
    once = [p.grad.clone() for p in net.parameters() if p.grad is not None]
    loss.backward()
    for p, first in zip(net.parameters(), once, strict=True):
        torch.testing.assert_close(p.grad, 2 * first)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


@interpreted
def test_what_would_give_wrong_gradients_is_refused_as_pytorch_does() -> None:
    net, batch = network().train(), images(2, 4, 8)
    first = next(net.parameters())
    features = fused.features(net, batch, torch.float32)
    (gradient,) = torch.autograd.grad(features.square().sum(), first, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiate twice"):
        gradient.sum().backward()
    for changed in (first, batch):
        loss = fused.features(net, batch, torch.float32).sum()
        with torch.no_grad():
            changed.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


@interpreted
def test_maps_go_when_nothing_needs_them_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[Tensor]] = []
    alive: list[int] = []

    def watched(inner: Callable[..., Tensor]) -> Callable[..., Tensor]:
        def outer(*args: Any, **more: Any) -> Tensor:
            alive.append(sum(one() is not None for one in made))
            maps = inner(*args, **more)
            made.append(weakref.ref(maps))
            return maps

        return outer

    monkeypatch.setattr(forward, "normalise", watched(forward.normalise))
    monkeypatch.setattr(evaluation, "evaluated", watched(evaluation.evaluated))
    with torch.no_grad():
        fused.features(network(3).eval(), images(2, 4, 8), torch.float32)
        assert len(alive) == 1 + 2 * 9 + 2
        assert max(alive) <= 4
        alive.clear()
        fused.features(network(3).train(), images(2, 4, 8), torch.float32)
    assert len(alive) == 1 + 2 * 9
    assert max(alive) <= 5
    made.clear()
    features = fused.features(network().train(), images(2, 4, 8), torch.float32)
    features.sum().backward()
    del features
    assert all(one() is None for one in made)


@interpreted
def test_evaluation_uses_the_running_statistics_and_leaves_them() -> None:
    net, batch = network().eval(), images(3)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    with torch.no_grad():
        assert apart(fused.features(net, batch, torch.float32), net(batch)) < 1e-5
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
def test_in_bfloat16_it_is_as_near_to_fp32_as_autocast_is() -> None:
    _, _, ours = train_both(images(3), torch.bfloat16)
    net, batch = network().train(), images(3)
    expected = network().train()(batch)
    with torch.autocast(DEVICE, torch.bfloat16):
        theirs = apart(net(batch), expected)
    assert 0 < ours < 1.5 * theirs


@interpreted
def test_the_last_blocks_features_can_be_negative() -> None:
    with torch.no_grad():
        assert (fused.features(network().eval(), images(2), torch.float32) < 0).any()


def test_elsewhere_than_in_bf16_on_a_gpu_pytorchs_layers_are_used() -> None:
    model = Model(build_backbone("resnet20", 0), LinearHead(64, 4))
    model.fused = True
    batch = torch.randn(2, 3, 32, 32)
    assert not fused.suits(model.backbone, batch)
    model.eval()
    with torch.no_grad():
        assert torch.equal(model.features(batch), model.backbone(batch))


@interpreted
@pytest.mark.parametrize("blocks", [1, 2])
def test_maps_and_their_gradients_are_pytorchs(blocks: int) -> None:
    plain, batch = network(blocks).train(), images(2, 8, 12)
    ours = copy.deepcopy(plain)
    expected, found = plain.maps(batch), fused.maps(ours, batch, torch.float32)
    assert [m.shape for m in found] == [m.shape for m in expected]
    goals = [torch.randn_like(m) for m in expected]
    for maps in (expected, found):
        assert all((m < 0).any() for m in maps), "before the ReLU"
        torch.stack([(m * g).sum() for m, g in zip(maps, goals, strict=True)]).sum().backward()
    for one, other in zip(found, expected, strict=True):
        assert apart(one, other) < 1e-5
    for (name, p), q in zip(plain.named_parameters(), ours.parameters(), strict=True):
        assert p.grad is not None, name
        assert q.grad is not None, name
        assert apart(q.grad, p.grad) < 1e-4, name
    with torch.no_grad():
        for one, other in zip(
            fused.maps(ours, batch, torch.float32), plain.maps(batch), strict=True
        ):
            assert apart(one, other) < 1e-5
        for one, other in zip(
            fused.maps(ours.eval(), batch, torch.float32), plain.eval().maps(batch), strict=True
        ):
            assert apart(one, other) < 1e-5


def test_a_model_asks_the_fused_kernels_for_maps(monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[Tensor] = []
    monkeypatch.setattr(fused, "suits", lambda backbone, images: True)
    monkeypatch.setattr(fused, "maps", lambda backbone, images: used.append(images) or [images])
    model, batch = Model(network(), LinearHead(64, 4)), images(2)
    assert len(model.maps(batch)) == 3
    assert used == []
    model.fused = True
    assert len(model.maps(batch)) == 1
    assert len(used) == 1


def test_a_network_with_a_part_changed_is_not_as_built() -> None:
    assert fused.is_as_built(network(2))
    clipped = network(2)
    clipped.layers[3].relu_after = False  # type: ignore[index,union-attr]
    assert not fused.is_as_built(clipped)
    assert not fused.is_as_built(network(2).bfloat16())


@interpreted
def test_maps_may_be_changed_in_place() -> None:
    for one in fused.maps(network().train(), images(2, 4, 8), torch.float32):
        one.relu_()


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
def test_on_a_gpu_in_bf16_the_kernels_are_used() -> None:
    backbone, batch = network().train(), torch.randn(2, 3, 32, 32, device=DEVICE)
    with torch.autocast("cuda", torch.bfloat16):
        assert fused.suits(backbone, batch)
        assert not fused.suits(build_backbone("small", 0), batch)
        backbone.eval()
        assert not fused.suits(backbone, batch), "gradients in evaluation are PyTorch's"


@pytest.mark.parametrize(
    ("shape", "fit"),
    [
        ((1, 3, 32, 32), True),
        ((2048, 3, 64, 64), True),
        ((128, 3, 28, 28), True),
        ((2, 3, 30, 32), False),
        ((2, 1, 32, 32), False),
        ((0, 3, 32, 32), False),
        ((1, 3, 4, 4), False),
        ((2048, 3, 224, 224), False),
    ],
)
def test_shapes_without_kernels_are_left_to_pytorch(
    shape: tuple[int, int, int, int], fit: bool
) -> None:
    assert fused.takes(torch.empty(shape, device="meta")) is fit


def test_gradients_of_images_and_in_evaluation_are_pytorchs() -> None:
    net, batch = network().train(), images(2)
    assert fused.gives_gradients(net, batch)
    assert not fused.gives_gradients(net, images(2).requires_grad_())
    assert not fused.gives_gradients(net.eval(), batch)
    with torch.no_grad():
        assert fused.gives_gradients(net, images(2).requires_grad_())


def no_momentum(net: Any) -> None:
    net.layers[0][1].momentum = None


def other_norm(net: Any) -> None:
    net.layers[0][1] = nn.GroupNorm(4, 16)


def frozen_statistics(net: Any) -> None:
    net.layers[3].eval()


def hooked(net: Any) -> None:
    net.layers[2].register_forward_hook(lambda *_: None)


def wider(net: Any) -> None:
    net.layers[0][0] = nn.Conv2d(3, 24, 3, bias=False)


def own_forward(net: Any) -> None:
    net.__class__ = type("Own", (type(net),), {"forward": lambda self, maps: maps})


@pytest.mark.parametrize(
    "change", [no_momentum, other_norm, frozen_statistics, hooked, wider, own_forward]
)
def test_a_changed_network_is_left_to_pytorch(change: Callable[[Any], None]) -> None:
    net = network().train()
    assert fused.is_as_built(net)
    assert fused.is_as_built(copy.deepcopy(net).eval())
    change(net)
    assert not fused.is_as_built(net)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A smaller network and fewer images to compare on: interpreting takes long."""
    monkeypatch.setattr(agreement, "build_backbone", lambda *_: network())
    monkeypatch.setattr(agreement, "IMAGES", 3)


@interpreted
@pytest.mark.usefixtures("small")
def test_kernels_are_compared_with_pytorchs_layers() -> None:
    agreement.require(torch.device(DEVICE), 16, 16, whole=False, dtype=torch.float32)


@interpreted
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("where", [torch.no_grad, torch.inference_mode])
def test_they_are_compared_in_fp32_wherever_a_network_is_first_asked(
    where: Callable[[], AbstractContextManager[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "LIMITS", dict.fromkeys(agreement.LIMITS, 1e-4))
    with where(), torch.autocast(DEVICE, torch.bfloat16):
        agreement.require(torch.device(DEVICE), 16, 16, whole=False, dtype=torch.float32)


def unclipped(real: Callable[..., Any], *args: Any, **more: Any) -> Any:
    return real(*args, **more | {"relu": False})


def unmoved(real: Callable[..., Any], found: Passed, *args: Any, **more: Any) -> Any:
    norm = found.layer.norm
    before = norm.running_mean.clone()  # type: ignore[union-attr]
    out = real(found, *args, **more)
    norm.running_mean.copy_(before)  # type: ignore[union-attr]
    return out


def half_of_a_filter(real: Callable[..., Any], found: Passed, flow: Tensor, into: Gradients) -> Any:
    out = real(found, flow, into)
    into.weights[: len(into.weights) // 2] = 0
    return out


def no_shift(real: Callable[..., Any], found: Passed, flow: Tensor, into: Gradients) -> Any:
    out = real(found, flow, into)
    into.shift.zero_()
    return out


def no_number(real: Callable[..., Any], found: Passed, flow: Tensor, into: Gradients) -> Any:
    out = real(found, flow, into)
    into.scale[0] = torch.nan
    return out


@interpreted
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("module", "kernel", "fault", "said"),
    [
        (forward, "normalise", unclipped, "features of an image"),
        (forward, "normalise", unmoved, "statistics of a layer"),
        (evaluation, "evaluated", unclipped, "features of an image in evaluation"),
        (backward, "filter_gradient", half_of_a_filter, "gradient of a filter"),
        (backward, "filter_gradient", no_shift, "gradients of a batch norm"),
        (backward, "filter_gradient", no_number, "gradients of a batch norm"),
    ],
)
def test_kernels_that_give_other_numbers_are_refused(
    module: Any, kernel: str, fault: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, kernel, partial(fault, getattr(module, kernel)))
    with pytest.raises(PolarbearError, match=f"^{said}: off by"):
        agreement.require(torch.device(DEVICE), 16, 16, whole=False, dtype=torch.float32)


def test_where_kernels_do_not_compile_that_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(fused, "_try_out", fail)
    monkeypatch.setattr(fused, "_has_bf16", lambda device: True)
    fused.works.cache_clear()
    assert not any(fused.works(torch.device("cpu"), 32, 32) for _ in range(3))
    fused.works.cache_clear()
    (said,) = caplog.messages
    assert "PyTorch's layers are used" in said
    assert "Failed to find C compiler" in said


FULL = [
    torch.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("Triton Error [CUDA]: out of memory"),
]


@pytest.mark.parametrize("error", FULL, ids=["PyTorch's", "Triton's"])
def test_memory_that_was_full_once_may_be_free_the_next_time(
    error: RuntimeError, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[object] = []

    def fill(*asked: object) -> None:
        tried.append(asked)
        if len(tried) == 1:
            raise error

    monkeypatch.setattr(fused, "_try_out", fill)
    monkeypatch.setattr(fused, "_has_bf16", lambda device: True)
    fused.works.cache_clear()
    with pytest.raises(type(error), match="out of memory"):
        fused.works(torch.device("cpu"), 32, 32)
    assert fused.works(torch.device("cpu"), 32, 32)
    fused.works.cache_clear()


def test_they_are_tried_where_a_step_must_not_wait_too(monkeypatch: pytest.MonkeyPatch) -> None:
    mode: list[object] = ["error"]
    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: mode[-1])
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", mode.append)
    monkeypatch.setattr(fused, "_try_out", lambda *_: mode.append(f"tried in {mode[-1]}"))
    monkeypatch.setattr(fused, "_has_bf16", lambda device: True)
    fused.works.cache_clear()
    assert fused.works(torch.device("cuda"), 32, 32)
    fused.works.cache_clear()
    assert mode == ["error", "default", "tried in default", "error"]


def test_a_mode_that_is_the_default_already_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    # PyTorch warns of whatever is set; where a warning is an error the kernels would be left out.
    def warn(mode: object) -> None:
        raise UserWarning("Synchronization debug mode is a prototype feature")

    monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: 0)
    monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", warn)
    monkeypatch.setattr(fused, "_try_out", lambda *_: None)
    monkeypatch.setattr(fused, "_has_bf16", lambda device: True)
    fused.works.cache_clear()
    assert fused.works(torch.device("cuda"), 32, 32)
    fused.works.cache_clear()
