"""The kernels for whole images against PyTorch's layers; on a CPU g++ compiles their source."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import emulated_gpu
from polarbear.engine.nets.fused import (
    agreement,
    backward,
    blocks,
    evaluation,
    forward,
    launch,
    means,
    stem,
    whole_images,
    widen,
)
from polarbear.engine.nets.fused import features as fused
from polarbear.engine.nets.fused.launch import Gradients, Layer, Passed
from polarbear.engine.nets.networks import (
    CifarResNet,
    _conv_bn,
    _stages,
    basic_block,
    cifar_resnet,
)

ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"
ROUNDED = 0.004  # how far apart numbers rounded to bfloat16 are at most
UNUSUAL = {"eps": 0.3, "momentum": 0.25}  # so large that leaving one out is seen
SHAPES = [(16, 3), (32, 3), (64, 5)]  # channels, images: the last block of threads is not full

pytestmark = pytest.mark.skipif(
    not ON_GPU and shutil.which("g++") is None, reason="needs a GPU, or g++ to emulate one"
)


@pytest.fixture(autouse=True)
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if ON_GPU and not whole_images.suit_images(torch.device("cuda"), 32, 32):
        pytest.skip("this GPU has less shared memory than an H100")
    if not ON_GPU:
        monkeypatch.setattr(blocks, "compile_kernel", emulated_gpu.compile_kernel)
    blocks._kernel.cache_clear()
    yield
    blocks._kernel.cache_clear()


def maps(channels: int, images: int, seed: int) -> Tensor:
    """Return random maps; what lies behind them in memory is no number."""
    side = 512 // channels
    shape = (images + 4, side, side, channels)
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    made[images:] = float("nan")
    return made.to(torch.bfloat16).to(DEVICE)[:images]


def photos(images: int, seed: int) -> Tensor:
    """Return random images, channels last; what lies behind them in memory is no number."""
    made = torch.randn((images + 4, 32, 32, 3), generator=torch.Generator().manual_seed(seed))
    made[images:] = float("nan")
    return made.to(DEVICE)[:images].permute(0, 3, 1, 2)


def layer(channels: int, seed: int, conv: nn.Conv2d | None = None) -> Layer:
    torch.manual_seed(seed)
    norm = nn.BatchNorm2d(channels, **UNUSUAL)
    for tensor in (norm.weight, norm.running_var):
        assert tensor is not None
        nn.init.uniform_(tensor, 0.5, 1.5)
    for tensor in (norm.bias, norm.running_mean):
        assert tensor is not None
        nn.init.normal_(tensor, 0, 0.3)
    conv = conv or nn.Conv2d(channels, channels, 3, padding=1, bias=False)
    return Layer(conv.to(DEVICE), norm.to(DEVICE))


def sums(first: Tensor, second: Tensor) -> Tensor:
    a, b = (m.float().flatten(0, 2) for m in (first, second))
    return torch.cat([a.sum(0), (a * b).sum(0)])


def passed(of: Layer, source: Tensor, raw: Tensor) -> Passed:
    weights = of.conv.weight.detach().permute(0, 2, 3, 1).contiguous().to(torch.bfloat16)
    return Passed(of, source, raw, weights, sums(raw, raw))


def unwritten(of: Layer, source: Tensor) -> Passed:
    n, side, _, _ = source.shape
    shape = (n, side // of.stride, side // of.stride, of.outputs)
    empty = passed(of, source, source.new_full(shape, float("nan")))
    empty.sums.zero_()
    return empty


def convolved(source: Tensor, weights: Tensor, stride: int = 1) -> Tensor:
    """The plain twin of a convolution of maps, in float32."""
    image, taps = source.float().permute(0, 3, 1, 2), weights.float().permute(0, 3, 1, 2)
    return functional.conv2d(image, taps, stride=stride, padding=taps.shape[2] // 2).permute(
        0, 2, 3, 1
    )


def normed(raw: Tensor, norm: nn.BatchNorm2d, mean: Tensor, variance: Tensor) -> Tensor:
    return (raw.float() - mean) * torch.rsqrt(variance + norm.eps) * norm.weight + norm.bias


def normed_by_batch(raw: Tensor, norm: nn.BatchNorm2d) -> Tensor:
    flat = raw.float().flatten(0, 2)
    return normed(raw, norm, flat.mean(0), flat.var(0, unbiased=False))


def assert_near(found: Tensor, expected: Tensor, limit: float = ROUNDED) -> None:
    """As a part of the expected values' size."""
    found, expected = found.detach().float(), expected.detach().float()
    apart = float((found - expected).norm() / expected.norm())
    assert apart < limit, f"off by {apart}"


