"""Image folders: the index, its cache, and what is wrong with a folder."""

import logging
import os
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from polarbear import Hierarchy, Schedule, Stream
from polarbear.base.errors import DataError
from polarbear.data import index_cache
from polarbear.data.folders import FolderIndex, index_folders, open_folders

BEARS = Hierarchy.from_children({"bear": ["polar bear", "brown bear"]}, alone=["lamp"])
LEAVES = ("brown bear", "lamp", "polar bear")
LONG_AGO = 10**18


def settle(root: Path) -> None:
    """Make the folders look as if they had been there for years."""
    for folder, _, _ in os.walk(root):
        os.utime(folder, ns=(LONG_AGO, LONG_AGO))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two splits of three classes; each image's colour says which it is."""
    for s, split in enumerate(("train", "test")):
        for c, leaf in enumerate(LEAVES):
            folder = tmp_path / "data" / split / leaf
            folder.mkdir(parents=True)
            for i in range(5 - 3 * s):
                Image.new("RGB", (8, 8), (s, c, i)).save(folder / f"{i}.png")
    settle(tmp_path / "data")
    return tmp_path / "data"


def named(colour: np.ndarray) -> tuple[int, ...]:
    return tuple(colour[0, 0].tolist())


class TestIndex:
    @given(
        st.dictionaries(
            st.text("abcxyz ", min_size=1, max_size=4),
            st.sets(st.text("ab.19_é", max_size=6).map(lambda s: f"x{s}.JPEG"), min_size=1),
            min_size=1,
        ),
        st.randoms(use_true_random=False),
    )
    def test_rows_go_by_sorted_class_then_sorted_name(self, listing, random):
        mixed = {name: random.sample(sorted(files), len(files)) for name, files in listing.items()}
        index = FolderIndex.from_listing(mixed, "root")
        expected = [(c, n) for c in sorted(listing) for n in sorted(listing[c])]
        assert len(index) == len(expected)
        assert [
            (index.classes[index.leaf[r]], index.name(r)) for r in range(len(index))
        ] == expected
        assert [index.path(r) for r in range(len(index))] == [Path("root", *e) for e in expected]

    def test_suffixes_may_differ_in_case_and_kind(self):
        names = ["a.JPEG", "b.jpg", "c.PNG", "d.WebP", "e.jpeg"]
        assert len(FolderIndex.from_listing({"lamp": names})) == 5

    def test_hidden_files_are_left_out(self):
        index = FolderIndex.from_listing({"lamp": ["b.png", "._b.png", "+a.png", ".DS_Store"]})
        assert [index.name(r) for r in range(len(index))] == ["+a.png", "b.png"]

    def test_files_that_systems_leave_are_left_out(self, root, caplog):
        for name in ("Thumbs.db", "desktop.ini", ".DS_Store"):
            (root / "train" / name).touch()
            (next(iter(root.glob("train/*/"))) / name).touch()
        before = FolderIndex.from_listing({"lamp": ["1.png"]})
        with_litter = FolderIndex.from_listing({"lamp": ["Thumbs.db", "1.png", "DESKTOP.INI"]})
        assert with_litter.checksum == before.checksum
        index = index_folders(root / "train")
        assert all(index.name(row).endswith(".png") for row in range(len(index)))
        assert not caplog.records

    def test_stray_files_are_named(self):
        with pytest.raises(DataError, match=r"data/lamp holds 'notes.txt', which is no image"):
            FolderIndex.from_listing({"lamp": ["a.png", "notes.txt"]}, "data")

    def test_a_folder_inside_a_class_folder_is_named(self, root):
        (root / "train" / "lamp" / "images").mkdir()
        with pytest.raises(DataError, match=r"lamp holds 'images'"):
            index_folders(root / "train")

    @pytest.mark.parametrize("names", [[], [".hidden.png"]])
    def test_every_empty_class_is_named(self, names):
        with pytest.raises(DataError, match="no image in 'bus', 'lamp' of data"):
            FolderIndex.from_listing({"lamp": names, "bus": [], "mug": ["1.png"]}, "data")

    def test_a_folder_without_classes(self, tmp_path):
        with pytest.raises(DataError, match="holds no class folder"):
            index_folders(tmp_path)

    def test_an_image_outside_the_class_folders_is_named(self, root):
        (root / "train" / "lost.jpg").touch()
        with pytest.raises(DataError, match=r"lost.jpg lies in no class folder"):
            index_folders(root / "train")

    def test_other_files_beside_the_class_folders_are_logged(self, root, caplog):
        (root / "train" / "readme.txt").touch()
        assert index_folders(root / "train").classes == LEAVES
        assert "readme.txt is no class folder" in caplog.text

    def test_a_missing_folder_gets_a_hint(self, root):
        with pytest.raises(DataError, match=r"did you mean 'train'\? .* 'test', 'train'"):
            index_folders(root / "trian")
        with pytest.raises(DataError, match="does not exist either"):
            index_folders(root / "nowhere" / "train")

    @pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
    def test_names_that_are_no_utf8_work(self, tmp_path):
        folder = tmp_path / "train" / "lamp"
        folder.mkdir(parents=True)
        (folder / os.fsdecode(b"\xff\xfe.png")).write_bytes(b"here")
        assert index_folders(tmp_path / "train").encoded(0) == b"here"

    def test_the_checksum_names_the_files(self):
        one = FolderIndex.from_listing({"lamp": ["1.png", "2.png"]}, "here").checksum
        assert one == FolderIndex.from_listing({"lamp": ["2.png", "1.png"]}, "there").checksum
        assert one != FolderIndex.from_listing({"lamp": ["1.png"], "bus": ["2.png"]}).checksum


