"""What a pretrained network says of its images: size and colours, and how they are resized."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from engine_run import TinyNetwork, shapes_stream, tiny
from polarbear.base.errors import PolarbearError
from polarbear.engine.images.transform import SHAPES, PadCrop, ResizedTo, for_evaluation
from polarbear.engine.nets.wanted_images import as_wanted
from polarbear.launch.assembly import build_learner
from polarbear.launch.runner import run
from polarbear.launch.trained import load_model
from polarbear.runs.folder import RunFolder

MEAN, STD = (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)


class Told(TinyNetwork):
    """A network that tells what it wants, as timm's do, and takes no other size."""

    def __init__(self, side: int = 48, **more: Any) -> None:
        super().__init__()
        self.side = side
        self.pretrained_cfg = {"input_size": (3, side, side), "mean": MEAN, "std": STD, **more}

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images.reshape(-1, 3, self.side, self.side))


def path(name: str) -> str:
    return f"{__name__}:{name}"


def test_a_network_that_says_nothing_changes_nothing() -> None:
    assert as_wanted(TinyNetwork(), SHAPES) is not SHAPES
    assert as_wanted(TinyNetwork(), SHAPES) == SHAPES


@pytest.mark.parametrize(("told", "mode"), [("bicubic", "bicubic"), ("random", "bilinear")])
def test_size_and_colours_are_the_networks_and_the_crop_stays(told: str, mode: str) -> None:
    found = as_wanted(Told(interpolation=told), SHAPES)
    assert (found.mean, found.std) == (MEAN, STD)
    assert found.crop == ResizedTo(PadCrop(), 48, mode)  # type: ignore[arg-type]


def test_an_older_name_of_the_dict_will_do_and_colours_alone_too() -> None:
    network = TinyNetwork()
    network.default_cfg = {"mean": list(MEAN)}  # type: ignore[assignment]
    found = as_wanted(network, SHAPES)
    assert (found.mean, found.std, found.crop) == (MEAN, SHAPES.std, SHAPES.crop)


def test_a_network_made_for_another_size_gets_that() -> None:
    network = Told(224)
    network.patch_embed = nn.Identity()
    network.patch_embed.img_size = (32, 32)  # type: ignore[assignment]
    assert as_wanted(network, SHAPES).crop == ResizedTo(PadCrop(), 32)


def test_images_that_are_no_squares_are_refused() -> None:
    with pytest.raises(PolarbearError, match=r"Told wants images of 48×64, and all here are squ"):
        as_wanted(Told(input_size=(3, 48, 64)), SHAPES)


@pytest.mark.parametrize("side", [20, 47, 96])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_resizing_is_pillows(side: int, mode: str) -> None:
    random = np.random.default_rng(0)
    # Pillow cuts off at 0 and 255 after the rows, and again after the columns.
    image = random.integers(80, 176, (32, 32, 3), dtype=np.uint8)
    found = ResizedTo(PadCrop(), side, mode).cut_for_evaluation(torch.tensor(image[None]))  # type: ignore[arg-type]
    how = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}[mode]
    expected = np.asarray(Image.fromarray(image).resize((side, side), how), dtype=float)
    assert found.shape == (1, side, side, 3)
    np.testing.assert_allclose(found[0].numpy(), expected, atol=1.5)


def test_a_crop_comes_before_the_size() -> None:
    images = torch.tensor(
        np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3)), dtype=torch.uint8
    )
    crop = ResizedTo(PadCrop(), 64)
    jitter = crop.draw(5, np.random.default_rng(1))
    cut = PadCrop().cut(images, jitter)
    expected = ResizedTo(PadCrop(), 64).cut_for_evaluation(cut)
    torch.testing.assert_close(crop.cut(images, jitter), expected)
    assert ResizedTo(PadCrop(), 32).cut_for_evaluation(images) is images


def test_a_run_prepares_images_as_the_network_wants() -> None:
    learner = build_learner(tiny("er", network=path("Told")), shapes_stream())
    assert learner.transform.crop == ResizedTo(PadCrop(), 48)
    images = next(learner.train_pixels.batches([np.arange(2)]))
    assert for_evaluation(images, learner.transform).shape == (2, 3, 48, 48)
    options = {"side": 24, "interpolation": "bicubic"}
    learner = build_learner(
        tiny("er", network=path("Told"), network_options=options), shapes_stream()
    )
    assert learner.transform.crop == ResizedTo(PadCrop(), 24, "bicubic")


def test_a_preparation_that_is_asked_for_wins() -> None:
    with pytest.raises(PolarbearError, match="cannot take images of 32×32"):
        build_learner(tiny("er", network=path("Told"), preparation="plain"), shapes_stream())
    options = {"side": 32}
    settings = tiny("er", network=path("Told"), network_options=options, preparation="plain")
    assert build_learner(settings, shapes_stream()).transform is SHAPES


def test_what_was_trained_prepares_images_so_too(tmp_path: Path) -> None:
    settings = tiny("finetune", network=path("Told"), tasks=1, epochs=1)
    stream = shapes_stream()
    assert run(settings, tmp_path / "run", stream=stream)
    model = load_model(tmp_path / "run", device="cpu")
    assert model.learner.transform == build_learner(settings, stream).transform
    view = stream.test(after=0)
    found = model.predict(stream.images("test")[view.rows])
    np.testing.assert_array_equal(found, RunFolder(tmp_path / "run").predictions(0))
