"""CIFAR-100 from official files, .npz and parquet gives the same rows; damage is named."""

import io
import os
import pickle
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from polarbear.base.errors import DataError, install_line
from polarbear.base.files import file_digest
from polarbear.data import cifar100
from polarbear.data.cifar100 import from_npz, from_parquet, open_cifar100
from polarbear.data.cifar100_official import (
    CIFAR100_LEAVES,
    OFFICIAL,
    PlanarImages,
    from_official,
)


@pytest.fixture(scope="module")
def source(cifar_root):
    return open_cifar100(cifar_root)


@pytest.fixture(scope="module")
def unpickled(cifar_root):
    """The official files as their pickle gives them: the slow twin of the reader."""

    def load(name):
        path = cifar_root / "cifar-100-python" / name
        with path.open("rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # NumPy finds the old pickle's way outdated
            return pickle.load(file, encoding="bytes")

    return {name: load(name) for name in ("train", "test", "meta")}


@pytest.fixture
def planes(tmp_path):
    """Made-up images in planes, 5 bytes into a file, and the same as (70, 32, 32, 3)."""
    pixels = np.random.default_rng(0).integers(0, 256, (70, 3, 32, 32), dtype=np.uint8)
    path = tmp_path / "planes"
    path.write_bytes(b"12345" + pixels.tobytes() + b"end")
    return PlanarImages(path, 5, 70), pixels.transpose(0, 2, 3, 1)


def made_up(train=6, test=4, seed=0):
    rng = np.random.default_rng(seed)
    arrays = {}
    for split, n in (("train", train), ("test", test)):
        arrays[f"{split}_images"] = rng.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)
        arrays[f"{split}_labels"] = rng.integers(0, 100, n)
    return arrays


def same(source, arrays):
    for split in ("train", "test"):
        np.testing.assert_array_equal(source.images(split)[:], arrays[f"{split}_images"])
        leaf = getattr(source, f"{split}_leaf")
        np.testing.assert_array_equal(leaf, np.ravel(arrays[f"{split}_labels"]))
    return True


# --- official files ---


def test_leaves_are_the_meta_file(unpickled):
    names = unpickled["meta"][b"fine_label_names"]
    assert tuple(name.decode() for name in names) == CIFAR100_LEAVES


def test_table_fits_the_files(cifar_root):
    for name, expected in OFFICIAL.items():
        path = cifar_root / "cifar-100-python" / name
        assert path.stat().st_size == expected.size
        assert file_digest(path, "md5") == expected.md5
        assert file_digest(path, "sha256") == expected.sha256


@pytest.mark.parametrize("split", ["train", "test"])
def test_official_rows_are_what_the_pickle_holds(source, unpickled, split):
    data = unpickled[split]
    leaf = source.train_leaf if split == "train" else source.test_leaf
    np.testing.assert_array_equal(leaf, data[b"fine_labels"])
    images = np.asarray(source.images(split))
    assert images.shape == (len(leaf), 32, 32, 3)
    planes = data[b"data"].reshape(-1, 3, 32, 32)
    for start in range(0, len(planes), 1000):
        rows = slice(start, start + 1000)
        np.testing.assert_array_equal(images[rows], planes[rows].transpose(0, 2, 3, 1))


def test_official_source(source, cifar_root):
    assert source.leaves == CIFAR100_LEAVES
    assert np.bincount(source.train_leaf).tolist() == [500] * 100
    assert np.bincount(source.test_leaf).tolist() == [100] * 100
    assert not source.train_leaf.flags.writeable
    assert OFFICIAL["train"].sha256 in source.checksum
    assert OFFICIAL["test"].sha256 in source.checksum
    assert source.origin == str(cifar_root / "cifar-100-python")
    unverified = open_cifar100(cifar_root / "cifar-100-python", verify=False)
    assert unverified.checksum == ""
    np.testing.assert_array_equal(unverified.test_leaf, source.test_leaf)