class TestCache:
    def test_the_second_time_lists_nothing(self, root, monkeypatch):
        first = index_folders(root / "train")
        assert (root / "polarbear-index-train.npz").is_file()
        monkeypatch.setattr("polarbear.data.folders._listed", None)
        second = index_folders(root / "train")
        assert second.checksum == first.checksum
        assert second.path(7) == first.path(7)

    def test_no_other_file_stays_behind(self, root):
        index_folders(root / "train")
        assert sorted(f.name for f in root.iterdir()) == [
            "polarbear-index-train.npz",
            "test",
            "train",
        ]

    @pytest.mark.parametrize(
        "change",
        [
            lambda train: (train / "lamp" / "0.png").unlink(),
            lambda train: (train / "lamp" / "0.png").rename(train / "lamp" / "zero.png"),
            lambda train: (train / "lamp").rename(train / "lantern"),
            lambda train: (train / "lamp" / "9.png").touch(),
        ],
        ids=["removed", "renamed", "class renamed", "added"],
    )
    def test_a_change_makes_it_void(self, root, change):
        index_folders(root / "train")
        change(root / "train")
        plain = index_folders(root / "train", cache=False)
        assert index_folders(root / "train").checksum == plain.checksum

    def test_folders_that_changed_just_now_are_not_kept(self, root):
        os.utime(root / "train" / "lamp")
        index_folders(root / "train")
        assert not (root / "polarbear-index-train.npz").exists()

    def test_damage_is_logged_and_mended(self, root, caplog):
        good = index_folders(root / "train").checksum
        file = root / "polarbear-index-train.npz"
        content = file.read_bytes()
        for damaged in (b"", b"nonsense", content[: len(content) // 2], content[:-200]):
            file.write_bytes(damaged)
            caplog.clear()
            assert index_folders(root / "train").checksum == good
            assert "indexing again" in caplog.text
            assert file.read_bytes()[:2] == b"PK"

    @pytest.mark.parametrize("seed", range(30))
    def test_a_flipped_byte_never_gives_another_index(self, root, seed):
        good = index_folders(root / "train").checksum
        file = root / "polarbear-index-train.npz"
        content = bytearray(file.read_bytes())
        content[np.random.default_rng(seed).integers(len(content))] ^= 0x55
        file.write_bytes(content)
        assert index_folders(root / "train").checksum == good

    def test_where_the_data_cannot_be_written_it_goes_home(self, root, tmp_path, monkeypatch):
        monkeypatch.setattr(index_cache.os, "access", lambda *_: False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
        first = index_folders(root / "train")
        assert len(list((tmp_path / "home" / "polarbear").iterdir())) == 1
        monkeypatch.setattr("polarbear.data.folders._listed", None)
        assert index_folders(root / "train").checksum == first.checksum

    def test_an_old_cache_beside_read_only_data_does_no_harm(self, root, tmp_path, monkeypatch):
        index_folders(root / "train")
        (root / "train" / "lamp" / "0.png").unlink()
        os.utime(root / "train" / "lamp", ns=(LONG_AGO + 1, LONG_AGO + 1))
        monkeypatch.setattr(index_cache.os, "access", lambda *_: False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
        assert len(index_folders(root / "train")) == 14
        monkeypatch.setattr("polarbear.data.folders._listed", None)
        assert len(index_folders(root / "train")) == 14

    def test_two_data_sets_share_a_cache_folder(self, root, tmp_path):
        train = index_folders(root / "train", cache=tmp_path / "cache")
        test = index_folders(root / "test", cache=tmp_path / "cache")
        assert len(list((tmp_path / "cache").iterdir())) == 2
        assert index_folders(root / "train", cache=tmp_path / "cache").checksum == train.checksum
        assert index_folders(root / "test", cache=tmp_path / "cache").checksum == test.checksum

    def test_a_cache_that_cannot_be_written_is_no_error(self, root, tmp_path, caplog):
        (tmp_path / "file").touch()
        assert len(index_folders(root / "train", cache=tmp_path / "file")) == 15
        assert "could not be kept" in caplog.text

    def test_no_cache_if_none_is_wanted(self, root):
        index_folders(root / "train", cache=False)
        assert sorted(f.name for f in root.iterdir()) == ["test", "train"]


class TestSource:
    def test_images_and_leaves_fit(self, root):
        source = open_folders(root, BEARS)
        assert source.leaves == LEAVES
        assert [named(image) for image in source.train[:]] == [
            (0, c, i) for c in range(3) for i in range(5)
        ]
        assert source.train_leaf.tolist() == [0] * 5 + [1] * 5 + [2] * 5
        assert [named(image) for image in source.test[:]] == [
            (1, c, i) for c in range(3) for i in range(2)
        ]

    def test_a_stream_follows_the_hierarchy_not_the_folders(self, root):
        schedule = Schedule.of([["bear"], ["polar bear", "lamp", "brown bear"]])
        source = open_folders(root, BEARS)
        stream = Stream.from_source(source, BEARS, schedule)
        task = stream[1].train
        lamps = task.rows[task.targets[:, stream.classes.index("lamp")]]
        assert {named(image)[1] for image in stream.images("train")[lamps]} == {1}
        assert lamps.tolist() == [5, 6, 7, 8, 9]

    def test_val_stands_in_for_test(self, root):
        (root / "test").rename(root / "val")
        assert len(open_folders(root, BEARS).test) == 6

    def test_splits_may_have_other_names(self, root):
        (root / "test").rename(root / "held out")
        assert len(open_folders(root, BEARS, test="held out").test) == 6

    def test_every_wrong_folder_is_named_at_once(self, root):
        (root / "train" / "lamp").rename(root / "train" / "lmap")
        (root / "test" / "polar bear").rename(root / "test" / "bear")
        with pytest.raises(DataError) as caught:
            open_folders(root, BEARS)
        message = str(caught.value)
        assert "train lacks 1 of the classes: 'lamp'" in message
        assert "train has 1 that is no leaf: 'lmap' (did you mean 'lamp'?)" in message
        assert "test lacks 1 of the classes: 'polar bear'" in message
        assert "'bear' (a superclass: its images go to 'polar bear', 'brown bear')" in message
        assert "add, rename or remove folders" in message

    def test_ignored_classes_may_be_in_one_split_alone(self, root):
        (root / "test" / "kettle").mkdir()
        Image.new("RGB", (8, 8)).save(root / "test" / "kettle" / "0.png")
        with pytest.raises(DataError, match="'kettle'"):
            open_folders(root, BEARS)
        source = open_folders(root, BEARS, ignore=["kettle"])
        assert [source.leaves[i] for i in source.test_leaf[[0, 2, 3]]] == [
            "brown bear",
            "kettle",
            "lamp",
        ]
        schedule = Schedule.of([["bear"], ["polar bear", "lamp", "brown bear"]])
        stream = Stream.from_source(source, BEARS, schedule, ignore=["kettle"])
        assert stream.test(after=1).rows.tolist() == [0, 1, 3, 4, 5, 6]

    def test_a_file_that_vanished_is_named(self, root):
        source = open_folders(root, BEARS)
        (root / "train" / "lamp" / "2.png").unlink()
        with pytest.raises(DataError, match=r"there is no file .*lamp/2.png \(row 7\)"):
            source.train[[7]]

    def test_nothing_is_logged_above_info_for_good_folders(self, root, caplog):
        open_folders(root, BEARS)
        open_folders(root, BEARS)
        assert not [r for r in caplog.records if r.levelno > logging.INFO]
