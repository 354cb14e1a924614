"""Every image is looked at before a benchmark is made of them, and every bad one is named."""

import io
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from polarbear.base.errors import DataError
from polarbear.benchmark.hierarchy import Hierarchy
from polarbear.benchmark.source import Source
from polarbear.data import verified, whole
from polarbear.data.decode import LARGEST, LazyImages, decode
from polarbear.data.folders import open_folders
from polarbear.data.table import open_table
from polarbear.data.whole import MOST_LISTED, refuse_bad_images

CLASSES = Hierarchy.flat(["bus", "lamp"])
PER_CLASS = {"train": 30, "test": 10}
SIDE = 16


def picture(suffix: str = ".png", side: int = SIDE, seed: int = 0) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, {".png": "PNG", ".jpg": "JPEG", ".webp": "WEBP"}[suffix])
    return file.getvalue()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Whole images in every format, and a cache of this test alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for split, count in PER_CLASS.items():
        for leaf in CLASSES.names:
            (tmp_path / "data" / split / leaf).mkdir(parents=True)
            for i in range(count):
                suffix = (".png", ".jpg", ".webp")[i % 3]
                file = tmp_path / "data" / split / leaf / f"{i:02}{suffix}"
                file.write_bytes(picture(suffix, seed=i))
    return tmp_path / "data"


def opened(folder: Path, size: int | None = None) -> Source:
    return open_folders(folder, CLASSES, size=size, cache=False)


def refusal(folder: Path, size: int | None = None) -> str:
    with pytest.raises(DataError) as caught:
        refuse_bad_images(opened(folder, size))
    return str(caught.value)