def test_opening_maps_the_pixels(cifar_root):
    code = """
import sys
from polarbear.data.cifar100 import open_cifar100
def peak():
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
before = peak()
source = open_cifar100(sys.argv[1])
source.train[[0, 49_999]]
print(peak() - before)
"""
    if not Path("/proc/self/status").exists():
        pytest.skip("needs /proc to measure memory")
    run = [sys.executable, "-c", code, str(cifar_root)]
    grown = int(subprocess.run(run, check=True, capture_output=True, text=True).stdout)
    assert grown < 30_000  # kB; the pixels are 184,000


def copy_official(cifar_root, root, name):
    """A folder with the official files, of which ``name`` is a copy to damage."""
    folder = root / "cifar-100-python"
    folder.mkdir()
    for other in ("train", "test"):
        content = cifar_root / "cifar-100-python" / other
        if other == name:
            (folder / other).write_bytes(content.read_bytes())
        else:
            (folder / other).symlink_to(content)
    return folder / name


def test_truncated_file_is_named(cifar_root, tmp_path):
    path = copy_official(cifar_root, tmp_path, "test")
    os.truncate(path, 30_000_000)
    for verify in (True, False):
        with pytest.raises(DataError) as caught:
            open_cifar100(tmp_path, verify=verify)
        message = str(caught.value)
        assert f"{path} is truncated: it has 30,000,000 bytes" in message
        assert "31,049,707" in message
        assert message.endswith(f"polarbear fetch cifar100 --root {tmp_path}")


def test_longer_file_is_refused(cifar_root, tmp_path):
    path = copy_official(cifar_root, tmp_path, "test")
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(DataError, match=r"is too long: it has 31,049,711 bytes"):
        open_cifar100(tmp_path)


def test_altered_file_is_named_with_both_checksums(cifar_root, tmp_path):
    path = copy_official(cifar_root, tmp_path, "test")
    with path.open("r+b") as file:
        file.seek(20_000_000)
        byte = file.read(1)[0]
        file.seek(20_000_000)
        file.write(bytes([byte ^ 1]))
    with pytest.raises(DataError) as caught:
        open_cifar100(tmp_path)
    message = str(caught.value)
    assert f"{path} is altered" in message
    assert file_digest(path, "md5") in message
    assert OFFICIAL["test"].md5 in message
    assert "polarbear fetch cifar100" in message


def test_labels_out_of_place_are_refused_even_unverified(cifar_root, tmp_path):
    path = copy_official(cifar_root, tmp_path, "test")
    with path.open("r+b") as file:
        file.seek(OFFICIAL["test"].labels + 1)
        file.write(b"X")
    with pytest.raises(DataError, match="is altered: there are no labels in their place"):
        open_cifar100(tmp_path, verify=False)


def test_missing_official_file_is_named(tmp_path):
    (tmp_path / "train").write_bytes(b"")
    with pytest.raises(DataError, match="train is truncated"):
        from_official(tmp_path)
    (tmp_path / "train").unlink()
    (tmp_path / "test").write_bytes(b"")
    with pytest.raises(DataError, match="train is missing"):
        open_cifar100(tmp_path)


def test_nothing_there_says_where_it_looked(tmp_path):
    (tmp_path / "train").mkdir()  # a folder of images, not the official file
    with pytest.raises(DataError) as caught:
        open_cifar100(tmp_path)
    message = str(caught.value)
    places = ("cifar-100-python", "cifar100.npz", "data", "cifar100")
    assert all(str(tmp_path / place) in message for place in places)
    assert message.endswith(f"polarbear fetch cifar100 --root {tmp_path}")
    with pytest.raises(DataError, match=r"the folder .*absent does not exist"):
        open_cifar100(tmp_path / "absent")


# --- images in planes ---


ROWS = [
    3,
    -1,
    np.int64(2),
    [5, 0, 5],
    np.array([6, 1]),
    slice(1, 6, 2),
    slice(None),
    np.arange(70)[::-1],
    [],
    np.arange(70) % 2 == 0,
    np.array([[0, 1], [2, 3]]),
]


@pytest.mark.parametrize("rows", ROWS, ids=str)
def test_planar_images_index_like_an_array(planes, rows):
    images, expected = planes
    got = images[rows]
    np.testing.assert_array_equal(got, expected[rows])
    assert got.dtype == np.uint8
    assert got.flags.c_contiguous
    assert got.flags.writeable


