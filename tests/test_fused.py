"""The fused kernels against PyTorch's own layers: exact on a CPU, where they are interpreted."""

import copy
import os
from importlib.util import find_spec

import pytest
import torch
from torch import Tensor, nn

ON_GPU = torch.cuda.is_available()
if not ON_GPU:
    os.environ["TRITON_INTERPRET"] = "1"  # read when Triton is imported

from polarbear.engine import fused
from polarbear.engine.heads import LinearHead
from polarbear.engine.model import Model
from polarbear.engine.nets import build_backbone, cifar_resnet

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


def images(count: int) -> Tensor:
    torch.manual_seed(1)
    return torch.randn(count, 3, SIDE, SIDE, device=DEVICE)


def apart(found: Tensor, expected: Tensor) -> float:
    """How far off, as a part of the expected values' size."""
    return float((found.detach().float() - expected.detach()).norm() / expected.detach().norm())


def train_both(count: int, dtype: torch.dtype) -> tuple[nn.Module, nn.Module, float]:
    """Give two equal networks after a backward pass, PyTorch's and ours, and their distance."""
    plain = network().train()
    ours = copy.deepcopy(plain)
    batch, goal = images(count), torch.randn(count, 64, device=DEVICE)
    expected = plain(batch)
    (expected * goal).sum().backward()
    found = fused.features(ours, batch, dtype)
    (found.float() * goal).sum().backward()
    return plain, ours, apart(found, expected)


@interpreted
@pytest.mark.parametrize("count", [2, 3])
def test_features_gradients_and_statistics_are_pytorchs(count: int) -> None:
    plain, ours, distance = train_both(count, torch.float32)
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
def test_evaluation_uses_the_running_statistics_and_leaves_them() -> None:
    net, batch = network().eval(), images(3)
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    with torch.no_grad():
        assert apart(fused.features(net, batch, torch.float32), net(batch)) < 1e-5
    assert all(torch.equal(tensor, before[name]) for name, tensor in net.state_dict().items())


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
def test_in_bfloat16_it_is_as_near_to_fp32_as_autocast_is() -> None:
    _, _, ours = train_both(3, torch.bfloat16)
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


@pytest.mark.skipif(not ON_GPU, reason="needs a GPU")
def test_on_a_gpu_in_bf16_the_kernels_are_used() -> None:
    backbone, batch = network().train(), torch.randn(2, 3, 32, 32, device=DEVICE)
    with torch.autocast("cuda", torch.bfloat16):
        assert fused.suits(backbone, batch)
        assert not fused.suits(build_backbone("small", 0), batch)
        backbone.eval()
        assert not fused.suits(backbone, batch), "gradients in evaluation are PyTorch's"
