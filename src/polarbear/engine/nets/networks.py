"""Networks: images (n, 3, h, w) in, features (n, d) out; a head turns those into logits.

Any other network works by the dotted path of a factory, ``package.module:factory``: a function that
gives an ``nn.Module`` whose ``out_features`` (or timm's ``num_features``) is the width of its
features. Methods that ask for the maps inside (``Model.maps``) want one that also has
``maps(images)``: it returns the maps (n, c, h, w) that each stage ends with, the last of which its
features are the means of.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate
from types import MappingProxyType
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from polarbear.base.dotted import find_dotted
from polarbear.base.errors import PolarbearError, unknown_name
from polarbear.settings.factory_options import refuse_unfit_options

Block = Callable[[int, int, int], "Residual"]


class Residual(nn.Module):
    """Adds what its layers say to its input, with a ReLU after the sum unless told otherwise.

    Where the layers change the shape, the input passes a 1×1 convolution and batch norm.
    """

    def __init__(self, layers: list[nn.Module], inputs: int, outputs: int, stride: int) -> None:
        """Take the layers and the change of shape they make."""
        super().__init__()
        self.layers = nn.Sequential(*layers)
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else _conv_bn(inputs, outputs, 1, stride)
        self.out_channels = outputs
        self.relu_after = True

    def forward(self, maps: Tensor) -> Tensor:
        """Return maps (n, outputs, h / stride, w / stride) for maps (n, inputs, h, w)."""
        out = self.added(maps)
        return out.relu_() if self.relu_after else out

    def added(self, maps: Tensor) -> Tensor:
        """Return the sum before the ReLU."""
        out: Tensor = self.layers(maps) + self.shortcut(maps)
        return out


class UncountedBatchNorm(nn.BatchNorm2d):
    """Batch norm that does not count its batches: nothing here reads the count.

    It would be one more kernel in each layer, 33 of a step's in ResNet-32. Where a channel has one
    value alone, as in an epoch's last batch it may, that is normalised by the running statistics:
    PyTorch's own would raise an error, and end a run.
    """

    def forward(self, maps: Tensor) -> Tensor:
        """Return normalised maps (n, c, h, w); training also moves the running statistics."""
        return functional.batch_norm(
            maps,
            self.running_mean,
            self.running_var,
            self.weight,
            self.bias,
            self.training and maps.numel() > maps.shape[1],
            self.momentum or 0.0,
            self.eps,
        )


class Pooled(nn.Module):
    """Layers whose last maps are averaged over all places: (n, 3, h, w) → (n, out_features)."""

    def __init__(
        self, layers: list[nn.Module], out_features: int, ends: Sequence[int] = ()
    ) -> None:
        """Stack the layers; ``ends`` are the places of those that end a stage, but for the last."""
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.out_features = out_features
        self.ends = frozenset(ends)

    def forward(self, images: Tensor) -> Tensor:
        """Return features (n, out_features) of images (n, 3, h, w)."""
        maps: Tensor = self.layers(images)
        return maps.mean(dim=(2, 3))

    def maps(self, images: Tensor) -> list[Tensor]:
        """Return the maps that stages end with, before their ReLU, and those that are averaged."""
        maps, found = images, []
        for place, layer in enumerate(self.layers):
            if place in self.ends:
                found.append(layer.added(maps) if isinstance(layer, Residual) else layer(maps))
                maps = found[-1].relu() if isinstance(layer, Residual) else found[-1]
            else:  # a ReLU in place would change the maps of the stage before it
                maps = maps.relu() if isinstance(layer, nn.ReLU) else layer(maps)
        return [*found, maps]


class CifarResNet(Pooled):
    """A ResNet for 32×32 images, which ``nets.fused`` knows how to compute faster."""


def cifar_resnet(blocks: int) -> Pooled:
    """Build the ResNet for 32×32 images with 6 × blocks + 2 layers and 64 features.

    As in IIRC, there is no ReLU after the last block: features can be negative.
    """
    stages = _stages(basic_block, 16, ((16, blocks, 1), (32, blocks, 2), (64, blocks, 2)))
    stages[-1].relu_after = False
    layers = [_conv_bn(3, 16, 3), nn.ReLU(inplace=True), *stages]
    ends = (1 + blocks, 1 + 2 * blocks)
    return _initialised(CifarResNet(layers, 64, ends), "fan_in")


def imagenet_resnet(block: Block, blocks: tuple[int, int, int, int]) -> Pooled:
    """Build the ResNet for 224×224 images: 7×7 stem, max-pool, stages of 64 to 512 channels."""
    stem = [_conv_bn(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)]
    plan = zip((64, 128, 256, 512), blocks, (1, 2, 2, 2), strict=True)
    stages = _stages(block, 64, tuple(plan))
    ends = [len(stem) - 1 + count for count in accumulate(blocks[:-1])]
    return _initialised(Pooled([*stem, *stages], stages[-1].out_channels, ends), "fan_out")


def small() -> Pooled:
    """Build four convolutions that learn ``iirc-shapes`` on a CPU, for images from 16×16.

    Like the ResNets for 32×32, it has no ReLU at the end: 15 epochs on the leaves of
    ``iirc-shapes`` give an accuracy of 0.82, with the ReLU 0.56.
    """
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 16), (16, 32), (32, 48), (48, 128)):
        layers += [_conv_bn(inputs, outputs, 3, 2), nn.ReLU(inplace=True)]
    return _initialised(Pooled(layers[:-1], 128, ends=(0, 2, 4)), "fan_in")


def basic_block(inputs: int, width: int, stride: int) -> Residual:
    """Build two 3×3 convolutions around a ReLU; the first one takes the stride."""
    layers = [
        _conv_bn(inputs, width, 3, stride),
        nn.ReLU(inplace=True),
        _conv_bn(width, width, 3),
    ]
    return Residual(layers, inputs, width, stride)


def bottleneck_block(inputs: int, width: int, stride: int) -> Residual:
    """Build 1×1, 3×3 and 1×1 convolutions to 4 × width channels; the 3×3 takes the stride."""
    layers = [
        _conv_bn(inputs, width, 1),
        nn.ReLU(inplace=True),
        _conv_bn(width, width, 3, stride),
        nn.ReLU(inplace=True),
        _conv_bn(width, 4 * width, 1),
    ]
    return Residual(layers, inputs, 4 * width, stride)


NETWORKS: Mapping[str, Callable[[], nn.Module]] = MappingProxyType(
    {
        "small": small,
        "resnet20": partial(cifar_resnet, 3),
        "resnet32": partial(cifar_resnet, 5),
        "resnet44": partial(cifar_resnet, 7),
        "resnet56": partial(cifar_resnet, 9),
        "resnet18": partial(imagenet_resnet, basic_block, (2, 2, 2, 2)),
        "resnet50": partial(imagenet_resnet, bottleneck_block, (3, 4, 6, 3)),
    }
)


def build_backbone(
    name: str, seed: int, options: Mapping[str, Any] = MappingProxyType({})
) -> nn.Module:
    """Build a network by name or dotted path; the same seed gives the same weights.

    ``options`` are the arguments of a factory of your own. The global random state is left as it
    was.

    >>> net = build_backbone("small", seed=0)
    >>> net(torch.zeros(2, 3, 32, 32)).shape == (2, feature_width(net))
    True
    """
    factory = NETWORKS.get(name) or _factory(name, options)
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed: that would reseed every GPU as well.
        torch.default_generator.manual_seed(seed)
        network = factory()
    if not isinstance(network, nn.Module):
        raise PolarbearError(f"network {name!r} gave a {type(network).__name__}, not an nn.Module")
    return network


def refuse_bad_features(name: str, network: nn.Module, side: int) -> None:
    """Try a network of your own on two black images of ``side`` × ``side``.

    What it gives must be features (2, d) of the width it states. If it has maps, these must be what
    its features are the means of.
    """
    if name in NETWORKS:
        return
    expected = (2, feature_width(network))
    with torch.random.fork_rng(devices=[]):
        got = _tried(name, network, network, side)
    if not isinstance(got, Tensor) or got.shape != expected:
        shape = tuple(got.shape) if isinstance(got, Tensor) else type(got).__name__
        raise PolarbearError(
            f"network {name!r} gives {shape} for 2 images, not features {expected}: leave out "
            "its classifier and pool its maps (timm: num_classes=0), or state the right width"
        )
    if has_maps(network):
        _refuse_bad_maps(name, network, side, got)


def has_maps(network: nn.Module) -> bool:
    """Whether a network gives its maps, too: ``maps(images)``, a sequence of (n, c, h, w).

    The means of the last ones over all places are its features.

    >>> has_maps(build_backbone("small", seed=0)), has_maps(nn.Linear(2, 3))
    (True, False)
    """
    return callable(getattr(network, "maps", None))


def feature_width(backbone: nn.Module) -> int:
    """Return the width d of a network's features, from its out_features or num_features."""
    for attribute in ("out_features", "num_features"):
        width = getattr(backbone, attribute, None)
        if isinstance(width, int):
            return width
    raise PolarbearError(
        f"{type(backbone).__name__} does not state the width of its features: "
        "give it an attribute out_features, a whole number (timm's num_features will do)"
    )