def test_planar_images_as_an_array(planes):
    images, expected = planes
    assert len(images) == 70
    assert images.shape == (70, 32, 32, 3)
    assert images.dtype == np.uint8
    np.testing.assert_array_equal(np.asarray(images), expected)
    assert np.asarray(images, dtype=np.float32).dtype == np.float32


def test_planar_images_refuse_what_they_cannot_index(planes):
    images, _ = planes
    with pytest.raises(IndexError, match="too many indices"):
        images[0, 1]
    with pytest.raises(IndexError):
        images[70]
    with pytest.raises(ValueError, match="without a copy"):
        images.__array__(copy=False)


def test_planar_images_travel_as_their_place_in_the_file(planes):
    images, expected = planes
    images[:]
    sent = pickle.dumps(images)
    assert len(sent) < 1000
    np.testing.assert_array_equal(pickle.loads(sent)[:], expected)


# --- npz ---


def test_npz_gives_its_arrays(tmp_path):
    arrays = made_up()
    np.savez(tmp_path / "cifar100.npz", **arrays)
    source = open_cifar100(tmp_path)
    assert same(source, arrays)
    assert source.leaves == CIFAR100_LEAVES
    assert source.checksum == open_cifar100(tmp_path / "cifar100.npz").checksum


def test_npz_with_keras_names_has_the_same_checksum(tmp_path):
    arrays = made_up()
    np.savez(tmp_path / "a.npz", **arrays)
    renamed = {
        f"{'x' if what == 'images' else 'y'}_{split}": array
        for (split, what), array in ((key.split("_"), array) for key, array in arrays.items())
    }
    renamed["y_train"] = renamed["y_train"].astype(np.uint8)[:, None]
    np.savez_compressed(tmp_path / "b.npz", **renamed)
    a, b = from_npz(tmp_path / "a.npz"), from_npz(tmp_path / "b.npz")
    assert same(b, arrays)
    assert a.checksum == b.checksum


@pytest.mark.parametrize("key", ["train_images", "train_labels", "test_images", "test_labels"])
def test_checksum_follows_the_content(tmp_path, key):
    arrays = made_up()
    np.savez(tmp_path / "a.npz", **arrays)
    before = from_npz(tmp_path / "a.npz").checksum
    arrays[key][0] = 99 - arrays[key][0]
    np.savez(tmp_path / "a.npz", **arrays)
    assert from_npz(tmp_path / "a.npz").checksum != before


