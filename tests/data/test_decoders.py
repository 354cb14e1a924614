"""Images decoded by processes of their own: the same pixels and errors, and none is left behind."""

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from polarbear.base.errors import DataError
from polarbear.data import decode as decode_module
from polarbear.data import decoders as module
from polarbear.data.decode import LazyImages, decode, workers_or_default
from polarbear.data.decoders import Decoders


def jpeg(seed: int, width: int = 60, height: int = 48, mode: str = "RGB", **how: Any) -> bytes:
    """Return a smooth picture of its own as a JPEG."""
    random = np.random.default_rng(seed)
    small = Image.fromarray(random.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    out = io.BytesIO()
    small.resize((width, height), Image.Resampling.BICUBIC).convert(mode).save(out, "JPEG", **how)
    return out.getvalue()


@dataclass(frozen=True, eq=False)
class InMemory:
    """Encoded images in memory."""

    files: list[bytes]

    def __len__(self) -> int:
        return len(self.files)

    def encoded(self, row: int) -> bytes:
        return self.files[row]

    def name(self, row: int) -> str:
        return f"{row}.jpg"

    where = name


FILES = [jpeg(seed) for seed in range(50)]


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Decoders]:
    """Two processes that are worth their start from the first image on."""
    monkeypatch.setattr(module, "WORTH_A_START", 0)
    monkeypatch.setattr(module, "_pools", {})
    found = module.decoders(2, 0)
    assert found is not None
    yield found
    found.close()


def both_ways(images: LazyImages, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """Return images, or the error, by processes and by threads."""
    found = []
    for worth in (0, 10**9):
        monkeypatch.setattr(module, "WORTH_A_START", worth)
        try:
            found.append(images[:])
        except DataError as error:
            found.append(str(error))
    return found[0], found[1]


@pytest.mark.parametrize("size", [None, 48, 32, 100])
def test_processes_give_the_pixels_of_threads(
    pool: Decoders, monkeypatch: pytest.MonkeyPatch, size: int | None
) -> None:
    asked = []
    do = Decoders.do

    def spy(self: Decoders, *given: Any, **more: Any) -> Any:
        asked.append(given)
        return do(self, *given, **more)

    monkeypatch.setattr(Decoders, "do", spy)
    fast, slow = both_ways(LazyImages(InMemory(FILES), size, workers=2), monkeypatch)
    assert len(asked) == 4  # 49 images, 16 at a time; the first says how large they are
    assert (fast == slow).all()


@pytest.mark.parametrize(
    "wrong", [FILES[7][:200], b"no image", jpeg(0, 61, 48), jpeg(0, 9999, 9), jpeg(0, 1, 1)]
)
@pytest.mark.parametrize("size", [None, 32])
def test_what_is_wrong_with_an_image_is_said_as_ever(
    pool: Decoders, monkeypatch: pytest.MonkeyPatch, wrong: bytes, size: int | None
) -> None:
    files = InMemory([*FILES[:20], wrong, *FILES[20:]])
    fast, slow = both_ways(LazyImages(files, size, workers=2), monkeypatch)
    if isinstance(slow, str):
        assert "20.jpg" in slow
        assert fast == slow
    else:
        assert (fast == slow).all()


def test_where_a_process_is_killed_threads_do_its_work(
    pool: Decoders, caplog: pytest.LogCaptureFixture
) -> None:
    images = LazyImages(InMemory(FILES), 32, workers=2)
    expected = np.stack([images[row] for row in range(len(images))])
    os.kill(pool._all[0]._process.pid, signal.SIGKILL)
    for _ in range(3):
        assert (images[:] == expected).all()
    assert len(caplog.messages) == 1
    assert "threads do its work" in caplog.text


def test_what_stops_a_run_leaves_its_processes_to_it(pool: Decoders) -> None:
    """Ctrl-C and SIGTERM come to a whole group, and a run decodes on to its next checkpoint."""
    groups = {os.getpgid(one._process.pid) for one in pool._all}
    assert os.getpgid(0) not in groups


def test_where_there_is_no_room_threads_do_the_work(
    pool: Decoders, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_lengthen", full)
    images = LazyImages(InMemory(FILES), 32, workers=2)
    assert (images[:][7] == images[7]).all()


def test_few_images_start_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_pools", {})
    monkeypatch.setattr(module, "_asked_for", 0)
    assert LazyImages(InMemory(FILES), 32, workers=2)[:].shape == (50, 32, 32, 3)
    assert not module._pools


SCRIPT = """
import sys, time
sys.path[:0] = {paths!r}
from polarbear.data import decoders
from test_decoders import FILES, InMemory
from polarbear.data.decode import LazyImages
decoders.WORTH_A_START = 0
assert LazyImages(InMemory(FILES), 32, workers=2)[:].any()
(pool,) = decoders._pools.values()
print(*(one._process.pid for one in pool._all), flush=True)
time.sleep({seconds})
"""


@pytest.mark.parametrize("killed", [True, False])
def test_processes_end_with_the_one_that_started_them(tmp_path: Path, killed: bool) -> None:
    """In a script that does all on its first level, as few libraries' processes allow."""
    paths = [str(Path(__file__).parent), *sys.path]
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(paths=paths, seconds=600 if killed else 0))
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        own = [int(word) for word in process.stdout.readline().split()]
        assert len(own) == 2
        if killed:
            process.kill()
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}/cmdline").exists() for pid in own):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_processes_that_train_together_share_the_processors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)), raising=False)
    assert workers_or_default(None) == 12
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert workers_or_default(None) == 3
    assert workers_or_default(5) == 5


JPEGS = {
    "usual": jpeg(1, 500, 375, quality=90),
    "exact": jpeg(2, 300, 256, quality=90),
    "small": jpeg(3, 90, 70),
    "grey": jpeg(4, 400, 300, mode="L"),
    "CMYK": jpeg(5, 400, 300, mode="CMYK"),
    "progressive": jpeg(6, 400, 300, progressive=True),
    "no subsampling": jpeg(7, 401, 303, subsampling=0),
    "large": jpeg(8, 2400, 1800),
    "more at the end": jpeg(9, 400, 300) + b"\0" * 50,
}


@pytest.mark.parametrize("kind", JPEGS)
@pytest.mark.parametrize("size", [None, 256])
def test_libraries_agree_on_every_pixel(
    monkeypatch: pytest.MonkeyPatch, kind: str, size: int | None
) -> None:
    pytest.importorskip("simplejpeg", reason="simplejpeg, the extra jpeg, is not installed")
    fast = decode(JPEGS[kind], "", size)
    monkeypatch.setattr(decode_module, "_simplejpeg", lambda: None)
    assert (fast == decode(JPEGS[kind], "", size)).all()


def test_real_images_are_the_same_by_both_libraries(
    imagenet_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("simplejpeg", reason="simplejpeg, the extra jpeg, is not installed")
    files = [file.read_bytes() for file in sorted(imagenet_root.glob("val/*/*"))[::20]]
    assert len(files) == 100
    fast = [(decode(one, ""), decode(one, "", 112)) for one in files]
    monkeypatch.setattr(decode_module, "_simplejpeg", lambda: None)
    for one, (whole, cut) in zip(files, fast, strict=True):
        assert (decode(one, "") == whole).all()
        assert (decode(one, "", 112) == cut).all()


def test_a_jpeg_cut_off_is_refused_by_both_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in (decode_module._simplejpeg(), None):
        monkeypatch.setattr(decode_module, "_simplejpeg", lambda library=library: library)
        with pytest.raises(DataError, match=r"x\.jpg"):
            decode(JPEGS["usual"][:3000], "x.jpg")