def _conv_bn(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(conv, UncountedBatchNorm(outputs))


def _stages(block: Block, inputs: int, plan: tuple[tuple[int, int, int], ...]) -> list[Residual]:
    """Return the blocks of all stages, each planned as (width, blocks, stride of the first)."""
    blocks: list[Residual] = []
    for width, count, stride in plan:
        for step in (stride, *[1] * (count - 1)):
            blocks.append(block(inputs, width, step))
            inputs = blocks[-1].out_channels
    return blocks


def _initialised(network: Pooled, mode: Literal["fan_in", "fan_out"]) -> Pooled:
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode=mode, nonlinearity="relu")
    return network


def _factory(name: str, options: Mapping[str, Any]) -> Callable[[], Any]:
    """Find a factory by its dotted path."""
    if ":" not in name:
        raise unknown_name("network", name, [*NETWORKS, "package.module:factory"])
    factory: Any = find_dotted(name, "factory")
    if not callable(factory):
        raise PolarbearError(
            f"network {name!r} is {factory!r}: a function is needed that gives an nn.Module"
        )
    refuse_unfit_options("network", name, factory, options)
    return partial(factory, **options)


def _refuse_bad_maps(name: str, network: nn.Module, side: int, features: Tensor) -> None:
    with torch.random.fork_rng(devices=[]):
        maps = _tried(name, network, network.maps, side)  # type: ignore[arg-type]
    if not isinstance(maps, (list, tuple)) or not all(map(_are_maps, maps)) or not maps:
        wrong = "gives no list of maps (2, channels, rows, columns) for 2 images"
    elif _same(maps[-1].mean(dim=(2, 3)), features):
        return
    else:
        wrong = "ends with maps whose means over all places are not the network's features"
    raise PolarbearError(
        f"maps(images) of network {name!r} {wrong}: return what each stage ends with, what is "
        "pooled last, or leave it out"
    )


def _are_maps(found: object) -> bool:
    return isinstance(found, Tensor) and found.dim() == 4 and len(found) == 2


def _same(means: Tensor, features: Tensor) -> bool:
    close = {"rtol": 1e-3, "atol": 1e-5}
    # Features that are no numbers are refused elsewhere.
    return means.shape == features.shape and torch.allclose(
        means, features, equal_nan=True, **close
    )


@torch.no_grad()
def _tried(name: str, network: nn.Module, call: Callable[[Tensor], object], side: int) -> object:
    """Return what a network, in evaluation mode, gives for two black images by one of its calls."""
    training = network.training
    network.eval()
    try:
        return call(torch.zeros(2, 3, side, side))
    except PolarbearError:
        raise
    # Layers refuse a size by a RuntimeError, timm asserts it, transformers has a ValueError.
    except (AssertionError, RuntimeError, ValueError) as error:
        raise PolarbearError(
            f"network {name!r} cannot take images of {side}×{side}: {error}"
        ) from error
    finally:
        network.train(training)