WRONG = [
    ({"train_images": None}, r"lacks train_images \(or x_train\); it has test_images, test_labels"),
    ({"test_labels": None}, r"lacks test_labels \(or y_test\)"),
    ({"train_images": np.zeros((6, 3, 32, 32), np.uint8)}, r"\(n, 32, 32, 3\).*\(6, 3, 32, 32\)"),
    ({"test_images": np.zeros((4, 32, 32, 3))}, r"test images must be .* uint8; .* float64"),
    ({"train_labels": np.zeros(6)}, "train labels must be whole numbers.* float64"),
    ({"train_labels": np.zeros(5, int)}, r"must be whole numbers, \(6,\).*\(5,\)"),
    ({"test_labels": np.full(4, 100)}, "test labels are 100 to 100; .* 0 to 99"),
    ({"test_labels": np.full(4, -1)}, "test labels are -1 to -1"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_wrong_npz_is_refused(tmp_path, change, message):
    arrays = {k: v for k, v in (made_up() | change).items() if v is not None}
    np.savez(tmp_path / "cifar100.npz", **arrays)
    with pytest.raises(DataError, match=message) as caught:
        open_cifar100(tmp_path)
    assert "cifar100.npz" in str(caught.value)


def test_npz_with_objects_is_not_unpickled(tmp_path):
    np.savez(tmp_path / "cifar100.npz", **(made_up() | {"train_labels": np.array([{}] * 6)}))
    with pytest.raises(DataError, match="Python objects in it, which are not loaded"):
        open_cifar100(tmp_path)


def test_damaged_npz_is_refused(tmp_path):
    path = tmp_path / "cifar100.npz"
    np.savez(path, **made_up())
    path.write_bytes(path.read_bytes()[:10_000])
    with pytest.raises(DataError, match=r"cannot be read as \.npz: .* Is it complete"):
        open_cifar100(tmp_path)
    with path.open("wb") as file:
        np.save(file, np.zeros(3))
    with pytest.raises(DataError, match="File is not a zip file"):
        open_cifar100(path)
    with pytest.raises(DataError, match="there is no file"):
        open_cifar100(tmp_path / "other.npz")


# --- parquet ---


def png(pixels):
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def write_parquet(path, images, labels, **columns):
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    path.parent.mkdir(parents=True, exist_ok=True)
    img = [{"bytes": png(x) if isinstance(x, np.ndarray) else x, "path": None} for x in images]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    table = {"img": pa.array(img, kind), "fine_label": pa.array(labels, pa.int64())} | columns
    pq.write_table(pa.table({k: v for k, v in table.items() if v is not None}), path)


def write_folder(folder, arrays):
    half = len(arrays["train_images"]) // 2
    for shard, rows in enumerate((slice(None, half), slice(half, None))):
        name = f"train-0000{shard}-of-00002.parquet"
        write_parquet(folder / name, arrays["train_images"][rows], arrays["train_labels"][rows])
    name = "test-00000-of-00001.parquet"
    write_parquet(folder / name, arrays["test_images"], arrays["test_labels"])


@pytest.mark.parametrize("place", ["", "data", "cifar100"])
def test_parquet_gives_the_same_pixels_as_npz(tmp_path, place):
    arrays = made_up()
    write_folder(tmp_path / place, arrays)
    np.savez(tmp_path / "same.npz", **arrays)
    source = open_cifar100(tmp_path)
    assert same(source, arrays)
    assert source.checksum == open_cifar100(tmp_path / "same.npz").checksum


def test_real_rows_are_the_same_from_every_form(source, tmp_path):
    arrays = {
        "train_images": source.train[:1500],
        "train_labels": source.train_leaf[:1500],
        "test_images": source.test[:500],
        "test_labels": source.test_leaf[:500],
    }
    np.savez(tmp_path / "cifar100.npz", **arrays)
    write_folder(tmp_path / "parquet", arrays)
    assert same(open_cifar100(tmp_path), arrays)
    assert same(open_cifar100(tmp_path / "parquet"), arrays)


BROKEN = [
    ([b"no image"], {}, r"row 0 cannot be read as an image"),
    ([None], {}, r"row 0: img holds no bytes"),
    ([np.zeros((8, 16, 3), np.uint8)], {}, r"row 0: the image is 16×8, not 32×32"),
    ([np.zeros((32, 32, 3), np.uint8)], {"img": None}, "lacks the column img; it has fine_label"),
    ([np.zeros((32, 32, 3), np.uint8)], {"fine_label": None}, "lacks the column fine_label"),
    ([np.zeros((32, 32, 3), np.uint8)], {"fine_label": [100]}, "train labels are 100 to 100"),
]


@pytest.mark.parametrize(("images", "columns", "message"), BROKEN)
def test_wrong_parquet_is_refused(tmp_path, images, columns, message):
    write_folder(tmp_path, made_up())
    for path in tmp_path.glob("train-*"):
        path.unlink()
    write_parquet(tmp_path / "train-0.parquet", images, [1], **columns)
    with pytest.raises(DataError, match=message) as caught:
        open_cifar100(tmp_path)
    assert str(tmp_path) in str(caught.value)


def test_damaged_or_missing_parquet_is_named(tmp_path):
    write_folder(tmp_path, made_up())
    path = tmp_path / "test-00000-of-00001.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(DataError, match=r"test-00000.* cannot be read as parquet"):
        open_cifar100(tmp_path)
    path.unlink()
    with pytest.raises(DataError, match=r"has no test-\*\.parquet"):
        from_parquet(tmp_path)


def test_parquet_without_pyarrow_names_the_extra(tmp_path, monkeypatch):
    write_folder(tmp_path, made_up())
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DataError, match=re.escape(install_line("parquet"))):
        from_parquet(tmp_path)


def test_only_the_base_install_is_imported():
    code = f"import sys, {cifar100.__name__}; print({{'PIL', 'pyarrow'}} & set(sys.modules))"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout.strip() == "set()"