@pytest.mark.parametrize(("channels", "images"), SHAPES)
def test_maps_are_convolved_and_summed(channels: int, images: int) -> None:
    source = maps(channels, images, seed=1)
    found = unwritten(layer(channels, seed=2), source)
    blocks.convolve(source, found)
    assert_near(found.raw, convolved(source, found.weights))
    assert_near(found.sums, sums(found.raw, found.raw), 1e-5)


@pytest.mark.parametrize(("channels", "images"), SHAPES)
def test_what_is_convolved_goes_through_the_batch_norm_below(channels: int, images: int) -> None:
    raw = maps(channels, images, seed=1)
    below, found = passed(layer(channels, 2), raw, raw), unwritten(layer(channels, 3), raw)
    moved = moved_twin(below)
    source = normed_by_batch(raw, below.layer.norm).relu().to(torch.bfloat16)
    blocks.convolve_normalised(below, found)
    assert_near(found.raw, convolved(source, found.weights))
    assert_near(found.sums, sums(found.raw, found.raw), 1e-5)
    assert_moved_as(below, moved)


@pytest.mark.parametrize(("channels", "images"), SHAPES)
def test_the_end_of_the_block_before_is_convolved_and_written(channels: int, images: int) -> None:
    raw, past = maps(channels, images, seed=1), maps(channels, images, seed=4)
    below, found = passed(layer(channels, 2), raw, raw), unwritten(layer(channels, 3), raw)
    assert_ended(below, past, past.float(), found)


@pytest.mark.parametrize(("channels", "images"), SHAPES)
def test_the_end_of_a_block_with_a_shortcut_is_convolved_and_written(
    channels: int, images: int
) -> None:
    raw, past_raw = maps(channels, images, seed=1), maps(channels, images, seed=4)
    below, found = passed(layer(channels, 2), raw, raw), unwritten(layer(channels, 3), raw)
    past = passed(layer(channels, 5), past_raw, past_raw)
    moved = moved_twin(past)
    assert_ended(below, past, normed_by_batch(past_raw, past.layer.norm), found)
    assert_moved_as(past, moved)


@pytest.mark.parametrize(("channels", "images"), SHAPES)
def test_what_the_stem_ends_with_is_convolved_and_written(channels: int, images: int) -> None:
    raw = maps(channels, images, seed=1)
    below, found = passed(layer(channels, 2), raw, raw), unwritten(layer(channels, 3), raw)
    assert_ended(below, None, torch.zeros_like(raw), found)


def assert_ended(below: Passed, past: Tensor | Passed | None, added: Tensor, found: Passed) -> None:
    """Convolve the end of a block, where ``added`` is what its past comes to."""
    moved = moved_twin(below)
    source = (normed_by_batch(below.raw, below.layer.norm) + added).relu().to(torch.bfloat16)
    ended = torch.full_like(below.raw, float("nan"))
    blocks.convolve_ended(below, past, ended, found)
    assert_near(ended, source)
    assert_near(found.raw, convolved(source, found.weights))
    assert_near(found.sums, sums(found.raw, found.raw), 1e-5)
    assert_moved_as(below, moved)


def moved_twin(found: Passed) -> nn.BatchNorm2d:
    """Return PyTorch's batch norm, which has seen what a layer leaves."""
    twin = nn.BatchNorm2d(found.layer.outputs, **UNUSUAL).to(DEVICE)
    twin.load_state_dict(found.layer.norm.state_dict())
    twin(found.raw.float().permute(0, 3, 1, 2))
    return twin


def assert_moved_as(found: Passed, twin: nn.BatchNorm2d) -> None:
    norm = found.layer.norm
    assert norm.running_mean is not None
    assert norm.running_var is not None
    torch.testing.assert_close(norm.running_mean, twin.running_mean)
    torch.testing.assert_close(norm.running_var, twin.running_var)


