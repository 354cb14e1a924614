"""Preparations of one's own, by their dotted path."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import fake_graphs
from doc_pages import PAGES, ROOT
from engine_run import outcome, shapes_stream, tiny
from polarbear.base.errors import PolarbearError
from polarbear.engine.images.preparation import find_transform
from polarbear.engine.images.transform import (
    CIFAR,
    TRANSFORMS,
    Crop,
    ImageTransform,
    Jitter,
    PadCrop,
    ResizedCrop,
)
from polarbear.engine.trainer import Progress, Trainer
from polarbear.launch.assembly import build_learner
from polarbear.launch.runner import resume, run
from polarbear.runs.folder import RunFolder

pytestmark = pytest.mark.usefixtures("one_thread")

HALF = (0.5, 0.5, 0.5)
GREY = ImageTransform(HALF, HALF)
NOTHING = 3


class Brighter:
    """Adds light to images; not hashable, and no data class."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, most: float = 50) -> None:
        self.most = most

    def draw(self, n: int, random: np.random.Generator) -> Jitter:
        light = torch.from_numpy(random.uniform(0, self.most, (n, 1, 1, 1)).astype(np.float32))
        return Jitter(light, torch.zeros(n, dtype=torch.bool))

    def cut(self, images: Tensor, jitter: Jitter) -> Tensor:
        return (images + jitter.place).clamp(max=255)

    def cut_for_evaluation(self, images: Tensor) -> Tensor:
        return images


def light(most: float = 50, *, pad: int = 0) -> ImageTransform:
    return ImageTransform([0.5, 0.5, 0.5], HALF, Brighter(most) if not pad else PadCrop(pad))  # type: ignore[arg-type]


def needy(side: int, colour: str) -> ImageTransform:
    return ImageTransform(HALF, HALF, ResizedCrop(side))


def greedy(**everything: Any) -> ImageTransform:
    return light(**everything)


def wrong() -> str:
    return "plain"


@dataclass(frozen=True)
class Broken(Brighter):
    """A crop that errs in one way."""

    most: float = 50
    how: str = ""

    def draw(self, n: int, random: np.random.Generator) -> Any:
        jitter = super().draw(n, random)
        self_drawn = Jitter(torch.from_numpy(random.integers(0, 9, (n, 1))), jitter.flip)
        few = Jitter(jitter.place[:1], jitter.flip)
        return {"numbers": 3, "few": few, "sizes": self_drawn}.get(self.how, jitter)

    def cut(self, images: Tensor, jitter: Jitter) -> Any:
        if self.how == "sizes":
            return images[:, int(jitter.place[0, 0]) :]
        return images.permute(0, 3, 1, 2) if self.how == "maps" else super().cut(images, jitter)

    def cut_for_evaluation(self, images: Tensor) -> Any:
        return images.numpy() if self.how == "arrays" else images


def broken(how: str) -> ImageTransform:
    return ImageTransform(HALF, HALF, Broken(how=how))


def path(name: str) -> str:
    return f"{__name__}:{name}"


def test_names_stay_what_they_were() -> None:
    assert {name: find_transform(name) for name in TRANSFORMS} == TRANSFORMS
    assert set(TRANSFORMS) == {"cifar", "cifar-bright", "imagenet", "plain"}


