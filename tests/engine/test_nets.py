"""Networks: sizes that are known, weights by seed, and networks of one's own."""

import sys
import types
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from polarbear.base.errors import PolarbearError, UnknownNameError
from polarbear.engine.nets.fused import features as fused
from polarbear.engine.nets.heads import LinearHead
from polarbear.engine.nets.model import Model, weights_are_finite
from polarbear.engine.nets.networks import (
    NETWORKS,
    Pooled,
    Residual,
    build_backbone,
    feature_width,
    refuse_bad_features,
)


def parameters(*modules: nn.Module) -> int:
    return sum(p.numel() for m in modules for p in m.parameters())


def blocks(net: nn.Module) -> list[Residual]:
    return [m for m in net.modules() if isinstance(m, Residual)]


def same_weights(a: nn.Module, b: nn.Module) -> bool:
    pairs = zip(a.state_dict().values(), b.state_dict().values(), strict=True)
    return all(torch.equal(x, y) for x, y in pairs)


def test_resnet32_has_the_published_number_of_parameters() -> None:
    assert parameters(build_backbone("resnet32", 0), LinearHead(64, 115)) == 473_731


@pytest.mark.parametrize(("name", "count"), [("resnet18", 11_689_512), ("resnet50", 25_557_032)])
def test_imagenet_resnets_have_the_known_number_of_parameters(name: str, count: int) -> None:
    net = build_backbone(name, 0)
    assert parameters(net, LinearHead(feature_width(net), 1000)) == count


@pytest.mark.parametrize("layers", [20, 32, 44, 56])
def test_a_cifar_resnet_has_as_many_layers_as_its_name_says(layers: int) -> None:
    net = build_backbone(f"resnet{layers}", 0)
    wide = [m for m in net.modules() if isinstance(m, nn.Conv2d) and m.kernel_size == (3, 3)]
    assert len(wide) + 1 == layers
    assert feature_width(net) == 64


def test_only_the_last_block_of_a_cifar_resnet_has_no_relu() -> None:
    net = build_backbone("resnet20", 0)
    assert [b.relu_after for b in blocks(net)] == [True] * 8 + [False]
    assert (net.eval()(torch.randn(4, 3, 32, 32)) < 0).any()


def test_imagenet_features_are_never_negative() -> None:
    features = build_backbone("resnet18", 0).eval()(torch.randn(2, 3, 64, 64))
    assert (features >= 0).all()
    assert features.shape == (2, 512)


def test_the_input_of_a_block_is_projected_only_where_the_shape_changes() -> None:
    cifar = [isinstance(b.shortcut, nn.Sequential) for b in blocks(build_backbone("resnet20", 0))]
    assert cifar == [False] * 3 + [True, False, False] * 2
    fifty = [isinstance(b.shortcut, nn.Sequential) for b in blocks(build_backbone("resnet50", 0))]
    assert [i for i, projected in enumerate(fifty) if projected] == [0, 3, 7, 13]


def test_a_bottleneck_strides_in_its_3x3() -> None:
    block = blocks(build_backbone("resnet50", 0))[3]
    strides = [m.stride[0] for m in block.layers.modules() if isinstance(m, nn.Conv2d)]
    assert strides == [1, 2, 1]


def test_a_residual_block_adds_its_input() -> None:
    block = Residual([nn.Conv2d(4, 4, 1, bias=False)], 4, 4, 1)
    maps = torch.randn(2, 4, 5, 5)
    total = block.layers(maps) + maps
    torch.testing.assert_close(block(maps), total.clamp(min=0))
    block.relu_after = False
    torch.testing.assert_close(block(maps), total)


def test_features_are_the_mean_over_all_places() -> None:
    maps = torch.randn(2, 3, 8, 6)
    torch.testing.assert_close(Pooled([nn.Identity()], 3)(maps), maps.flatten(2).mean(2))


@pytest.mark.parametrize(
    ("name", "fan", "kernels"), [("resnet32", 32 * 9, (64, 32)), ("resnet18", 512 * 9, (512, 256))]
)
def test_convolutions_start_kaiming_normal(name: str, fan: int, kernels: tuple[int, int]) -> None:
    # These layers double the channels: fan-in (ResNet-32) and fan-out (ResNet-18) are told apart.
    convs = [m for m in build_backbone(name, 3).modules() if isinstance(m, nn.Conv2d)]
    found = [m.weight for m in convs if m.kernel_size == (3, 3) and m.weight.shape[:2] == kernels]
    weights = torch.cat([w.detach().flatten() for w in found])
    assert weights.std().item() == pytest.approx((2 / fan) ** 0.5, rel=0.02)
    assert (weights / weights.std()).pow(4).mean().item() == pytest.approx(3, rel=0.05)