def bad_idat(content: bytes) -> bytes:
    """A PNG whose pixels are damaged, though every checksum of its parts is right."""
    begin = content.index(b"IDAT")
    (length,) = struct.unpack(">I", content[begin - 4 : begin])
    data = bytearray(content[begin + 4 : begin + 4 + length])
    data[len(data) // 2 :] = b"\xff" * (len(data) - len(data) // 2)
    check = struct.pack(">I", zlib.crc32(b"IDAT" + data))
    return content[: begin + 4] + data + check + content[begin + 8 + length :]


def bomb() -> bytes:
    """A PNG of 20,000 × 20,000 pixels, by its header."""
    header = struct.pack(">IIBBBBB", 20_000, 20_000, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    return (
        b"\x89PNG\r\n\x1a\n"
        + struct.pack(">I", len(header))
        + chunk
        + struct.pack(">I", zlib.crc32(chunk))
        + picture()[33:]
    )


BAD: dict[str, tuple[str, Callable[[], bytes]]] = {
    "a JPEG cut off": ("28.jpg", lambda: picture(".jpg")[:-200]),
    "a PNG cut off": ("27.png", lambda: picture()[:-100]),
    "a PNG with damaged pixels": ("27.png", lambda: bad_idat(picture())),
    "a WebP cut off": ("29.webp", lambda: picture(".webp")[:-50]),
    "no byte": ("28.jpg", bytes),
    "a text": ("28.jpg", lambda: b"This is a text."),
    "a bomb": ("27.png", bomb),
}


def test_whole_images_pass_with_progress(folder: Path) -> None:
    told: list[tuple[int, int]] = []
    refuse_bad_images(opened(folder), lambda done, total: told.append((done, total)))
    assert told == [(64, 80), (80, 80)]


@pytest.mark.parametrize("size", [None, 8])
@pytest.mark.parametrize("name", BAD)
def test_a_bad_image_far_behind_is_found(folder: Path, name: str, size: int | None) -> None:
    file, content = BAD[name]
    (folder / "train" / "lamp" / file).write_bytes(content())
    message = refusal(folder, size)
    assert message.startswith("1 of 80 images cannot be read:\n")
    assert f"{folder / 'train' / 'lamp' / file} (row " in message


def test_all_that_is_wrong_is_said_at_once(folder: Path) -> None:
    for name in ("train/bus/07.jpg", "test/lamp/09.png"):
        (folder / name).write_bytes(b"")
    (folder / "train/lamp/18.png").write_bytes(picture(side=20))
    message = refusal(folder)
    assert "2 of 80 images cannot be read:" in message
    assert "1 of 78 images are not 16×16 (height × width), as 77 are. Add --image-size N" in message
    for name in ("train/bus/07.jpg", "test/lamp/09.png", "train/lamp/18.png"):
        assert str(folder / name) in message
    assert "(row 48) is 20×20" in message
    (folder / "train/bus/07.jpg").write_bytes(picture(".jpg"))
    (folder / "test/lamp/09.png").write_bytes(picture())
    refuse_bad_images(opened(folder, size=8))


def test_a_long_list_is_cut(folder: Path) -> None:
    for file in (folder / "train" / "bus").iterdir():
        file.write_bytes(b"")
    message = refusal(folder)
    assert message.startswith("30 of 80 images cannot be read:")
    assert message.count("(row ") == MOST_LISTED
    assert message.endswith("and 10 more")


def test_other_kinds_of_images_become_rgb(folder: Path) -> None:
    rgb = Image.open(io.BytesIO(picture()))
    lamp = folder / "train" / "lamp"
    rgb.convert("CMYK").save(lamp / "01.jpg")
    rgb.quantize(16).save(lamp / "00.png", transparency=3)
    rgb.convert("L").save(lamp / "03.png")
    rgb.convert("LA").save(lamp / "06.png")
    rgb.convert("1").save(lamp / "09.png")
    frames = [Image.new("RGB", rgb.size, colour) for colour in ("red", "blue")]
    frames[0].save(lamp / "12.png", save_all=True, append_images=frames[1:])
    frames[0].save(lamp / "02.webp", save_all=True, append_images=frames[1:], lossless=True)
    refuse_bad_images(opened(folder))
    for name in ("12.png", "02.webp"):  # of several pictures, the first
        assert decode((lamp / name).read_bytes(), name)[3, 3].tolist() == [255, 0, 0]


@pytest.mark.parametrize("size", [None, 8])
def test_pixels_of_16_bits_are_refused(folder: Path, size: int | None) -> None:
    pixels = np.full((SIDE, SIDE), 40_000, np.uint16)
    Image.fromarray(pixels).save(folder / "train" / "lamp" / "27.png")
    assert "its pixels have more than 8 bits (mode I;16)" in refusal(folder, size)


def test_a_line_of_pixels_is_not_blown_up(folder: Path) -> None:
    Image.new("RGB", (60_000, 1)).save(folder / "train" / "lamp" / "27.png")
    assert "it is 60000×1, too narrow" in refusal(folder, size=256)


def test_a_size_beyond_reason_is_refused(folder: Path) -> None:
    with pytest.raises(DataError, match=f"size is {LARGEST} pixels at most; it is 16001"):
        opened(folder, size=16_001)


def test_a_pipe_among_the_images_holds_nobody_up(folder: Path) -> None:
    os.mkfifo(folder / "train" / "lamp" / "30.png")
    assert "30.png (row 60) cannot be read: it is no file" in refusal(folder)


def test_arrays_are_left_alone() -> None:
    images = np.zeros((4, 8, 8, 3), np.uint8)
    leaf = np.arange(4) % 2
    refuse_bad_images(Source(CLASSES.leaves, images, leaf, images, leaf))


class TestMemory:
    """Images once found whole are not decoded again while their files are the same."""

    @pytest.fixture(autouse=True)
    def _settled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(verified, "SETTLED_NS", 0)
        monkeypatch.setattr(whole, "SETTLED_NS", 0)

    @staticmethod
    def looked_at(source: Source) -> int:
        told = [0]
        refuse_bad_images(source, lambda done, _: told.append(done))
        return told[-1]

    def test_unchanged_files_are_known(self, folder: Path) -> None:
        assert self.looked_at(opened(folder)) == 80
        assert self.looked_at(opened(folder)) == 0
        assert self.looked_at(opened(folder, size=8)) == 80

    def test_a_changed_file_is_looked_at(self, folder: Path) -> None:
        refuse_bad_images(opened(folder))
        file = folder / "train" / "lamp" / "00.png"
        before = file.stat()
        file.write_bytes(file.read_bytes()[:-100] + b"x" * 100)
        os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
        assert "lamp/00.png" in refusal(folder)
        file.unlink()
        assert self.looked_at(opened(folder)) == 79

    def test_bad_images_are_not_remembered(self, folder: Path) -> None:
        (folder / "train" / "lamp" / "00.png").write_bytes(b"")
        assert refusal(folder) == refusal(folder)

    def test_those_of_a_table_are_known_too(self, folder: Path) -> None:
        files = sorted(f.relative_to(folder) for f in folder.rglob("*.*"))
        lines = [f"{f},{f.parent.name},{f.parts[0]}" for f in files]
        (folder.parent / "list.csv").write_text("\n".join(["path,label,split", *lines]))
        (folder.parent / "list.csv").rename(folder / "list.csv")
        assert self.looked_at(open_table(folder / "list.csv", CLASSES)) == 80
        assert self.looked_at(open_table(folder / "list.csv", CLASSES)) == 0

    def test_new_files_may_still_change(self, folder: Path, monkeypatch) -> None:
        monkeypatch.setattr(whole, "SETTLED_NS", 10**12)
        assert self.looked_at(opened(folder)) == self.looked_at(opened(folder)) == 80


def test_the_order_of_training_does_not_matter_to_the_message(folder: Path) -> None:
    (folder / "train" / "lamp" / "27.png").write_bytes(picture(side=20))
    images = opened(folder).train
    assert isinstance(images, LazyImages)
    with pytest.raises(DataError, match=r"image_size = N below \[data\]"):
        images[:]


def test_the_command_names_every_bad_file_and_writes_nothing(folder: Path, tmp_path: Path) -> None:
    for name in ("train/lamp/28.jpg", "test/bus/00.png"):
        (folder / name).write_bytes(b"")
    (folder / "hierarchy.toml").write_text('alone = ["bus"]\n[tree]\nlight = ["lamp"]\n')
    code = "import sys; from polarbear.cli import main; sys.exit(main(sys.argv[1:]))"
    words = ("new-benchmark", "zoo", "--data", str(folder), "--out", str(tmp_path / "zoo"))
    ended = subprocess.run(
        [sys.executable, "-c", code, *words], check=False, capture_output=True, text=True
    )
    assert ended.returncode == 2, ended.stderr
    assert "looking at all images: 80 of 80" in ended.stderr
    assert "2 of 80 images cannot be read" in ended.stderr
    assert "train/lamp/28.jpg" in ended.stderr
    assert "test/bus/00.png" in ended.stderr
    assert not (tmp_path / "zoo").exists()
