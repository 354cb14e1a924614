"""Decoding: sizes, indexing like an array, and errors that name the image."""

import io
import pickle
import re
import sys
from dataclasses import dataclass

import numpy as np
import pytest
from PIL import Image

from polarbear.base.errors import DataError, install_line
from polarbear.data.decode import LazyImages, decode


@dataclass(frozen=True)
class Stored:
    """Encoded images in a tuple."""

    content: tuple[bytes, ...]

    def __len__(self) -> int:
        return len(self.content)

    def encoded(self, row: int) -> bytes:
        return self.content[row]

    def name(self, row: int) -> str:
        return f"{row}.png"

    def where(self, row: int) -> str:
        return f"here/{row}.png (row {row})"


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


@pytest.fixture(scope="module")
def pixels() -> np.ndarray:
    return np.stack([noise(6, 5, seed) for seed in range(7)])


@pytest.fixture(scope="module")
def images(pixels: np.ndarray) -> LazyImages:
    return LazyImages(Stored(tuple(encoded(Image.fromarray(p)) for p in pixels)), workers=3)


@pytest.mark.parametrize(
    "rows",
    [
        3,
        -1,
        np.int64(2),
        slice(1, 6, 2),
        slice(None, None, -1),
        [4, 0, 4],
        np.array([6, 1], np.uint8),
        np.array([-1, -7]),
        np.arange(7) % 2 == 0,
    ],
)
def test_rows_work_as_on_an_array(images, pixels, rows):
    found = images[rows]
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found, pixels[rows])


def test_no_rows_give_no_images(images):
    assert len(images[[]]) == 0
    assert LazyImages(images.files, size=4)[np.empty(0, int)].shape == (0, 4, 4, 3)


def test_a_loop_ends_at_the_last_image(images, pixels):
    assert len(list(images)) == len(pixels)


@pytest.mark.parametrize("rows", [7, -8, [0, 7]])
def test_rows_out_of_range(images, rows):
    with pytest.raises(IndexError, match="rows are 0 to 6"):
        images[rows]


@pytest.mark.parametrize("rows", [[[0, 1]], [0.5], [True, False]])
def test_rows_that_are_no_row_numbers(images, rows):
    with pytest.raises(DataError, match=r"whole numbers or a \(7,\) mask"):
        images[rows]


def test_different_sizes_need_a_size():
    files = Stored((encoded(Image.fromarray(noise(6, 5))), encoded(Image.fromarray(noise(8, 5)))))
    with pytest.raises(DataError, match=r"here/0.png .*\(6, 5\).*here/1.png .*\(8, 5\).*size="):
        LazyImages(files)[:]
    assert LazyImages(files, size=4)[:].shape == (2, 4, 4, 3)
    assert LazyImages(files, size=4).image(1).shape == (8, 5, 3)


@pytest.mark.parametrize(("height", "width"), [(40, 60), (61, 40), (10, 10), (7, 9)])
def test_size_is_the_middle_of_the_resized_image(height, width):
    picture = Image.fromarray(noise(height, width))
    short = min(height, width)
    whole = picture.resize((20 * width // short, 20 * height // short), Image.Resampling.BILINEAR)
    left, top = (whole.width - 20) // 2, (whole.height - 20) // 2
    expected = np.asarray(whole)[top : top + 20, left : left + 20]
    np.testing.assert_array_equal(decode(encoded(picture), "it", 20), expected)


def test_large_jpegs_decode_small_without_showing():
    ramp = np.linspace(0, 255, 1200, dtype=np.uint8)
    photo = np.stack(np.broadcast_arrays(ramp[:800, None], ramp[None], 128), -1).astype(np.uint8)
    jpeg = encoded(Image.fromarray(photo), "JPEG", quality=95)
    whole = Image.fromarray(decode(jpeg, "it")).resize((96, 64), Image.Resampling.BILINEAR)
    small = decode(jpeg, "it", 64).astype(int)
    assert np.abs(small - np.asarray(whole)[:, 16:80]).max() <= 2


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "1", "LA"])
def test_every_mode_becomes_rgb(mode):
    kind = "TIFF" if mode == "CMYK" else "PNG"
    assert decode(encoded(Image.new(mode, (5, 4)), kind), "it").shape == (4, 5, 3)


def test_a_palette_with_transparency_does_not_warn():
    image = Image.new("P", (4, 4))
    content = encoded(image, "PNG", transparency=b"\x00\x80")
    assert decode(content, "it").shape == (4, 4, 3)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no image at all",
        encoded(Image.fromarray(noise(50, 50)), "JPEG")[:800],
        encoded(Image.fromarray(noise(50, 50)), "PNG")[:800],
    ],
    ids=["empty", "text", "cut JPEG", "cut PNG"],
)
def test_an_unreadable_image_is_named(content):
    good = encoded(Image.fromarray(noise(50, 50)))
    images = LazyImages(Stored((good, good, content, good)))
    for take in (lambda: images[2], lambda: images[:], lambda: images.image(2)):
        with pytest.raises(DataError, match=r"here/2.png \(row 2\) cannot be read as an image: ."):
            take()


@pytest.mark.parametrize("wrong", [{"size": 0}, {"workers": 0}, {"size": -3}])
def test_size_and_workers_count_from_one(images, wrong):
    with pytest.raises(DataError, match="counts from 1"):
        LazyImages(images.files, **wrong)


def test_images_travel_to_other_processes(images, pixels):
    copy = pickle.loads(pickle.dumps(images))
    np.testing.assert_array_equal(copy[:], pixels)


def test_without_pillow_the_extra_is_named(images, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    with pytest.raises(DataError, match=re.escape(install_line("images"))):
        LazyImages(images.files)