@pytest.mark.parametrize("side", [16, 32, 64])
def test_small_takes_images_of_many_sizes_and_stays_small(side: int) -> None:
    net = build_backbone("small", 0)
    assert 50_000 < parameters(net) < 100_000
    assert net(torch.randn(2, 3, side, side)).shape == (2, feature_width(net))


def test_one_image_with_one_value_a_channel_can_be_trained_on() -> None:
    net = build_backbone("small", seed=0).train()
    before = [buffer.clone() for buffer in net.buffers()]
    net(torch.rand(1, 3, 16, 16)).sum().backward()
    last = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)][-1]
    assert last.weight.grad is not None
    assert last.weight.grad.isfinite().all()
    # The layers with several places a channel have learned from it, the last one has not.
    moved = [not torch.equal(a, b) for a, b in zip(before, net.buffers(), strict=True)]
    assert any(moved)
    assert last.running_mean is not None
    assert not last.running_mean.any()


class Weights(nn.Module):
    """Weights of several kinds, with one value among the last of them."""

    def __init__(self, value: float, kind: torch.dtype, size: int) -> None:
        super().__init__()
        self.large = nn.Parameter(torch.tensor([3e38, -3e38]))
        self.none = nn.Parameter(torch.empty(0, 4))
        self.whole = nn.Parameter(torch.arange(3), requires_grad=False)
        self.last = nn.Parameter(torch.zeros(size, dtype=kind))
        self.last.data[-1] = value
        self.register_buffer("mask", torch.tensor([0.0, float("-inf")]))


@pytest.mark.parametrize("device", ["cpu", *(["cuda"] if torch.cuda.is_available() else [])])
@pytest.mark.parametrize("size", [1, 8, 70_001])
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16, torch.float64])
def test_one_weight_among_all_that_is_no_number_is_found(
    device: str, size: int, kind: torch.dtype
) -> None:
    for value in (float("nan"), float("inf"), float("-inf"), -1.0):
        weights = Weights(value, kind, size).to(device)
        finite = weights_are_finite(nn.Linear(2, 3, device=device), weights)
        assert finite.item() == (value == -1.0)
    norm = nn.BatchNorm2d(4, device=device)
    assert weights_are_finite(norm)
    norm.running_var[1] = float("nan")
    assert not weights_are_finite(norm)


@pytest.mark.parametrize(
    "network", [nn.Identity(), nn.ParameterList([torch.empty(0)]), nn.BatchNorm2d(0)]
)
def test_where_there_is_no_weight_none_is_infinite(network: nn.Module) -> None:
    assert weights_are_finite(network).item() is True
    assert weights_are_finite(network, nn.Linear(2, 3)).item() is True