def passed_stem(images: Tensor, raw: Tensor) -> Passed:
    torch.manual_seed(1)
    of = layer(16, 2, nn.Conv2d(3, 16, 3, padding=1, bias=False))
    pixels = images.permute(0, 2, 3, 1)
    assert stem.suit(of, pixels)
    padded = functional.pad(of.conv.weight.detach(), (0, 0, 0, 0, 0, 1))
    weights = padded.permute(0, 2, 3, 1).contiguous().to(torch.bfloat16)
    return Passed(of, stem.as_read(pixels), raw, weights, sums(raw, raw))


@pytest.mark.parametrize("kind", ["channels last", "planes", "bfloat16"])
def test_images_are_convolved_and_summed(kind: str) -> None:
    images = photos(3, seed=1)
    given = images.contiguous() if kind == "planes" else images
    given = given.to(torch.bfloat16) if kind == "bfloat16" else given
    found = passed_stem(given, torch.zeros_like(maps(16, 3, seed=1)))
    assert (found.source.data_ptr() == images.data_ptr()) == (kind == "channels last")
    found.raw.fill_(float("nan"))
    stem.convolve(found)
    rounded = images.permute(0, 2, 3, 1).to(torch.bfloat16)
    assert_near(found.raw, convolved(rounded, found.weights[..., :3]))
    assert_near(found.sums, sums(found.raw, found.raw), 1e-5)


def test_gradients_of_the_stem_are_pytorchs() -> None:
    images, raw, gradient = photos(3, seed=1), maps(16, 3, seed=2), maps(16, 3, seed=3)
    here = passed_stem(images, raw)
    unset = torch.full((16,), float("nan"), device=DEVICE)
    parts = torch.full_like(stem.parts_of_filter(here), float("nan"))
    into = Gradients(sums(gradient, raw), parts[0], unset.clone(), unset)
    stem.back(here, gradient, into)
    flow, scale, shift = back_through_norm(raw, gradient, here.layer.norm)
    weights = here.weights[..., :3].float().requires_grad_()
    rounded = images.permute(0, 2, 3, 1).to(torch.bfloat16)
    (of_weights,) = torch.autograd.grad(
        (convolved(rounded, weights) * flow.to(torch.bfloat16).float()).sum(), weights
    )
    assert_near(parts.sum(1).view(16, 3, 3, 4)[..., :3], of_weights, 1e-3)
    assert_near(into.scale, scale, 1e-5)
    assert_near(into.shift, shift, 1e-5)


def test_features_are_the_means_of_the_last_end() -> None:
    raw, past = maps(64, 5, seed=1), maps(64, 5, seed=2)
    last = passed(layer(64, 3), raw, raw)
    assert means.suit(last)
    moved = moved_twin(last)
    found = means.of_end(last, past)
    end = (normed_by_batch(raw, last.layer.norm) + past.float()).to(torch.bfloat16)
    assert_near(found, end.float().mean(dim=(1, 2)))
    assert_moved_as(last, moved)


@pytest.mark.parametrize("start", [0, 3])
def test_gradients_of_features_are_spread_and_summed(start: int) -> None:
    raw = maps(64, 5, seed=1)
    gradient = torch.randn(start + 5 * 64).to(torch.bfloat16).to(DEVICE)[start:].view(5, 64)
    last, into = passed(layer(64, 3), raw, raw), torch.ones(128, device=DEVICE)
    found = means.back(last, gradient, into)
    expected = (gradient.float() / 64).to(torch.bfloat16)[:, None, None, :].expand(raw.shape)
    assert torch.equal(found, expected)
    assert_near(into, 1 + sums(found, raw), 1e-5)


