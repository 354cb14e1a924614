"""Augmentation: beside a slow twin, to the pixel, and what is drawn."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torch import Tensor

from polarbear.base.arrays import Pixels
from polarbear.base.errors import DataError, UnknownNameError
from polarbear.data.decode import decode
from polarbear.engine.images.preparation import find_transform
from polarbear.engine.images.transform import (
    CIFAR,
    CIFAR_BRIGHT,
    IMAGENET,
    SHAPES,
    ImageTransform,
    Jitter,
    PadCrop,
    ResizedCrop,
    augment,
    for_evaluation,
)

LITTLE = ImageTransform(IMAGENET.mean, IMAGENET.std, ResizedCrop(side=12))


def images(n: int, h: int = 32, w: int = 32, seed: int = 0) -> Tensor:
    random = np.random.default_rng(seed)
    return torch.from_numpy(random.integers(0, 256, (n, h, w, 3), dtype=np.uint8))


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def pad_jitter(top: int, left: int, flip: bool) -> Jitter:
    return Jitter(torch.tensor([[top, left]]), torch.tensor([flip]))


def slow_normalised(image: np.ndarray, way: ImageTransform) -> np.ndarray:
    scaled = (image.astype(np.float64) / 255 - way.mean) / way.std
    return scaled.transpose(2, 0, 1)


def slow_pad_crop(image: Pixels, top: int, left: int, flip: bool, pad: int) -> Pixels:
    h, w, _ = image.shape
    black = np.zeros((h + 2 * pad, w + 2 * pad, 3), np.uint8)
    black[pad : pad + h, pad : pad + w] = image
    cut = black[top : top + h, left : left + w]
    return cut[:, ::-1] if flip else cut


@settings(max_examples=30)
@given(
    n=st.integers(0, 6),
    h=st.integers(1, 12),
    w=st.integers(1, 12),
    pad=st.integers(0, 5),
    seed=st.integers(0, 99),
)
def test_pad_crop_flip_is_that_of_a_slow_twin(n: int, h: int, w: int, pad: int, seed: int) -> None:
    way = ImageTransform(CIFAR.mean, CIFAR.std, PadCrop(pad))
    batch, jitter = images(n, h, w, seed), way.crop.draw(n, rng(seed))
    expected = [
        slow_normalised(slow_pad_crop(image, *place, flip, pad), way)
        for image, place, flip in zip(
            batch.numpy(), jitter.place.tolist(), jitter.flip.tolist(), strict=True
        )
    ]
    found = augment(batch, jitter, way)
    assert found.shape == (n, 3, h, w)
    np.testing.assert_allclose(found.numpy(), np.reshape(expected, found.shape), rtol=0, atol=1e-6)


def test_brightness_is_that_of_a_slow_twin() -> None:
    way, batch = CIFAR_BRIGHT, images(40)
    jitter = way.crop.draw(40, rng(5))
    places = zip(batch.numpy(), jitter.place.tolist(), jitter.flip.tolist(), strict=True)
    expected, capped = [], 0
    for image, (top, left, factor), flip in places:
        brighter = slow_pad_crop(image, int(top), int(left), flip, 4) * factor
        capped += int((brighter > 255).sum())
        expected.append(slow_normalised(np.minimum(brighter, 255.0), way))
    assert capped > 0
    np.testing.assert_allclose(augment(batch, jitter, way).numpy(), expected, rtol=0, atol=1e-5)


def test_brightness_is_drawn_evenly_beside_the_places_of_a_plain_crop() -> None:
    drawn, plain = CIFAR_BRIGHT.crop.draw(4000, rng(1)), CIFAR.crop.draw(4000, rng(1))
    assert torch.equal(drawn.place[:, :2], plain.place.float())
    assert torch.equal(drawn.flip, plain.flip)
    factor = drawn.place[:, 2]
    lowest, highest = 1 - 63 / 255, 1 + 63 / 255
    assert lowest <= factor.min() < lowest + 0.01
    assert highest - 0.01 < factor.max() <= highest
    assert factor.mean().item() == pytest.approx(1, abs=0.01)


def test_padding_is_black_before_normalisation() -> None:
    white = torch.full((1, 32, 32, 3), 255, dtype=torch.uint8)
    corner = augment(white, pad_jitter(0, 0, False), CIFAR)[0, :, 0, 0]
    expected = [-m / s for m, s in zip(CIFAR.mean, CIFAR.std, strict=True)]
    np.testing.assert_allclose(corner.numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("way", [CIFAR, SHAPES])
def test_the_centre_without_a_flip_is_what_evaluation_sees(way: ImageTransform) -> None:
    still = Jitter(torch.full((5, 2), 4), torch.zeros(5, dtype=torch.bool))
    assert torch.equal(augment(images(5), still, way), for_evaluation(images(5), way))


def test_a_flip_mirrors_the_crop() -> None:
    straight = augment(images(1), pad_jitter(1, 7, False), CIFAR)
    mirrored = augment(images(1), pad_jitter(1, 7, True), CIFAR)
    assert torch.equal(mirrored, straight.flip(3))


def test_evaluation_normalises_and_no_more() -> None:
    found = for_evaluation(images(3), CIFAR)
    expected = [slow_normalised(image, CIFAR) for image in images(3).numpy()]
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("way", [CIFAR, CIFAR_BRIGHT, LITTLE])
def test_the_result_is_float32_and_channels_last(way: ImageTransform) -> None:
    for out in (
        augment(images(4), way.crop.draw(4, rng()), way),
        for_evaluation(images(4), way),
    ):
        assert out.dtype == torch.float32
        assert out.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("way", [CIFAR, CIFAR_BRIGHT, LITTLE])
def test_splitting_a_batch_changes_nothing(way: ImageTransform) -> None:
    batch, jitter = images(10), way.crop.draw(10, rng())
    parts = [augment(batch[a:b], jitter[a:b], way) for a, b in [(0, 1), (1, 4), (4, 4), (4, 10)]]
    assert torch.equal(torch.cat(parts), augment(batch, jitter, way))


@pytest.mark.parametrize("way", [CIFAR, CIFAR_BRIGHT, LITTLE])
def test_images_are_left_as_they_were(way: ImageTransform) -> None:
    batch = images(4)
    augment(batch, way.crop.draw(4, rng()), way)
    for_evaluation(batch, way)
    assert torch.equal(batch, images(4))


# What is drawn.


def test_all_81_places_are_drawn_alike_often() -> None:
    place = CIFAR.crop.draw(81_000, rng()).place.numpy()
    counts = np.bincount(place[:, 0] * 9 + place[:, 1], minlength=81)
    assert len(counts) == 81
    # 1,000 ± 6 standard deviations.
    assert np.abs(counts - 1000).max() < 190


@pytest.mark.parametrize("way", [CIFAR, IMAGENET])
def test_half_of_the_images_are_mirrored_whatever_their_place(way: ImageTransform) -> None:
    jitter = way.crop.draw(20_000, rng())
    assert jitter.flip.float().mean().item() == pytest.approx(0.5, abs=0.02)
    low = jitter.place[:, 0] < jitter.place[:, 0].float().median()
    assert jitter.flip[low].float().mean().item() == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("way", [CIFAR, IMAGENET])
def test_a_key_gives_the_same_jitter(way: ImageTransform) -> None:
    first, again, other = (way.crop.draw(50, rng(seed)) for seed in (1, 1, 2))
    assert torch.equal(first.place, again.place)
    assert torch.equal(first.flip, again.flip)
    assert not torch.equal(first.place, other.place)


def test_jitter_is_cut_and_moved_together() -> None:
    jitter = CIFAR.crop.draw(10, rng())
    some = jitter[torch.tensor([7, 2])]
    assert len(some) == 2
    assert torch.equal(some.place, jitter.place[[7, 2]])
    assert torch.equal(some.flip, jitter.flip[[7, 2]])
    moved = jitter.to("meta")
    assert (moved.place.device.type, moved.flip.device.type) == ("meta", "meta")


# Random resized crops.


def test_boxes_lie_inside_with_area_and_ratio_in_range() -> None:
    top, left, height, width = IMAGENET.crop.draw(50_000, rng()).place.double().T
    for corner, size in ((top, height), (left, width)):
        assert (corner >= 0).all()
        assert (corner + size <= 1 + 1e-6).all()
    area, ratio = height * width, width / height
    assert 0.08 - 1e-6 < area.min() < 0.09
    assert 0.95 < area.max() <= 1 + 1e-6
    assert 3 / 4 - 1e-6 < ratio.min() < 0.76
    assert 1.32 < ratio.max() < 4 / 3 + 1e-6


def test_ratios_are_drawn_evenly_on_a_log_scale() -> None:
    wide = ImageTransform(IMAGENET.mean, IMAGENET.std, ResizedCrop(scale=(0.1, 0.2)))
    _, _, height, width = wide.crop.draw(50_000, rng()).place.double().T
    logs = (width / height).log() / math.log(4 / 3)
    assert logs.mean().item() == pytest.approx(0, abs=0.02)
    assert logs.std().item() == pytest.approx(1 / 3**0.5, rel=0.02)
    assert (height * width).mean().item() == pytest.approx(0.15, rel=0.01)


def test_where_no_box_fits_the_whole_image_is_taken() -> None:
    never = ResizedCrop(scale=(1.0, 1.0), ratio=(1.2, 4 / 3))
    place = never.draw(5, rng()).place
    assert torch.equal(place, torch.tensor([[0.0, 0.0, 1.0, 1.0]]).repeat(5, 1))


def slow_resized(image: np.ndarray, box: list[float], flip: bool, side: int) -> np.ndarray:
    """Bilinear sampling, written out: pixel i covers i to i + 1, its centre is i + 0.5."""
    h, w, _ = image.shape
    top, left, height, width = box

    def shares(step: int, start: float, size: float, pixels: int) -> dict[int, float]:
        at = (start + size * (step + 0.5) / side) * pixels
        reach = max(1, size * pixels / side)
        found = {i: 1 - abs(i + 0.5 - at) / reach for i in range(pixels)}
        near = {i: share for i, share in found.items() if share > 0}
        return {i: share / sum(near.values()) for i, share in near.items()}

    out = np.zeros((side, side, 3))
    for i in range(side):
        for j in range(side):
            for a, down in shares(i, top, height, h).items():
                for b, right in shares(side - 1 - j if flip else j, left, width, w).items():
                    out[i, j] += image[a, b] * down * right
    return out


def test_a_resized_crop_is_that_of_a_slow_twin() -> None:
    batch, jitter = images(6, 20, 17), LITTLE.crop.draw(6, rng(3))
    found = augment(batch, jitter, LITTLE)
    expected = [
        slow_normalised(slow_resized(image, box, flip, 12), LITTLE)
        for image, box, flip in zip(
            batch.numpy(), jitter.place.tolist(), jitter.flip.tolist(), strict=True
        )
    ]
    assert jitter.flip.any()
    assert not jitter.flip.all()
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-4)


def test_a_resized_crop_of_real_images_is_pils_up_to_rounding(imagenet_root: Path) -> None:
    files = sorted(imagenet_root.glob("train/*/*"))[::40]
    pictures = np.stack([decode(file.read_bytes(), file.name, 144) for file in files])
    crop = ResizedCrop(side=112)
    jitter = crop.draw(len(pictures), rng(0))
    found = crop.cut(torch.from_numpy(pictures), jitter).numpy()
    boxes = jitter.place.numpy().astype(float) * 144
    shrinks = boxes[:, 2:].max(axis=1) > 112
    assert 0.2 < shrinks.mean() < 0.8
    for picture, (top, left, h, w), flip, cut in zip(
        pictures, boxes, jitter.flip.tolist(), found, strict=True
    ):
        box = (left, top, min(left + w, 144), min(top + h, 144))
        by_pil = Image.fromarray(picture).resize((112, 112), Image.Resampling.BILINEAR, box=box)
        due = np.asarray(by_pil).astype(float)
        off = np.abs(cut - (due[:, ::-1] if flip else due))
        assert off.max() < 1.1
        assert off.mean() < 0.4


def test_a_resized_crop_is_that_of_cut_and_resized_images_but_for_the_rim(
    imagenet_root: Path,
) -> None:
    files = sorted(imagenet_root.glob("train/*/*"))[::400]
    pictures = np.stack([decode(file.read_bytes(), file.name, 144) for file in files])
    crop = ResizedCrop(side=112)
    boxes = [(9, 40, 30, 70), (0, 3, 144, 140)] * (len(files) // 2)  # top, left, height, width
    place = torch.tensor(boxes) / 144
    jitter = Jitter(place, torch.zeros(len(files), dtype=torch.bool))
    found = crop.cut(torch.from_numpy(pictures), jitter).numpy()
    for picture, (top, left, h, w), cut in zip(pictures, boxes, found, strict=True):
        whole = Image.fromarray(picture).crop((left, top, left + w, top + h))
        by_pil = np.asarray(whole.resize((112, 112), Image.Resampling.BILINEAR)).astype(float)
        off = np.abs(cut - by_pil)
        assert off[3:-3, 3:-3].max() < 1.1
        assert (off > 1.1).mean() < 0.05


def test_evaluation_cuts_the_centre() -> None:
    found = for_evaluation(images(2, 20, 17), LITTLE)
    expected = [slow_normalised(i[4:16, 2:14], LITTLE) for i in images(2, 20, 17).numpy()]
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)
    assert for_evaluation(images(1, 256, 256), IMAGENET).shape == (1, 3, 224, 224)


def test_images_too_small_for_the_centre_are_refused() -> None:
    with pytest.raises(DataError, match="10×32 are smaller than the 12×12 to cut out"):
        for_evaluation(images(1, 10, 32), LITTLE)


# What is refused, and the constants kept between calls.


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (torch.zeros(2, 8, 8, 3), r"uint8 \(n, h, w, 3\), not torch.float32 \(2, 8, 8, 3\)"),
        (images(2).permute(0, 3, 1, 2), r"not torch.uint8 \(2, 3, 32, 32\)"),
        (images(2)[0], r"not torch.uint8 \(32, 32, 3\)"),
    ],
)
def test_other_than_uint8_pixels_are_refused(bad: Tensor, message: str) -> None:
    with pytest.raises(DataError, match=message):
        for_evaluation(bad, CIFAR)
    with pytest.raises(DataError, match=message):
        augment(bad, CIFAR.crop.draw(len(bad), rng()), CIFAR)


def test_a_jitter_for_other_images_is_refused() -> None:
    with pytest.raises(DataError, match="3 images but a jitter for 4"):
        augment(images(3), CIFAR.crop.draw(4, rng()), CIFAR)


def test_a_preparation_comes_by_name() -> None:
    assert find_transform("imagenet") is IMAGENET
    with pytest.raises(UnknownNameError, match="unknown preparation 'cifa': did you mean 'cifar'"):
        find_transform("cifa")


def test_a_first_call_in_inference_mode_does_not_spoil_training() -> None:
    own = ImageTransform((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    with torch.inference_mode():
        for_evaluation(images(1), own)
    weight = torch.ones(1, requires_grad=True)
    (weight * for_evaluation(images(1), own)).sum().backward()
    assert weight.grad is not None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("way", [CIFAR, CIFAR_BRIGHT, LITTLE])
def test_a_cuda_graph_holds_augmentation(way: ImageTransform) -> None:
    batch, jitter = images(8).cuda(), way.crop.draw(8, rng()).to("cuda")
    augment(batch, jitter, way)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = augment(batch, jitter, way)
    other = way.crop.draw(8, rng(1)).to("cuda")
    jitter.place.copy_(other.place)
    jitter.flip.copy_(other.flip)
    graph.replay()
    expected = augment(images(8), other.to("cpu"), way)
    torch.testing.assert_close(out.cpu(), expected, rtol=0, atol=1e-4)
