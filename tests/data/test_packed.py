"""Packed file sets: what goes in comes out, and nothing half written is taken for whole."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from at_once import at_once
from polarbear import Hierarchy
from polarbear.base.errors import DataError
from polarbear.benchmark.source import Source
from polarbear.data import decoders
from polarbear.data.decode import decode
from polarbear.data.folders import open_folders
from polarbear.data.pack import pack
from polarbear.data.packed import open_packed, verify_packed

CLASSES = Hierarchy.flat(["bus", "lamp", "mug"])


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """Smooth pictures of many sizes: some above short side 24, some below; JPEG and PNG."""
    root = tmp_path_factory.mktemp("folders")
    random = np.random.default_rng(0)
    for split, count in (("train", 7), ("test", 2)):
        for leaf in CLASSES.names:
            folder = root / split / leaf
            folder.mkdir(parents=True)
            for i in range(count):
                seed = Image.fromarray(random.integers(0, 256, (3, 3, 3), np.uint8))
                picture = seed.resize(random.integers(12, 60, 2).tolist(), Image.Resampling.BICUBIC)
                picture.save(folder / f"{i}{'.png' if i % 3 == 2 else '.jpg'}")
    return open_folders(root, CLASSES, size=24, cache=False)


@pytest.fixture(scope="module")
def whole(source: Source, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return pack(source, tmp_path_factory.mktemp("sets") / "packed", size=24)


@pytest.fixture
def packed(whole: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(whole, tmp_path / "packed"))


def test_labels_names_and_counts_come_back(source, whole):
    back = open_packed(whole)
    assert back.leaves == source.leaves
    for split in ("train", "test"):
        ours, theirs = back.images(split), source.images(split)
        np.testing.assert_array_equal(
            getattr(back, f"{split}_leaf"), getattr(source, f"{split}_leaf")
        )
        rows = range(len(theirs))
        assert [ours.files.name(r) for r in rows] == [theirs.files.name(r) for r in rows]


def test_random_reads_equal_the_stored_bytes_decoded(whole):
    images = open_packed(whole).train
    rows = np.random.default_rng(1).integers(0, len(images), 50)
    batch = images[rows]
    assert batch.shape == (50, 24, 24, 3)
    content = (whole / "images.bin").read_bytes()
    for image, row in zip(batch, rows, strict=True):
        begin, end = images.files.offsets[row : row + 2]
        np.testing.assert_array_equal(image, decode(content[begin:end], "it", 24))


def test_images_are_those_of_the_folders(source, whole):
    back = open_packed(whole)
    for split in ("train", "test"):
        difference = back.images(split)[:].astype(int) - source.images(split)[:]
        assert np.abs(difference).mean(axis=(1, 2, 3)).max() < 4  # JPEG at quality 90


def test_small_images_keep_their_bytes_and_large_ones_shrink(source, whole):
    files, originals = open_packed(whole).train.files, source.train.files
    kept = 0
    for row in range(len(files)):
        original = source.train.image(row)
        height, width = files.shapes[row]
        assert open_packed(whole).train.image(row).shape == (height, width, 3)
        if min(original.shape[:2]) <= 24:
            assert files.encoded(row) == originals.encoded(row)
            kept += 1
        else:
            assert min(height, width) == 24
            assert max(height, width) == 24 * max(original.shape[:2]) // min(original.shape[:2])
    assert 0 < kept < len(files)


def test_another_size_can_be_asked_for(whole):
    assert open_packed(whole, size=16).test[[0, 3]].shape == (2, 16, 16, 3)


def test_the_same_images_give_the_same_set(source, whole, tmp_path):
    again = pack(source, tmp_path / "again", size=24, workers=1)
    assert (again / "images.bin").read_bytes() == (whole / "images.bin").read_bytes()
    assert open_packed(again).checksum == open_packed(whole).checksum


def test_other_labels_give_another_checksum(source, whole, tmp_path):
    other = pack(replace(source, train_leaf=source.train_leaf[::-1]), tmp_path / "o", size=24)
    assert open_packed(other).checksum != open_packed(whole).checksum


def test_a_set_can_be_packed_again_smaller(whole, tmp_path):
    smaller = open_packed(pack(open_packed(whole), tmp_path / "small", size=12))
    assert smaller.train[:3].shape == (3, 12, 12, 3)
    assert smaller.train.files.name(4) == open_packed(whole).train.files.name(4)


def test_progress_ends_with_the_total(source, tmp_path):
    calls: list[tuple[int, int]] = []
    pack(source, tmp_path / "p", size=24, progress=lambda done, total: calls.append((done, total)))
    assert calls[-1] == (27, 27)


def test_no_unfinished_folder_stays_behind(source, tmp_path):
    pack(source, tmp_path / "p", size=24)
    assert [f.name for f in tmp_path.iterdir()] == ["p"]


def test_a_run_cut_off_leaves_no_set_and_the_next_one_succeeds(source, whole, tmp_path):
    class CutOffError(Exception):
        pass

    def cut_off(done: int, total: int) -> None:
        raise CutOffError

    with pytest.raises(CutOffError):
        pack(source, tmp_path / "p", size=24, progress=cut_off)
    assert [f.name for f in tmp_path.iterdir()] == ["p.part"]
    with pytest.raises(DataError, match=r"holds no packed images.*p.part is one .* never finished"):
        open_packed(tmp_path / "p")
    pack(source, tmp_path / "p", size=24)
    assert [f.name for f in tmp_path.iterdir()] == ["p"]
    assert open_packed(tmp_path / "p").checksum == open_packed(whole).checksum


class CutOffError(Exception):
    """A process that ends where it should not."""


def cut_off_at(row: int, source, folder, **more):
    """Pack until an image cannot be asked for any more, as where a disk is pulled out."""
    read = type(source.train.files).encoded

    def encoded(files, number):
        if number == row and files is source.train.files:
            raise CutOffError
        return read(files, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(source.train.files), "encoded", encoded)
        with pytest.raises(CutOffError):
            pack(source, folder, **more)


def rows_read(source, folder, **more):
    """Pack and give the training rows that were read meanwhile."""
    read, rows = type(source.train.files).encoded, []

    def encoded(files, number):
        rows.extend([number] if files is source.train.files else [])
        return read(files, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(source.train.files), "encoded", encoded)
        pack(source, folder, **more)
    return sorted(rows)


def test_packing_goes_on_where_it_was_cut_off(source, whole, tmp_path):
    calls = []
    cut_off_at(6, source, tmp_path / "p", size=24, workers=1)
    again = {"size": 24, "progress": lambda done, total: calls.append(done)}
    assert rows_read(source, tmp_path / "p", **again) == list(range(6, len(source.train)))
    assert calls[-1] == 27
    assert sorted(f.name for f in (tmp_path / "p").iterdir()) == sorted(
        f.name for f in whole.iterdir()
    )
    verify_packed(tmp_path / "p")
    assert open_packed(tmp_path / "p").checksum == open_packed(whole).checksum


def test_packing_goes_on_before_what_was_half_written(source, whole, tmp_path):
    cut_off_at(6, source, tmp_path / "p", size=24, workers=1)
    with (tmp_path / "p.part" / "images.bin").open("ab") as file:
        file.write(b"half an image")
    with (tmp_path / "p.part" / "written.bin").open("ab") as file:
        file.write(bytes(48) + b"half a note")  # zeros, as a power cut may leave them
    assert rows_read(source, tmp_path / "p", size=24)[0] == 6
    assert open_packed(tmp_path / "p").checksum == open_packed(whole).checksum
    verify_packed(tmp_path / "p")


def test_packing_goes_on_before_images_that_did_not_reach_the_disk(source, whole, tmp_path):
    cut_off_at(6, source, tmp_path / "p", size=24, workers=1)
    images = tmp_path / "p.part" / "images.bin"
    images.write_bytes(images.read_bytes()[:-10])
    assert rows_read(source, tmp_path / "p", size=24)[0] == 5
    assert open_packed(tmp_path / "p").checksum == open_packed(whole).checksum
    verify_packed(tmp_path / "p")


def test_with_another_size_packing_begins_anew(source, tmp_path):
    cut_off_at(6, source, tmp_path / "p", size=24, workers=1)
    assert rows_read(source, tmp_path / "p", size=20)[0] == 0
    verify_packed(tmp_path / "p")


def test_packing_goes_on_when_a_damaged_image_was_replaced(source, whole, tmp_path):
    root = Path(shutil.copytree(source.origin, tmp_path / "data"))
    good = (root / "train/bus/1.jpg").read_bytes()
    (root / "train/bus/1.jpg").write_bytes(good[:300])
    with pytest.raises(DataError, match="1 image cannot be packed"):
        pack(open_folders(root, CLASSES, cache=False), tmp_path / "p", size=24)
    (root / "train/bus/1.jpg").write_bytes(good)
    again = open_folders(root, CLASSES, cache=False)
    assert rows_read(again, tmp_path / "p", size=24)[0] == 1
    assert open_packed(tmp_path / "p").checksum == open_packed(whole).checksum


def test_processes_pack_the_same_set(source, whole, tmp_path, monkeypatch):
    monkeypatch.setattr(decoders, "WORTH_A_START", 0)
    monkeypatch.setattr(decoders, "_pools", {})
    pack(source, tmp_path / "p", size=24, workers=2)
    (pool,) = decoders._pools.values()
    pool.close()
    assert open_packed(tmp_path / "p").checksum == open_packed(whole).checksum


def test_an_unfinished_folder_is_no_set(source, packed):
    (packed / "polarbear-packed.json").unlink()
    with pytest.raises(DataError, match="holds no packed images"):
        open_packed(packed)


def test_nothing_of_the_user_is_removed(source, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").touch()
    with pytest.raises(DataError, match="exists already"):
        pack(source, tmp_path / "full")
    (tmp_path / "p.part").mkdir()
    (tmp_path / "p.part" / "thesis.tex").touch()
    with pytest.raises(DataError, match=r"p.part holds thesis.tex, not ours"):
        pack(source, tmp_path / "p")
    assert (tmp_path / "p.part" / "thesis.tex").exists()


def test_of_several_processes_that_pack_at_once_one_succeeds(source, whole, tmp_path):
    before = (
        "import sys\nfrom polarbear import Hierarchy\nfrom polarbear.data.pack import pack\n"
        "from polarbear.data.folders import open_folders\n"
        "classes = Hierarchy.flat(['bus', 'lamp', 'mug'])\n"
        "source = open_folders(sys.argv[1], classes, cache=False)\n"
    )
    for i in range(3):
        folder = tmp_path / f"p{i}"
        ended = at_once(3, before, "pack(source, sys.argv[2], size=24)", source.origin, folder)
        assert sorted(one.code for one in ended) == [0, 1, 1], ended
        for refusal in (one.error.splitlines()[-1] for one in ended if one.code):
            assert "is being made by another process" in refusal or "exists already" in refusal
        verify_packed(folder)
        assert open_packed(folder).checksum == open_packed(whole).checksum
    assert sorted(f.name for f in tmp_path.iterdir()) == ["p0", "p1", "p2"]


def test_every_unreadable_image_is_named(source, tmp_path):
    root = Path(shutil.copytree(source.origin, tmp_path / "data"))
    for name in ("train/bus/1.jpg", "test/mug/0.jpg"):
        (root / name).write_bytes((root / name).read_bytes()[:300])
    with pytest.raises(DataError, match="2 images cannot be packed") as caught:
        pack(open_folders(root, CLASSES, cache=False), tmp_path / "p", size=24)
    assert "bus/1.jpg (row 1) cannot be read" in str(caught.value)
    assert "mug/0.jpg (row 4) cannot be read" in str(caught.value)
    assert not (tmp_path / "p").exists()


def test_a_folder_of_rubbish_is_given_up_early(tmp_path):
    for split in ("train", "test"):
        (tmp_path / split / "bus").mkdir(parents=True)
        for i in range(100):
            (tmp_path / split / "bus" / f"{i}.jpg").touch()
    with pytest.raises(DataError, match="20 images cannot be packed"):
        pack(open_folders(tmp_path, Hierarchy.flat(["bus"]), cache=False), tmp_path / "p")


def test_arrays_are_not_packed(source, tmp_path):
    arrays = replace(source, train=source.train[:])
    with pytest.raises(DataError, match=r"only image files .*ndarray, which needs no packing"):
        pack(arrays, tmp_path / "p")


@pytest.mark.parametrize("wrong", [{"size": 0}, {"size": 16_001}, {"quality": 0}, {"quality": 101}])
def test_wrong_settings(source, tmp_path, wrong):
    with pytest.raises(DataError, match="size is 1 to 2048, quality 1 to 100"):
        pack(source, tmp_path / "p", **wrong)
    assert [f.name for f in tmp_path.iterdir()] == []


class TestDamage:
    @pytest.mark.parametrize("change", [lambda b: b[:-1], lambda b: b + b"x", lambda b: b""])
    def test_images_cut_off_or_longer(self, packed, change):
        file = packed / "images.bin"
        file.write_bytes(change(file.read_bytes()))
        with pytest.raises(
            DataError, match=r"images.bin has .* bytes instead of .* Pack the images again"
        ):
            open_packed(packed)

    def test_images_missing(self, packed):
        (packed / "images.bin").unlink()
        with pytest.raises(DataError, match="has 0 bytes instead of"):
            open_packed(packed)

    def test_cut_off_after_opening(self, packed):
        images = open_packed(packed).test
        with (packed / "images.bin").open("rb+") as file:
            file.truncate(1000)
        with pytest.raises(DataError, match=r"\(row 5\) is cut off"):
            images[5]

    def test_index_cut_off(self, packed):
        file = packed / "index.npz"
        file.write_bytes(file.read_bytes()[:-100])
        with pytest.raises(DataError, match=r"index.npz cannot be read"):
            open_packed(packed)

    @pytest.mark.parametrize(
        ("key", "value", "message"),
        [
            ("train", 20, "does not fit"),
            ("version", 2, "version 2, this polarbear reads 'polarbear-packed' version 1"),
            ("format", "zip", "format is 'zip'"),
            ("flavour", "sweet", "flavour"),
        ],
    )
    def test_header_altered(self, packed, key, value, message):
        file = packed / "polarbear-packed.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {key: value}))
        with pytest.raises(DataError, match=message):
            open_packed(packed)

    @pytest.mark.parametrize("text", ["", "[]", "{", '{"format": "polarbear-packed"}'])
    def test_header_unreadable(self, packed, text):
        (packed / "polarbear-packed.json").write_text(text)
        with pytest.raises(DataError, match=r"polarbear-packed.json cannot be read"):
            open_packed(packed)

    def test_one_changed_byte_is_found(self, packed):
        verify_packed(packed)
        content = bytearray((packed / "images.bin").read_bytes())
        content[len(content) // 2] ^= 1
        (packed / "images.bin").write_bytes(content)
        open_packed(packed)
        with pytest.raises(DataError, match="no longer has the sha256"):
            verify_packed(packed)