def back_through_norm(
    raw: Tensor, gradient: Tensor, norm: nn.BatchNorm2d
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of what a batch norm reads, of its scale and of its shift."""
    unnormed = raw.float().requires_grad_()
    out = (normed_by_batch(unnormed, norm) * gradient.float()).sum()
    flow, scale, shift = torch.autograd.grad(out, (unnormed, norm.weight, norm.bias))
    return flow, scale, shift


@pytest.mark.parametrize("relu", [True, False])
@pytest.mark.parametrize("added", [True, False])
@pytest.mark.parametrize(("channels", "images"), SHAPES)
def test_evaluation_norms_by_the_running_statistics(
    channels: int, images: int, added: bool, relu: bool
) -> None:
    source, more = maps(channels, images, seed=1), maps(channels, images, seed=4)
    asked = passed(layer(channels, 2), source, source)
    norm = asked.layer.norm
    assert norm.running_mean is not None
    assert norm.running_var is not None
    expected = normed(
        convolved(source, asked.weights).to(torch.bfloat16),
        norm,
        norm.running_mean,
        norm.running_var,
    )
    expected = expected + more.float() if added else expected
    found = blocks.evaluated(asked.layer, asked.weights, source, more if added else None, relu=relu)
    assert_near(found, expected.relu() if relu else expected)


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(("channels", "images"), SHAPES)
def test_gradients_are_pytorchs(channels: int, images: int, first: bool) -> None:
    raw, gradient, below_raw, more = (maps(channels, images, seed) for seed in (1, 2, 3, 4))
    below = passed(layer(channels, 5), below_raw, below_raw)
    here = passed(layer(channels, 6), below_raw, raw)
    into, below_sums = room(here, sums(gradient, raw)), torch.zeros(2 * channels, device=DEVICE)
    activations = maps(channels, images, seed=7).relu() if first else None
    found = blocks.back(
        here, gradient, into, below, below_sums, activations, more if first else None
    )
    if activations is None:
        activations = normed_by_batch(below_raw, below.layer.norm).relu().to(torch.bfloat16)
    flow, scale, shift = back_through_norm(raw, gradient, here.layer.norm)
    source = activations.detach().float().requires_grad_()
    weights = here.weights.float().requires_grad_()
    out = (convolved(source, weights) * flow.to(torch.bfloat16).float()).sum()
    expected, of_weights = torch.autograd.grad(out, (source, weights))
    expected = expected + more.float() if first else expected
    assert_near(found, torch.where(activations > 0, expected, 0.0))
    assert_near(below_sums, sums(found, below_raw), 1e-5)
    assert_near(into.weights.sum(0).view_as(weights), of_weights, 1e-3)
    assert_near(into.scale, scale, 1e-5)
    assert_near(into.shift, shift, 1e-5)


def room(of: Passed, gradient_sums: Tensor) -> Gradients:
    parts = torch.full_like(blocks.parts_of_filters([of])[0], float("nan"))
    unset = torch.full((of.layer.outputs,), float("nan"), device=DEVICE)
    return Gradients(gradient_sums, parts, unset.clone(), unset)


WIDENED = [(16, 3), (32, 5)]  # the last block of threads is not full, forwards and backwards


def widening(channels: int) -> list[Layer]:
    """Return the first layer of a wider stage and its shortcut."""
    torch.manual_seed(channels)
    wide = 2 * channels
    first = nn.Conv2d(channels, wide, 3, 2, padding=1, bias=False)
    return [
        layer(wide, 8, first),
        layer(wide, 9, nn.Conv2d(channels, wide, 1, 2, bias=False)),
    ]


def assert_all_near(found: Tensor, expected: Tensor, limit: float = ROUNDED) -> None:
    """Near as a whole, and no number far off: one that is wrong is lost in the size of all."""
    assert_near(found, expected, limit)
    found, expected = found.detach().float(), expected.detach().float()
    # Twice as far: some are rounded twice.
    assert float((found - expected).abs().max()) < 2 * limit * float(expected.abs().max())


def assert_widened(source: Tensor, found: list[Passed]) -> None:
    for one in found:
        assert_all_near(one.raw, convolved(source, one.weights, 2))
        assert_near(one.sums, sums(one.raw, one.raw), 1e-5)


@pytest.mark.parametrize(("channels", "images"), WIDENED)
def test_maps_are_widened_by_both_layers(channels: int, images: int) -> None:
    source = maps(channels, images, seed=1)
    found = [unwritten(one, source) for one in widening(channels)]
    widen.convolve(source, *found)
    assert_widened(source, found)


@pytest.mark.parametrize(("channels", "images"), WIDENED)
def test_the_end_of_the_block_before_is_widened_and_written(channels: int, images: int) -> None:
    raw, past = maps(channels, images, seed=1), maps(channels, images, seed=4)
    below = passed(layer(channels, 2), raw, raw)
    found = [unwritten(one, raw) for one in widening(channels)]
    twin = nn.BatchNorm2d(channels, **UNUSUAL).to(DEVICE)
    twin.load_state_dict(below.layer.norm.state_dict())
    normed = twin(raw.float().permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
    ended = torch.full_like(raw, float("nan"))
    widen.convolve_ended(below, past, ended, *found)
    assert_all_near(ended, (normed + past.float()).relu())
    assert_widened(ended, found)
    norm = below.layer.norm
    assert norm.running_mean is not None
    assert norm.running_var is not None
    torch.testing.assert_close(norm.running_mean, twin.running_mean)
    torch.testing.assert_close(norm.running_var, twin.running_var)


@pytest.mark.parametrize(("channels", "images"), WIDENED)
def test_gradients_of_both_layers_are_pytorchs(channels: int, images: int) -> None:
    activations, below_raw = maps(channels, images, seed=1).relu(), maps(channels, images, seed=2)
    below = passed(layer(channels, 5), below_raw, below_raw)
    below_sums = torch.zeros(2 * channels, device=DEVICE)
    raws = [maps(2 * channels, images, seed) for seed in (3, 4)]
    gradients = [maps(2 * channels, images, seed) for seed in (5, 6)]
    layers = widening(channels)
    here = [passed(one, activations, raw) for one, raw in zip(layers, raws, strict=True)]
    parts = torch.full_like(widen.parts_of_filters(here[0]), float("nan"))
    unset = torch.full((2, 2, 2 * channels), float("nan"), device=DEVICE)
    into = [
        Gradients(sums(gradient, raw), parts, *norms)
        for gradient, raw, norms in zip(gradients, raws, unset, strict=True)
    ]
    found = widen.back(
        *here, (gradients[0], gradients[1]), (into[0], into[1]), parts, below, below_sums
    )
    total = torch.zeros_like(found, dtype=torch.float32)
    for one, gradient, filled, of_filter in zip(
        here, gradients, into, widen.filters_of(parts), strict=True
    ):
        norm, unnormed = one.layer.norm, one.raw.float().requires_grad_()
        out = (normed_by_batch(unnormed, norm) * gradient.float()).sum()
        flow, scale, shift = torch.autograd.grad(out, (unnormed, norm.weight, norm.bias))
        source, weights = activations.float().requires_grad_(), one.weights.float().requires_grad_()
        out = (convolved(source, weights, 2) * flow.to(torch.bfloat16).float()).sum()
        expected, of_weights = torch.autograd.grad(out, (source, weights))
        total += expected
        assert_all_near(of_filter.view_as(weights), of_weights, 1e-3)
        assert_near(filled.scale, scale, 1e-5)
        assert_near(filled.shift, shift, 1e-5)
    assert_all_near(found, torch.where(activations > 0, total, 0.0))
    assert_near(below_sums, sums(found, below_raw), 1e-5)


def test_a_channel_of_one_value_has_no_variance() -> None:
    raw = maps(16, 2, seed=1)
    raw[..., 3] = 1000.0
    below, found = passed(layer(16, 2), raw, raw), unwritten(layer(16, 3), raw)
    below.sums[16 + 3] *= 1 - 1e-6  # as rounding may leave it, below the square of the mean
    running = below.layer.norm.running_var
    assert running is not None
    before = running.clone()
    blocks.convolve_normalised(below, found)
    assert found.raw.isfinite().all()
    torch.testing.assert_close(running[3], (1 - UNUSUAL["momentum"]) * before[3])


def through(net: nn.Module, batch: Tensor, goal: Tensor) -> list[Tensor]:
    """Return what a network gives, then its statistics and its gradients."""
    parameters = [*net.parameters()]
    trained, ends = fused.features(net, batch), fused.maps(net, batch)
    gradients = torch.autograd.grad((trained.float() * goal).sum(), parameters)
    # About a half: about their mean, a shift of the last batch norm has no gradient.
    wanted = torch.stack([(one.float() - 0.5).square().mean() for one in ends]).sum()
    of_maps = torch.autograd.grad(wanted, parameters)
    moved = [b.clone() for b in net.buffers() if b.is_floating_point()]
    with torch.no_grad():
        asked, asked_maps = fused.features(net.eval(), batch), fused.maps(net, batch)
    return [trained, asked, *ends, *asked_maps, *moved, *gradients, *of_maps]


@pytest.fixture
def twins(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (forward, backward, evaluation):
        for name in TWINS.keys() & vars(module).keys():
            monkeypatch.setattr(module, name, TWINS[name])


def listed(name: str, shared: int, compiled: Callable[..., Any] = blocks.compiled) -> Any:
    """A kernel that is not listed would be compiled late, perhaps amid a capture."""
    assert (name, shared) in [*whole_images.kernels()]
    return compiled(name, shared)


def use_whole_images(monkeypatch: pytest.MonkeyPatch, use: bool) -> None:
    monkeypatch.setattr(whole_images, "work", lambda *size: use)
    monkeypatch.setattr(blocks, "compiled", listed)


@pytest.mark.usefixtures("twins")
@pytest.mark.skipif(ON_GPU, reason="emulated where there is no GPU")
# Of stem, wider stages and features, forwards, backwards and in evaluation. A stage's only block
# has no layer that reads what another of that width has left, but for the first stage's.
@pytest.mark.parametrize(
    ("size", "kernels"),
    [
        (1, 2 + 5 + 1 + (2 + 1 + 1) + (2 + 1 + 1) + (3 + 2 + 1)),
        (2, 2 + 6 + 2 + (3 + 2 + 2) + 3 * 2 + 3 * 3),
    ],
)
def test_a_network_trains_and_is_evaluated_as_layer_by_layer(
    size: int, kernels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    batch, goal = torch.randn(3, 3, 32, 32), torch.randn(3, 64)
    found = []
    for whole in (False, True):
        use_whole_images(monkeypatch, whole)
        torch.manual_seed(1)
        found.append(through(cifar_resnet(size), batch, goal))
    assert blocks._kernel.cache_info().misses == kernels, "all kernels of the network"
    # What lies between two numbers is rounded either way, and with three images a ReLU that turns
    # with it moves a gradient far: images brighter by a thousandth move it twice as far.
    for i, (expected, ours) in enumerate(zip(*found, strict=True)):
        assert_near(ours, expected, 0.02 if i < 8 else 0.3)


@pytest.mark.usefixtures("twins")
@pytest.mark.skipif(ON_GPU, reason="emulated where there is no GPU")
@pytest.mark.parametrize("where", ["an image", "a filter"])
def test_what_is_no_number_is_seen_in_the_features(
    where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_whole_images(monkeypatch, True)
    torch.manual_seed(0)
    net, batch = cifar_resnet(2), torch.randn(2, 3, 32, 32)
    broken = batch[0, 0] if where == "an image" else [*net.parameters()][3].data[0, 0]
    broken[0, 0] = torch.nan
    assert not fused.features(net, batch).isfinite().any()
    fresh = cifar_resnet(2).eval()  # whose running statistics are numbers
    with torch.no_grad():
        [*fresh.parameters()][3].copy_([*net.parameters()][3])
        assert fused.features(fresh, batch).isfinite().all(1).tolist() == [
            False,
            where == "an image",
        ]


@pytest.mark.usefixtures("twins")
@pytest.mark.skipif(ON_GPU, reason="emulated where there is no GPU")
def test_a_gradient_of_maps_may_lie_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    use_whole_images(monkeypatch, True)
    torch.manual_seed(0)
    net, batch = cifar_resnet(1), torch.randn(2, 3, 32, 32)

    def gradients(before: int) -> tuple[Tensor, ...]:
        last = fused.maps(net, batch)[-1].permute(0, 2, 3, 1).flatten()
        wanted = torch.cat([last.new_zeros(before), last]).float()
        return torch.autograd.grad(wanted.square().sum(), [*net.parameters()])

    for found, expected in zip(gradients(before=1), gradients(before=0), strict=True):
        assert torch.equal(found, expected)


@pytest.mark.usefixtures("twins")
@pytest.mark.skipif(ON_GPU, reason="emulated where there is no GPU")
def test_images_of_inference_mode_may_change_before_the_way_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_whole_images(monkeypatch, True)
    torch.manual_seed(0)
    net = cifar_resnet(1)
    found = []
    for factor in (1, 0):
        with torch.inference_mode():
            batch = photos(2, seed=1).clone(memory_format=torch.channels_last)
        features = fused.features(net, batch)
        with torch.inference_mode():
            batch.mul_(factor)
        found.append(torch.autograd.grad(features.float().square().sum(), [*net.parameters()]))
    for changed, unchanged in zip(*found, strict=True):
        assert torch.equal(changed, unchanged)


@pytest.mark.skipif(ON_GPU, reason="emulated where there is no GPU")
@pytest.mark.parametrize("short", ["what is read", "what is written"])
def test_what_strays_past_a_tensor_is_noticed(short: str) -> None:
    raw, past = maps(16, 2, seed=1), maps(16, 2, seed=4)
    below, found = passed(layer(16, 2), raw, raw), unwritten(layer(16, 3), raw)
    if short == "what is read":
        past = past[:1].clone()
    else:
        found = replace(found, raw=found.raw[:1].clone())
    with pytest.raises(RuntimeError, match="access outside of all tensors"):
        blocks.convolve_ended(below, past, torch.empty_like(raw), found)


@pytest.mark.usefixtures("twins")
@pytest.mark.skipif(ON_GPU, reason="emulated where there is no GPU")
def test_layers_of_other_widths_and_sizes_are_left_to_tritons_kernels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stages = _stages(basic_block, 16, ((32, 1, 1), (64, 1, 2)))
    stages[-1].relu_after = False
    layers = [_conv_bn(3, 16, 3), nn.ReLU(inplace=True), *stages]
    net = CifarResNet(layers, 64, ends=(2,))
    assert fused.is_as_built(net)
    batch = torch.randn(2, 3, 32, 32)
    use_whole_images(monkeypatch, True)
    with torch.no_grad():
        found = fused.features(net.eval(), batch)
    assert_near(found, net(batch), 0.02)
    assert blocks._kernel.cache_info().misses == 0


@pytest.fixture
def tried(twins: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A GPU that suits, on which few images are compared: emulating takes long."""
    monkeypatch.setattr(whole_images, "suit_images", lambda *size: True)
    monkeypatch.setattr(agreement, "build_backbone", lambda *_: through_seed(cifar_resnet, 2))
    monkeypatch.setattr(agreement, "IMAGES", 3)
    whole_images.work.cache_clear()
    yield
    whole_images.work.cache_clear()


def through_seed(build: Callable[[int], nn.Module], size: int) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build(size)


@pytest.mark.usefixtures("tried")
@pytest.mark.skipif(ON_GPU, reason="emulated where there is no GPU")
def test_all_kernels_are_tried_and_no_random_number_is_drawn() -> None:
    state = torch.get_rng_state()
    assert whole_images.work(torch.device("cpu"), 32, 32)
    assert torch.equal(torch.get_rng_state(), state)
    assert blocks._kernel.cache_info().misses == 24 + 2 + 3 + 2 + 6


# Kernels, what they have, what takes its place, and what is seen of that.
FAULTS = [
    ("forward<64, JOINED", "relu(first)", "first", "features of an image"),
    ("forward<16, NORMALISED", "+= momentum", "+= 0 * momentum", "statistics of a layer"),
    ("evaluate<16, true, true", "if (CLIP)", "if (false)", "features of an image in evaluation"),
    (
        "backward<32, true",
        "multiply(total[2][x], values, here[0], here[1])",
        ";",
        "gradient of a filter",
    ),
    (
        "backward<64, false",
        "shift_gradient[c] = ",
        "shift_gradient[c] = -",
        "gradients of a batch norm",
    ),
]


@pytest.mark.usefixtures("tried")
@pytest.mark.skipif(ON_GPU, reason="emulated where there is no GPU")
@pytest.mark.parametrize(("kernel", "right", "wrong", "said"), FAULTS)
def test_a_kernel_that_gives_other_numbers_is_not_used(
    kernel: str,
    right: str,
    wrong: str,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def compile_wrongly(source: str, name: str) -> object:
        assert right in source
        changed = source.replace(right, wrong) if name.startswith(kernel) else source
        return emulated_gpu.compile_kernel(changed, name)

    monkeypatch.setattr(blocks, "compile_kernel", compile_wrongly)
    assert not whole_images.work(torch.device("cpu"), 32, 32)
    assert f"so slower ones are used: PolarbearError: {said}: off by" in caplog.text


@pytest.mark.usefixtures("tried")
@pytest.mark.skipif(ON_GPU, reason="emulated where there is no GPU")
def test_where_they_do_not_compile_it_is_said_once_and_tritons_are_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(source: str, name: str) -> object:
        raise RuntimeError("no such instruction")

    monkeypatch.setattr(blocks, "compile_kernel", fail)
    assert not any(whole_images.work(torch.device("cpu"), 32, 32) for _ in range(2))
    assert len(caplog.messages) == 1
    assert "so slower ones are used: RuntimeError: no such instruction" in caplog.text


@pytest.mark.usefixtures("tried")
@pytest.mark.skipif(ON_GPU, reason="emulated where there is no GPU")
def test_a_gpu_that_is_full_as_they_are_loaded_may_have_room_the_next_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fill(source: str, name: str) -> object:
        raise RuntimeError("CUDA error: out of memory")  # as the driver says it

    with monkeypatch.context() as full:
        full.setattr(blocks, "compile_kernel", fill)
        with pytest.raises(RuntimeError, match="out of memory"):
            whole_images.work(torch.device("cpu"), 32, 32)
    monkeypatch.setattr(whole_images, "try_out", lambda device: None)
    assert whole_images.work(torch.device("cpu"), 32, 32)


# Triton's kernels do the other layers. They cannot be interpreted in bfloat16.


def gradient_of(out: Tensor, of: Tensor) -> Tensor:
    (found,) = torch.autograd.grad(out, of)
    return found


def twin_convolve(
    source: Tensor, weights: Tensor, out: Tensor, stride: int = 1, **more: Any
) -> None:
    if more.get("backward"):
        # The gradient lies between zeros already, so that a stride is none.
        with torch.enable_grad():
            there = torch.zeros_like(out, dtype=torch.float32).requires_grad_()
            total = gradient_of((convolved(there, weights) * source.float()).sum(), there)
        total = total if more.get("added") is None else total + more["added"].float()
        total = total if more.get("activations") is None else total * (more["activations"] > 0)
        other = more.get("raw")
    else:
        total, other = convolved(source, weights, stride), out
    out.copy_(total)
    if more.get("sums") is not None:
        assert other is not None
        more["sums"].add_(sums(out, other))


def twin_normalise(found: Passed, added: Tensor | Passed | None, *, relu: bool) -> Tensor:
    def through(one: Passed) -> Tensor:
        norm, raw = one.layer.norm, one.raw.float().permute(0, 3, 1, 2)
        assert norm.momentum is not None
        return functional.batch_norm(
            *(raw, norm.running_mean, norm.running_var, norm.weight, norm.bias, True),
            *(norm.momentum, norm.eps),
        ).permute(0, 2, 3, 1)

    total = through(found)
    if added is not None:
        total = total + (through(added) if isinstance(added, Passed) else added.float())
    return (total.relu() if relu else total).detach().to(torch.bfloat16).contiguous()


def twin_sum_gradient(gradient: Tensor, raw: Tensor, into: Tensor) -> None:
    into.add_(sums(gradient, raw))


def twin_filter_gradient(found: Passed, gradient: Tensor, into: Gradients) -> Tensor:
    norm, stride = found.layer.norm, found.layer.stride
    with torch.enable_grad():
        raw = found.raw.float().requires_grad_()
        out = (normed_by_batch(raw, norm) * gradient.float()).sum()
        back, scale, shift = torch.autograd.grad(out, (raw, norm.weight, norm.bias))
        flow, weights = back.to(torch.bfloat16), found.weights.float().requires_grad_()
        out = (convolved(found.source, weights, stride) * flow.float()).sum()
        into.weights.copy_(gradient_of(out, weights).flatten())
    into.scale.copy_(scale)
    into.shift.copy_(shift)
    n, height, width, outputs = flow.shape
    spread = flow.new_zeros(n, height * stride, width * stride, outputs)
    spread[:, ::stride, ::stride] = flow
    return spread


def twin_evaluated(
    one: Layer, weights: Tensor, source: Tensor, added: Tensor | None = None, *, relu: bool
) -> Tensor:
    norm = one.norm
    assert norm.running_mean is not None
    assert norm.running_var is not None
    total = normed(
        convolved(source, weights, one.stride), norm, norm.running_mean, norm.running_var
    )
    total = total if added is None else total + added.float()
    return (total.relu() if relu else total).to(torch.bfloat16).contiguous()


TWINS: dict[str, Callable[..., Any]] = {
    "convolve": twin_convolve,
    "normalise": twin_normalise,
    "sum_gradient": twin_sum_gradient,
    "filter_gradient": twin_filter_gradient,
    "evaluated": twin_evaluated,
}
assert all(hasattr(launch, name) for name in TWINS)