def test_small_can_learn() -> None:
    torch.manual_seed(0)
    images, labels = torch.randn(64, 3, 16, 16), torch.arange(64) % 4
    images[:, 0] += labels[:, None, None] % 2
    images[:, 1] += labels[:, None, None] // 2
    model = nn.Sequential(build_backbone("small", 0), nn.Linear(128, 4))
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(20):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimiser.step()
    assert (model(images).argmax(1) == labels).float().mean() > 0.95


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_a_seed_gives_the_same_weights_and_leaves_the_global_state_alone(name: str) -> None:
    before = torch.get_rng_state()
    first, again, other = (build_backbone(name, seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert same_weights(first, again)
    assert not same_weights(first, other)


# The maps inside.

SHAPES = {
    "small": [(16, 16), (32, 8), (48, 4), (128, 2)],
    "resnet20": [(16, 32), (32, 16), (64, 8)],
    "resnet32": [(16, 32), (32, 16), (64, 8)],
    "resnet18": [(64, 8), (128, 4), (256, 2), (512, 1)],
    "resnet50": [(256, 8), (512, 4), (1024, 2), (2048, 1)],
}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", sorted(SHAPES))
def test_maps_are_those_on_the_way_to_the_same_features(name: str, training: bool) -> None:
    net = build_backbone(name, 0).train(training)
    images = torch.randn(3, 3, 32, 32)
    before = {key: tensor.clone() for key, tensor in net.state_dict().items()}
    plain = net(images)
    moved = {key: tensor.clone() for key, tensor in net.state_dict().items()}
    net.load_state_dict(before)
    maps = net.maps(images)
    torch.testing.assert_close(maps[-1].mean(dim=(2, 3)), plain)
    assert [tuple(one.shape) for one in maps] == [(3, c, side, side) for c, side in SHAPES[name]]
    assert all((one < 0).any() for one in maps[:-1])  # before the ReLU
    for key, tensor in net.state_dict().items():
        torch.testing.assert_close(tensor, moved[key], msg=key)


@pytest.mark.parametrize("name", ["small", "resnet20"])
def test_gradients_of_features_are_the_same_by_either_way(name: str) -> None:
    images, found = torch.randn(4, 3, 32, 32), []
    for by_maps in (False, True):
        net = build_backbone(name, 0).train()
        features = net.maps(images)[-1].mean(dim=(2, 3)) if by_maps else net(images)
        features.square().sum().backward()
        found.append([p.grad for p in net.parameters()])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


# Networks of one's own.


class Own(nn.Module):
    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.out_features = width
        self.layer = nn.Linear(3, width)

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.layer(images.mean((2, 3)))
        return out


class LikeTimm(nn.Module):
    num_features = 3

    def forward(self, images: Tensor) -> Tensor:
        return images.mean((2, 3))


class Widthless(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.mean((2, 3))


class Maps(LikeTimm):
    def forward(self, images: Tensor) -> Tensor:
        return images


class WithMaps(LikeTimm):
    def maps(self, images: Tensor) -> object:
        return [images.relu(), images]


class OddMaps(WithMaps):
    """Pools in another way than by the mean."""

    def forward(self, images: Tensor) -> Tensor:
        return images.mean((2, 3)) + 1


class FlatMaps(WithMaps):
    def maps(self, images: Tensor) -> object:
        return [images.flatten(2), images]


class BareMaps(WithMaps):
    def maps(self, images: Tensor) -> object:
        return images


class Classifier(LikeTimm):
    num_features = 512


class Deep(LikeTimm):
    def __init__(self, depth: int, *more: int, width: int, side: int = 3, **others: int) -> None:
        super().__init__()


class Particular(LikeTimm):
    def forward(self, images: Tensor) -> Tensor:
        return images.reshape(-1, 3, 224, 224).mean((2, 3))


@pytest.fixture(autouse=True)
def my_nets(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("my_nets")
    nets = (Own, LikeTimm, Widthless, Maps, Classifier, Deep, Particular)
    nets += (WithMaps, OddMaps, FlatMaps, BareMaps)
    vars(module).update({c.__name__: c for c in nets}, number=3, words=lambda: "words")
    monkeypatch.setitem(sys.modules, "my_nets", module)


def tried(name: str, options: dict[str, Any] | None = None, side: int = 32) -> nn.Module:
    network = build_backbone(name, 0, options or {})
    refuse_bad_features(name, network, side)
    return network


def test_a_network_of_ones_own_comes_by_dotted_path_and_seed() -> None:
    before = torch.get_rng_state()
    first, again, other = (build_backbone("my_nets:Own", seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert same_weights(first, again)
    assert not same_weights(first, other)
    assert feature_width(first) == 8
    assert first.training


@pytest.mark.parametrize("name", NETWORKS)
def test_features_are_the_means_of_the_maps(name: str) -> None:
    model = Model(build_backbone(name, 0).eval(), nn.Identity())
    images = torch.randn((2, 3, 40, 40), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        last = model.maps(images)[-1]
        assert torch.equal(last.mean(dim=(2, 3)), model.features(images))


def test_maps_come_from_the_layers_where_features_are_fused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fused_features(*_: object) -> Tensor:
        raise AssertionError("fused kernels keep their maps")

    monkeypatch.setattr(fused, "suits", lambda *_: True)
    monkeypatch.setattr(fused, "features", fused_features)
    model = Model(build_backbone("resnet20", 0), nn.Identity())
    model.fused = True
    with pytest.raises(AssertionError, match="keep their maps"):
        model.features(torch.zeros(2, 3, 16, 16))
    assert model.maps(torch.zeros(2, 3, 16, 16))[-1].shape == (2, 64, 4, 4)


def test_a_network_without_maps_says_what_it_lacks() -> None:
    tried("my_nets:LikeTimm")
    with pytest.raises(PolarbearError, match=r"LikeTimm has no maps\(images\), .*choose another"):
        Model(LikeTimm(), nn.Identity()).maps(torch.zeros(2, 3, 4, 4))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("OddMaps", "ends with maps whose means over all places are not the network's features: r"),
        ("FlatMaps", r"gives no list of maps \(2, channels, rows, columns\) for 2 images: return"),
        ("BareMaps", r"gives no list of maps \(2, channels, rows, columns\) for 2 images: return"),
    ],
)
def test_maps_that_features_are_not_the_means_of_are_refused(name: str, message: str) -> None:
    tried("my_nets:WithMaps")
    with pytest.raises(
        PolarbearError, match=rf"maps\(images\) of network 'my_nets:{name}' {message}"
    ):
        tried(f"my_nets:{name}")


def test_timm_states_its_width_as_num_features() -> None:
    assert feature_width(build_backbone("my_nets:LikeTimm", 0)) == 3


def test_trying_a_network_leaves_its_batch_norm_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def factory() -> nn.Module:
        return Pooled([nn.BatchNorm2d(3)], 3)

    monkeypatch.setattr("my_nets.factory", factory, raising=False)
    net = tried("my_nets:factory")
    assert all(m.num_batches_tracked == 0 for m in net.modules() if isinstance(m, nn.BatchNorm2d))


def test_side_says_what_images_a_network_is_tried_on() -> None:
    with pytest.raises(PolarbearError, match=r"'my_nets:Particular' cannot take images of 32×32"):
        tried("my_nets:Particular")
    tried("my_nets:Particular", side=224)


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (AssertionError("not 224"), "cannot take images of 32×32: not 224"),  # as timm says it
        (ValueError("not 224"), "cannot take images of 32×32: not 224"),  # as transformers does
        (PolarbearError("has maps and no tokens"), "^has maps and no tokens$"),
    ],
    ids=lambda of: type(of).__name__,
)
def test_a_network_may_refuse_images_in_its_own_way(
    monkeypatch: pytest.MonkeyPatch, said: Exception, message: str
) -> None:
    def refuse(*_: object) -> Tensor:
        raise said

    monkeypatch.setattr(LikeTimm, "forward", refuse)
    with pytest.raises(PolarbearError, match=message):
        tried("my_nets:LikeTimm")


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("resnet23", UnknownNameError, r"unknown network 'resnet23': did you mean 'resnet"),
        ("timm.create_model", UnknownNameError, r"Valid: package\.module:factory, resnet18"),
        ("my_nets:", PolarbearError, r"is no dotted path: write package\.module:factory"),
        ("no_such:net", PolarbearError, r"there is no module 'no_such', .*PYTHONPATH"),
        ("my_nets:Onw", UnknownNameError, r"factory in my_nets 'Onw': did you mean 'Own'"),
        ("my_nets:number", PolarbearError, r"is 3: a function is needed that gives an nn\.Module"),
        ("my_nets:Deep", PolarbearError, r"needs depth, width: give network_options, or a def"),
        ("my_nets:words", PolarbearError, r"gave a str, not an nn\.Module"),
        ("my_nets:Widthless", PolarbearError, r"Widthless does not state .* out_features"),
        ("my_nets:Maps", PolarbearError, r"gives \(2, 3, 32, 32\) .* not features \(2, 3\)"),
        ("my_nets:Classifier", PolarbearError, r"gives \(2, 3\) .*\(2, 512\).*num_classes=0"),
    ],
)
def test_a_wrong_network_is_refused_with_a_remedy(
    name: str, kind: type[PolarbearError], message: str
) -> None:
    with pytest.raises(kind, match=message):
        tried(name)


def test_options_are_what_a_factory_is_called_with() -> None:
    assert feature_width(tried("my_nets:Own", {"width": 5})) == 5
    tried("my_nets:Deep", {"depth": 1, "width": 2, "anything": 3})
    with pytest.raises(PolarbearError, match=r"option of my_nets:Own 'widht': .*'width'"):
        tried("my_nets:Own", {"widht": 5})
    with pytest.raises(PolarbearError, match=r"needs width: give network_options, or a default"):
        tried("my_nets:Deep", {"depth": 1})


def test_channels_last_images_give_the_same_features() -> None:
    images = torch.randn(2, 3, 32, 32)
    net = build_backbone("resnet20", 0).eval()
    last = net(images.to(memory_format=torch.channels_last))
    torch.testing.assert_close(last, net(images), rtol=1e-4, atol=1e-5)
