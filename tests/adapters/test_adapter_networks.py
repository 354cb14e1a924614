"""Networks of timm and transformers by dotted path, small ones with random weights."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from polarbear import learn
from polarbear.base.errors import PolarbearError, UnknownNameError
from polarbear.engine.images.transform import SHAPES, PadCrop, ResizedTo
from polarbear.engine.nets.networks import build_backbone, feature_width, refuse_bad_features
from polarbear.engine.nets.wanted_images import as_wanted

VISION = "polarbear.adapters.transformers:vision"
COLOURS = {"image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}
TIMM = {"model_name": "vit_tiny_patch16_224", "num_classes": 0, "depth": 1, "embed_dim": 12}
TIMM |= {"num_heads": 3, "patch_size": 8}


@pytest.fixture
def transformers(library: Callable[[str], ModuleType]) -> Any:
    return library("transformers")


@pytest.fixture
def timm(library: Callable[[str], ModuleType]) -> Any:
    return library("timm")


def saved(folder: Path, model: Any, **processor: Any) -> str:
    """Write a model as its authors would publish it."""
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(json.dumps({**COLOURS, **processor}))
    return str(folder)


def vit(transformers: Any) -> Any:
    size = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "patch_size": 8}
    return transformers.ViTModel(
        transformers.ViTConfig(intermediate_size=48, image_size=40, **size)
    ).eval()


def convolutions(transformers: Any) -> Any:
    sizes = {"embedding_size": 8, "hidden_sizes": [8, 16], "depths": [1, 1]}
    return transformers.ResNetModel(transformers.ResNetConfig(**sizes)).eval()


@pytest.mark.parametrize("pool", ["first", "mean", "pooler"])
def test_features_of_transformers_are_what_was_asked_for(
    transformers: Any, tmp_path: Path, pool: str
) -> None:
    model = vit(transformers)
    network = build_backbone(VISION, 0, {"name": saved(tmp_path, model), "pool": pool}).eval()
    refuse_bad_features(VISION, network, 40)
    images = torch.randn(3, 3, 40, 40)
    with torch.no_grad():
        found, said = network(images), model(pixel_values=images)
    tokens = said.last_hidden_state
    expected = {"first": tokens[:, 0], "mean": tokens.mean(dim=1), "pooler": said.pooler_output}
    torch.testing.assert_close(found, expected[pool])
    assert network.frozen is True
    assert feature_width(network) == 24


@pytest.mark.parametrize(
    ("pool", "said"),
    [
        ("frist", r"unknown pool 'frist': did you mean 'first'\? "),
        ("last", "unknown pool 'last': "),
    ],
)
def test_features_that_there_are_not_are_refused_before_a_model_is_read(
    transformers: Any, pool: str, said: str
) -> None:
    with pytest.raises(UnknownNameError, match=f"{said}Valid: first, mean, pooler"):
        build_backbone(VISION, 0, {"name": "no such folder", "pool": pool})


@pytest.mark.parametrize(
    ("option", "bad", "due"),
    [
        ("frozen", "False", "true or false"),
        ("frozen", "no", "true or false"),
        ("side", "large", "a whole number or null"),
    ],
)
def test_options_of_transformers_are_looked_at(
    transformers: Any, option: str, bad: str, due: str
) -> None:
    with pytest.raises(PolarbearError, match=f"{option} of {VISION} must be {due}, not '{bad}'"):
        build_backbone(VISION, 0, {"name": "no such folder", option: bad})


def test_size_and_colours_of_transformers_are_those_of_the_processor(
    transformers: Any, tmp_path: Path
) -> None:
    name = saved(tmp_path / "vit", vit(transformers), resample=3)
    found = as_wanted(build_backbone(VISION, 0, {"name": name}), SHAPES)
    assert found.crop == ResizedTo(PadCrop(), 40, "bicubic")  # what the model was made for
    assert (found.mean, found.std) == ((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    cut = {"do_center_crop": True, "crop_size": {"height": 52, "width": 52}}
    sizes = [
        ({"size": {"shortest_edge": 48}}, 48),
        ({"size": 56}, 56),
        ({"size": {"shortest_edge": 60}} | cut, 52),
    ]
    for i, (processor, side) in enumerate(sizes):
        name = saved(tmp_path / str(i), convolutions(transformers), **processor)
        network = build_backbone(VISION, 0, {"name": name, "pool": "pooler"})
        assert as_wanted(network, SHAPES).crop == ResizedTo(PadCrop(), side)


def test_a_model_that_was_made_for_larger_images_gets_those_of_its_processor(
    transformers: Any, tmp_path: Path
) -> None:
    sizes = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 3}
    config = transformers.Dinov2Config(image_size=56, patch_size=14, **sizes)
    cut = {"size": {"shortest_edge": 32}, "do_center_crop": True, "crop_size": {"height": 28}}
    name = saved(tmp_path, transformers.Dinov2Model(config), **cut)
    for options, side in (({}, 28), ({"side": 42}, 42)):
        network = build_backbone(VISION, 0, {"name": name, **options})
        assert as_wanted(network, SHAPES).crop == ResizedTo(PadCrop(), side)
        refuse_bad_features(VISION, network, side)


def test_a_size_that_a_network_does_not_take_is_refused(transformers: Any, tmp_path: Path) -> None:
    network = build_backbone(VISION, 0, {"name": saved(tmp_path, vit(transformers)), "side": 48})
    with pytest.raises(PolarbearError, match=r"cannot take images of 48×48: .*40\*40"):
        refuse_bad_features(VISION, network, 48)


def test_convolutions_of_transformers_have_a_pooler_and_no_tokens(
    transformers: Any, tmp_path: Path
) -> None:
    name = saved(tmp_path, convolutions(transformers))
    network = build_backbone(VISION, 0, {"name": name, "pool": "pooler", "frozen": False})
    refuse_bad_features(VISION, network, 64)
    assert (feature_width(network), network.frozen) == (16, False)
    with pytest.raises(PolarbearError, match=r"ResNetModel has maps .* pool=pooler"):
        build_backbone(VISION, 0, {"name": name}).eval()(torch.zeros(2, 3, 64, 64))


def test_a_network_of_transformers_runs_frozen(transformers: Any, tmp_path: Path) -> None:
    options = {"name": saved(tmp_path / "vit", vit(transformers))}
    how = {"epochs": 1, "tasks": 2, "network": VISION, "network_options": options}
    result = learn.run("slda", "iirc-shapes", folder=tmp_path / "run", progress=False, **how)
    assert "frozen_weights" in result.folder.manifest()


def test_timm_tells_size_and_colours(timm: Any) -> None:
    network = build_backbone("timm:create_model", 0, TIMM)
    found = as_wanted(network, SHAPES)
    assert found.crop == ResizedTo(PadCrop(), 224, "bicubic")
    assert (found.mean, found.std) == ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    smaller = build_backbone("timm:create_model", 0, TIMM | {"img_size": 32})
    assert as_wanted(smaller, SHAPES).crop == ResizedTo(PadCrop(), 32, "bicubic")
    refuse_bad_features("timm:create_model", smaller, 32)
    assert feature_width(smaller) == 12
    with pytest.raises(PolarbearError, match=r"cannot take images of 48×48: .*\(32\)"):
        refuse_bad_features("timm:create_model", smaller, 48)


def test_timm_is_not_told_a_text_where_it_asks_yes_or_no(timm: Any) -> None:
    with pytest.raises(PolarbearError, match=r"pretrained of .* must be true or false, not 'no'"):
        build_backbone("timm:create_model", 0, TIMM | {"pretrained": "no"})


def test_convolutions_of_timm_tell_them_too(timm: Any) -> None:
    options = {"model_name": "resnet18", "num_classes": 0, "channels": [4, 4, 8, 8]}
    network = build_backbone("timm:create_model", 0, options | {"stem_width": 4})
    assert as_wanted(network, SHAPES).crop == ResizedTo(PadCrop(), 224, "bicubic")


@pytest.mark.parametrize("method", ["slda", "er"])
def test_a_network_of_timm_runs_frozen(timm: Any, tmp_path: Path, method: str) -> None:
    how = {"network": "timm:create_model", "network_options": TIMM | {"img_size": 32}}
    how |= {"epochs": 1, "tasks": 2, "frozen": True}
    result = learn.run(method, "iirc-shapes", folder=tmp_path / "run", progress=False, **how)
    assert "frozen_weights" in result.folder.manifest()