def test_a_path_names_a_transform_or_what_returns_one() -> None:
    assert find_transform(path("GREY")) is GREY
    assert find_transform(path("light")).crop.most == 50  # type: ignore[attr-defined]
    assert find_transform(path("light"), {"pad": 3}).crop == PadCrop(3)
    assert find_transform(path("greedy"), {"most": 7}).crop.most == 7  # type: ignore[attr-defined]
    made = {"mean": [0.1, 0.2, 0.3], "std": [1, 1, 1]}
    found = find_transform("polarbear.learn:ImageTransform", made)
    assert (found.mean, found.crop) == ([0.1, 0.2, 0.3], PadCrop())


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("cifr", {}, "unknown preparation 'cifr': did you mean 'cifar'"),
        ("GREI", {}, r"unknown transform in .*test_preparation.py 'GREI': did you mean 'GREY'"),
        ("GREY", {"pad": 1}, "is an ImageTransform, which takes no options"),
        ("NOTHING", {}, "is 3: an ImageTransform is needed, or a function that returns one"),
        ("light", {"mst": 1}, r"unknown option of .*:light 'mst': did you mean 'most'"),
        ("light", {"most": "x"}, "option most of .*:light must be a .*number.*, not 'x': values"),
        ("needy", {"side": 3}, "needs colour: give preparation_options, or a default to each"),
        ("wrong", {}, "returns a str, not an ImageTransform"),
    ],
)
def test_what_is_no_preparation_is_refused(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(PolarbearError, match=said):
        find_transform(name if name == "cifr" else path(name), options)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("numbers", r"draw\(2, random\) of its crop must give a Jitter with place \(2, …\)"),
        ("few", r"draw\(2, random\) of its crop must give a Jitter with place \(2, …\)"),
        ("sizes", "the shape may not depend on what was drawn, so bring all to one size"),
        ("maps", r"cut of its crop gives \(2, 3, 32, 32\) for 2 images, not pixels \(2, h, w, 3\)"),
        ("arrays", r"cut_for_evaluation of its crop gives \(\) for 2 images"),
    ],
)
def test_a_crop_is_tried_before_a_run(how: str, said: str) -> None:
    settings = tiny("er", preparation=path("broken"), preparation_options={"how": how})
    with pytest.raises(PolarbearError, match=said):
        build_learner(settings, shapes_stream())


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (((0.5, 0.5), HALF), r"mean must be three numbers, .* not \(0.5, 0.5\)"),
        ((0.5, HALF), "mean must be three numbers, .* not 0.5"),
        (("abc", HALF), "mean must be three numbers, .* not 'abc'"),
        ((HALF, (1, 0, 1)), r"std must be three numbers over 0, .* not \(1, 0, 1\)"),
        ((HALF, (1, float("nan"), 1)), "std must be three numbers over 0"),
        ((HALF, HALF, "crop"), r"the crop 'crop' has no draw, cut, cut_for_evaluation"),
    ],
)
def test_a_transform_is_looked_at(values: tuple[Any, ...], said: str) -> None:
    with pytest.raises(PolarbearError, match=said):
        ImageTransform(*values)


def test_a_crop_of_ones_own_is_one_to_the_type_checker_too() -> None:
    crops: list[Crop] = [Brighter(), PadCrop(), ResizedCrop()]
    assert ImageTransform(HALF, HALF, crops[0]).crop is crops[0]


def test_what_a_network_sees_is_what_the_crop_made(tmp_path: Path) -> None:
    settings = tiny("finetune", preparation=path("light"), preparation_options={"most": 200})
    learner = build_learner(settings, shapes_stream())
    assert isinstance(learner.transform.crop, Brighter)
    assert learner.transform.crop.most == 200
    assert run(settings, tmp_path / "own", stream=shapes_stream())
    usual = tiny("finetune")
    assert run(usual, tmp_path / "usual", stream=shapes_stream())
    losses = [
        [line["loss"] for line in RunFolder(tmp_path / name).lines("epochs")]
        for name in ("own", "usual")
    ]
    assert losses[0] != losses[1]
    written = RunFolder(tmp_path / "own").manifest()["settings"]
    assert written["preparation"] == path("light")
    assert written["preparation_options"] == {"most": 200}


def test_captured_steps_use_a_crop_of_ones_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    captured = fake_graphs.install(monkeypatch)
    found = []
    for graph in (True, False):
        settings = tiny("er", learning_rate=0.1, preparation=path("light"), graph=graph)
        folder = tmp_path / str(graph)
        assert run(settings, folder, stream=shapes_stream())
        found.append([line["loss"] for line in RunFolder(folder).lines("epochs")])
    assert len(captured) == 3
    assert found[0] == pytest.approx(found[1])


def test_a_run_with_a_preparation_of_ones_own_resumes(tmp_path: Path) -> None:
    settings = tiny("er", tasks=2, preparation=path("light"), preparation_options={"most": 9})
    assert run(settings, tmp_path / "whole", stream=shapes_stream())

    def stop(trainer: Trainer, progress: Progress) -> None:
        if progress.task == 1 and progress.step == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(settings, tmp_path / "broken", stream=shapes_stream(), on_step=stop, save_every=0)
    assert resume(tmp_path / "broken", stream=shapes_stream())
    assert outcome(tmp_path / "broken") == outcome(tmp_path / "whole")


def test_the_page_shows_the_example() -> None:
    code = (ROOT / "examples" / "own_images.py").read_text(encoding="utf-8")
    assert f"```python\n{code}```" in PAGES["docs/how-to/your-own-data.md"]


def test_the_usual_transforms_are_as_before() -> None:
    assert ImageTransform((0.5071, 0.4866, 0.4409), (0.2009, 0.1984, 0.2023), PadCrop(4)) == CIFAR
